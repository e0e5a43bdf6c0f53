"""The cost of a fusion against the plain reference, bit for bit, and by hand."""

from dataclasses import replace
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.cost import flipped_costs, fusion_cost, kernels_of
from gopt.cost.fusion.kernel_reach import MAX_REPETITIONS, MAX_TICKS
from gopt.cost.fusion.kernel_walk import LANES
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.fusion import members
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.graph.kinds import INPUT, kind_index
from gopt.graph.tracing import trace
from tests.reference import fusion as reference
from tests.strategies import NASTY

ROWS = (32, 128, 512), (45, 150, 600)  # with other padding
LARGE = 1024, 2048, 4096
KINDS = ("add", "mul", "exp", "broadcast_in_dim", "slice", "reduce_sum", "dot_general", "gather")
CLONES = (False, True)
run = jax.jit(jax.vmap(kernels_of, (None, 0)))
costs = jax.jit(jax.vmap(fusion_cost, (None, 0)))


def rules_with(allow_duplication, max_kernel_ops=64, rules=RULES["cpu"]):
    return replace(rules, allow_duplication=allow_duplication, max_kernel_ops=max_kernel_ops)


def random_graph(rng, num_ops):
    """Ops of all roles, of no, one or several outputs, that read much and little."""
    kind = rng.choice([INPUT, *map(kind_index, KINDS)], num_ops)
    producer = np.repeat(np.arange(num_ops), rng.choice([0, 1, 1, 1, 1, 1, 2], num_ops))
    count = len(producer)
    density = rng.choice([0.05, 0.15, 0.5])
    uses = [
        (t, i)
        for t in range(count)
        for i in range(producer[t] + 1, num_ops)
        if kind[i] != INPUT and rng.random() < density
    ]
    # A broadcast has one operand.
    seen = set()
    broadcast = kind_index("broadcast_in_dim")
    uses = [
        u
        for u in (uses[k] for k in rng.permutation(len(uses))[:80])
        if kind[u[1]] != broadcast or not (u[1] in seen or seen.add(u[1]))
    ]
    size = rng.integers(0, 50, count) * rng.choice([0, 1, 1, 40], count)
    tensor, consumer = (np.array([use[k] for use in uses], int) for k in (0, 1))
    moved = np.bincount(consumer, size[tensor], minlength=num_ops)
    moved = moved + np.bincount(producer, size, minlength=num_ops)
    dimensions = np.full((count, graphs.MAX_RANK), -1)
    dimensions[:, 0] = size
    return graphs.from_arrays(
        producer,
        size,
        tensor,
        consumer,
        num_ops=num_ops,
        kind=kind,
        flops=rng.integers(0, 100, num_ops) * rng.choice([0, 1, 50], num_ops),
        bytes=np.floor(moved * rng.choice([0, 0.3, 1, 1, 1, 1.5], num_ops)),
        shape=dimensions,
        rank=1,
        pinned=rng.random(count) < 0.15,
    )


def machine(rng):
    return unit_rate_devices(
        1,
        flop_rate=rng.choice([1.0, 7.0]),
        memory_bandwidth=rng.choice([1.0, 3.0]),
        launch=rng.choice([0.0, 5.0]),
        overlap=rng.choice([0.0, 0.95, 1.0]),
    )


def check(problem, rng):
    n = len(problem.compute)
    share = np.array([0, 0.2, 0.5, 0.9, 1, 1])[:, None]
    fuse = rng.random((len(share), n)) < share
    found = jax.device_get(run(problem, fuse))
    assert np.array_equal(found.cost, costs(problem, fuse))
    graph = reference.Graph(problem)
    for k, bits in enumerate(fuse):
        right = reference.kernels(problem, bits, graph)
        one = jax.tree.map(itemgetter(k), found)
        time = {i: int(one.time[i]) for i in np.flatnonzero(one.is_end)}
        assert time == right.time
        assert one.cost == right.cost
        assert members(one, problem) == right.members
        assert not np.any(one.is_end[int(problem.num_ops) :])


def check_random(seed, rules, check):
    """Check problems of random graphs, padded in several ways; `rules(rng)` draws their rules."""
    rng = np.random.default_rng(seed)
    for rows in ROWS:
        graph, drawn = random_graph(rng, int(rng.integers(1, 31))), rules(rng)
        check(prepare_fusion(graph, machine(rng), rules=drawn, rows=rows), rng)


@pytest.mark.slow
@pytest.mark.parametrize("allow_duplication", CLONES)
@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_match_the_reference(seed, allow_duplication):
    fuses_into = (
        ("element-wise", ("element-wise", "reduction", "move")),
        ("move", ("move", "element-wise", "reduction", "opaque")),
        ("reduction", ("element-wise",)),
    )

    def rules(rng):
        return Rules(fuses_into, int(rng.choice([1, 2, 3, 64])), allow_duplication)

    check_random(seed, rules, check)


@pytest.mark.parametrize("allow_duplication", CLONES)
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs_match_the_reference(name, allow_duplication):
    rng = np.random.default_rng(0)
    graph = NASTY[name]()
    kinds = np.where(
        graph.kind == INPUT, INPUT, rng.choice(list(map(kind_index, KINDS[:3])), len(graph.kind))
    )
    large = int(graph.num_ops) >= ROWS[0][0] or int(graph.num_uses) > 60
    problem = prepare_fusion(
        graph._replace(kind=kinds),
        machine(rng),
        rules=rules_with(allow_duplication),
        rows=LARGE if large else ROWS[0],
    )
    check(problem, rng)


def test_padding_changes_nothing():
    rng = np.random.default_rng(1)
    graph = random_graph(rng, 25)
    hardware = machine(rng)
    fuse = rng.random(25) < 0.7
    for allow_duplication in CLONES:
        found = set()
        for rows in ((26, 120, 400), (32, 128, 512), (45, 150, 401), (300, 400, 2000)):
            problem = prepare_fusion(
                graph, hardware, rules=rules_with(allow_duplication), rows=rows
            )
            for fill in (False, True):
                bits = np.full(rows[0], fill)
                bits[:25] = fuse
                found.add(int(fusion_cost(problem, bits)))
        assert len(found) == 1


def test_bytes_disappear_step_by_step():
    """multiply -> reduce -> sigmoid, 100 x 8 floats, at one byte a second."""

    def model(x, y):
        return jax.nn.sigmoid(jnp.sum(x * y, axis=1))

    shape = jax.ShapeDtypeStruct((100, 8), jnp.float32)
    traced = trace(model, shape, shape)
    # On a GPU, where what follows a reduction may be in its kernel.
    hardware = unit_rate_devices(1, flop_rate=1e9, launch=0.0)
    problems = [
        prepare_fusion(
            traced.graph, hardware, rules=rules_with(allow_duplication, rules=RULES["gpu"])
        )
        for allow_duplication in CLONES
    ]
    names = [traced.names[i] for i in range(len(traced.names))]
    multiply, add = names.index("mul"), names.index("reduce_sum")
    big, small = 4 * 100 * 8, 4 * 100
    bits = np.zeros(len(problems[0].compute), bool)
    for fused, moved in (
        # Everything is written, and read again.
        ([], 3 * big + (big + small) + 2 * small),
        # The product is neither written nor read.
        ([multiply], 2 * big + small + 2 * small),
        # Nor is the sum.
        ([multiply, add], 2 * big + small),
    ):
        bits[:] = False
        bits[fused] = True
        for problem in problems:
            seconds = float(fusion_cost(problem, bits) * problem.tick)
            assert seconds == pytest.approx(moved, rel=1e-5)


def test_a_clone_is_paid_for_in_each_kernel():
    """An op with two readers: to clone it saves its bytes, and costs its work again."""
    size = 1000
    ops = [
        Op("input", outputs=(Output(size, (size,)),)),
        Op("exp", ((0, 0),), (Output(size, (size,)),), flops=100),
        Op("add", ((1, 0),), (Output(size, (size,), pinned=True),)),
        Op("mul", ((1, 0),), (Output(size, (size,), pinned=True),)),
    ]

    def seconds(allow_duplication, is_fused):
        hardware, compute = unit_rate_devices(1, overlap=0.0), [0, 700, 0, 0]
        problem = prepare_fusion(
            graphs.from_ops(ops), hardware, rules=rules_with(allow_duplication), compute=compute
        )
        bits = (np.arange(len(problem.compute)) == 1) & is_fused
        return float(fusion_cost(problem, bits) * problem.tick)

    assert seconds(True, False) == pytest.approx(6 * size + 700, rel=1e-5)
    assert seconds(True, True) == pytest.approx(4 * size + 2 * 700, rel=1e-5)
    assert seconds(False, True) == seconds(True, False)  # its readers are in two kernels


def test_what_a_broadcast_repeats_is_computed_again():
    def model(x, y):
        return (x * x)[:, None] + y

    args = jax.ShapeDtypeStruct((10,), jnp.float32), jax.ShapeDtypeStruct((10, 30), jnp.float32)
    graph = trace(model, *args).graph
    problem = prepare_fusion(graph, unit_rate_devices(1, memory_bandwidth=1e9, overlap=0.0))
    square = int(np.flatnonzero(graph.kind == kind_index("mul"))[0])
    bits = np.arange(len(problem.compute)) == square
    found = kernels_of(problem, bits)
    assert int(found.compute.max()) * float(problem.tick) == pytest.approx(2 * 10 * 30, rel=1e-3)
    assert int(np.sum(found.is_end)) == 1


def test_what_is_dear_is_not_computed_again():
    def model(x, y):
        return jnp.exp(x)[:, None] + y

    args = jax.ShapeDtypeStruct((10,), jnp.float32), jax.ShapeDtypeStruct((10, 30), jnp.float32)
    graph = trace(model, *args).graph
    for allow_duplication in CLONES:
        problem = prepare_fusion(graph, unit_rate_devices(1), rules=rules_with(allow_duplication))
        bits = np.ones(len(problem.compute), bool)
        assert int(np.sum(kernels_of(problem, bits).is_end)) == 2


def test_costs_end_somewhere():
    """Products of broadcasts, each repeated again, overflow no int32."""
    size, ops = 4, [Op("input", outputs=(Output(4, (4,)),))]
    for k in range(20):
        ops.append(Op("mul", ((len(ops) - 1, 0),), (Output(size, (size,)),), flops=1e6))
        size *= 8
        ops.append(Op("add", ((len(ops) - 1, 0),), (Output(size, (size,), pinned=k == 19),)))
    for allow_duplication in CLONES:
        hardware = unit_rate_devices(1, memory_bandwidth=1e20)
        problem = prepare_fusion(
            graphs.from_ops(ops), hardware, rules=rules_with(allow_duplication)
        )
        bits = np.ones(len(problem.compute), bool)
        assert int(fusion_cost(problem, bits)) == reference.kernels(problem, bits).cost == MAX_TICKS


def test_a_bad_configuration_is_refused():
    problem = prepare_fusion(graphs.from_ops([Op()]), unit_rate_devices(1))
    for function in (fusion_cost, kernels_of, flipped_costs):
        with pytest.raises(ValueError, match=r"fuse has shape \(3,\): expected \(16,\)"):
            function(problem, np.zeros(3, bool))


flips = jax.jit(jax.vmap(flipped_costs, (None, 0)))


@pytest.mark.parametrize("allow_duplication", CLONES)
@pytest.mark.parametrize("case", ["random", *NASTY])
def test_flips_of_all_decisions_cost_what_each_alone_does(allow_duplication, case):
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 25) if case == "random" else NASTY[case]()
    if case in NASTY:
        graph = graph._replace(kind=np.where(graph.kind == INPUT, INPUT, kind_index("add")))
    large = int(graph.num_ops) >= ROWS[0][0] or int(graph.num_uses) > 60
    rows = LARGE if large else ROWS[0]
    problem = prepare_fusion(graph, machine(rng), rules=rules_with(allow_duplication), rows=rows)
    fuse = np.concatenate([rng.random((3, rows[0])) < 0.5, np.zeros((1, rows[0]), bool)])
    found = flips(problem, fuse)
    own = costs(problem, fuse)
    for op in range(min(rows[0], 40)):
        alone = costs(problem, fuse ^ (np.arange(rows[0]) == op))
        assert np.array_equal(found[:, op], alone if problem.configurable[op] else own)
    if case == "random":
        assert len(np.unique(found)) > 5


@pytest.mark.slow
def test_padding_changes_no_cost_of_a_flip():
    rng = np.random.default_rng(2)
    graph, hardware = random_graph(rng, 25), machine(rng)
    fuse = rng.random(25) < 0.7
    found = []
    for rows in ((26, 120, 400), *ROWS):
        problem = prepare_fusion(graph, hardware, rows=rows)
        for fill in (False, True):
            bits = np.full(rows[0], fill)
            bits[:25] = fuse
            changed = flips(problem, bits[None])[0]
            assert (changed[25:] == fusion_cost(problem, bits)).all()
            found.append(changed[:25])
    assert len(np.unique(found, axis=0)) == 1 and len(np.unique(found[0])) > 3


def test_where_nothing_is_a_choice_flips_cost_what_there_is():
    graph = graphs.from_ops([Op("exp", outputs=(Output(9, pinned=True),))])
    problem = prepare_fusion(graph, unit_rate_devices(1))
    costs = flipped_costs(problem, np.zeros(16, bool))
    assert (costs == fusion_cost(problem, np.zeros(16, bool))).all() and costs[0] > 0


@pytest.mark.parametrize("count", [0, 1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES])
def test_a_population_of_any_size_costs_what_each_candidate_does(count):
    rng = np.random.default_rng(count)
    problem = prepare_fusion(random_graph(rng, 25), machine(rng), rows=ROWS[0])
    fuse = rng.random((count, ROWS[0][0])) < rng.random((count, 1))
    found = costs(problem, fuse)
    assert found.tolist() == [reference.kernels(problem, bits).cost for bits in fuse]


@pytest.mark.slow
def test_maps_over_problems_and_candidates_compose_in_any_order():
    rng = np.random.default_rng(3)
    problems = [prepare_fusion(random_graph(rng, 25), machine(rng), rows=ROWS[0]) for _ in range(3)]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *problems)
    fuse = rng.random((3, 5, ROWS[0][0])) < 0.5
    expected = np.stack([costs(p, f) for p, f in zip(problems, fuse, strict=True)])
    by_problem = jax.jit(jax.vmap(jax.vmap(fusion_cost, (None, 0))))(batch, fuse)
    assert np.array_equal(by_problem, expected)
    by_candidate = jax.vmap(jax.vmap(fusion_cost), (None, 1), 1)(batch, fuse)
    assert np.array_equal(by_candidate, expected)
    # The same candidate of each problem, and a map over candidates of maps over candidates.
    same = jax.vmap(fusion_cost, (0, None))(batch, fuse[0, 0])
    assert same.tolist() == [int(fusion_cost(p, fuse[0, 0])) for p in problems]
    nested = jax.vmap(jax.vmap(fusion_cost, (None, 0)), (None, 0))(problems[0], fuse)
    assert np.array_equal(nested[1], costs(problems[0], fuse[1]))
    changed = jax.vmap(flipped_costs)(batch, fuse[:, 0])
    assert np.array_equal(changed[2], flipped_costs(problems[2], fuse[2, 0]))


def test_what_is_repeated_very_often_counts_as_a_time_can_say():
    """2¹⁵ times, and not 2²⁰."""
    size, ops = 4, [Op("input", outputs=(Output(4, (1,)),))]
    for k in range(2):
        ops.append(Op("neg", ((len(ops) - 1, 0),), (Output(size, (size // 4,)),)))
        size *= 2**10
        ops.append(Op("add", ((len(ops) - 1, 0),), (Output(size, (size // 4,), pinned=k == 1),)))
    compute = [0, 1e-3, 0, 0, 0]
    for allow_duplication in CLONES:
        hardware = unit_rate_devices(1, memory_bandwidth=1e6, launch=0.0, overlap=0.0)
        problem = prepare_fusion(
            graphs.from_ops(ops), hardware, rules=rules_with(allow_duplication), compute=compute
        )
        bits = np.ones(len(problem.compute), bool)
        found = kernels_of(problem, bits)
        assert int(found.cost) == reference.kernels(problem, bits).cost < MAX_TICKS
        assert int(found.compute.max()) == MAX_REPETITIONS * int(problem.compute[1])
