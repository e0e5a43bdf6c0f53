"""Priority fusion against a plain greedy one, and by hand."""

import numpy as np
import pytest

from gopt.cost.fusion.cost import fusion_cost, kernels_of
from gopt.cost.fusion.kernel_reach import MAX_REPETITIONS
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.graph.kinds import INPUT, kind_index
from gopt.heuristics.fusion.presets import fuse_nothing, priority_fusion
from tests.cost.fusion.test_cost import KINDS, machine, random_graph
from tests.reference import fusion as kernels
from tests.reference import fusions as reference
from tests.reference.fusions import rebuilt
from tests.strategies import NASTY

ROWS = (64, 128, 1024)
BYTES = unit_rate_devices(1, memory_bandwidth=1.0, launch=0.0, overlap=0.0)  # a byte a second


def op(kind, *reads, size=100, pinned=False):
    return Op(kind, tuple((maker, 0) for maker in reads), (Output(size, (10,), pinned=pinned),))


def fused(ops, *, compute=None, max_kernel_ops=64, hardware=BYTES):
    rules = Rules(RULES["cpu"].fuses_into, max_kernel_ops=max_kernel_ops)
    seconds = np.zeros(len(ops)) if compute is None else compute
    problem = prepare_fusion(graphs.from_ops(ops), hardware, rules=rules, compute=seconds)
    return np.flatnonzero(priority_fusion(problem)).tolist()


def element_wise(rng, max_kernel_ops=64):
    """A problem of element-wise ops, of which nothing is repeated."""
    graph = random_graph(rng, 30)
    kind = np.where(graph.kind == INPUT, INPUT, kind_index("add"))
    rules = Rules(RULES["cpu"].fuses_into, max_kernel_ops=max_kernel_ops)
    problem = prepare_fusion(graph._replace(kind=kind), machine(rng), rules=rules, rows=ROWS)
    return rebuilt(problem._replace(repetitions=np.ones_like(problem.repetitions)))


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", range(25))
def test_it_is_the_plain_greedy_one_on_random_graphs(seed, target):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 31)))
    rules = Rules(RULES[target].fuses_into, max_kernel_ops=int(rng.choice([1, 2, 4, 64])))
    problem = prepare_fusion(graph, machine(rng), rules=rules, rows=ROWS)
    fuse = priority_fusion(problem)
    assert fuse.tolist() == reference.priority_fusion(problem)[0]
    assert not fuse[~problem.configurable].any()


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_plain_greedy_one_where_much_is_repeated(seed):
    """Readers in a kernel use ops unequally often, and most ops are cheap."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 20)
    kind = rng.choice(["add", "neg", "neg", "exp"], 20)
    kind = np.where(graph.kind == INPUT, INPUT, list(map(kind_index, kind)))
    problem = prepare_fusion(graph._replace(kind=kind), machine(rng), rows=ROWS)
    changed = problem._replace(
        repetitions=rng.choice([1, 1, 1, 2, 3, 300], problem.repetitions.shape),
        compute=rng.integers(0, 5, problem.compute.shape) * rng.choice([0, 1, 50]),
    )
    problem = rebuilt(changed)
    assert priority_fusion(problem).tolist() == reference.priority_fusion(problem)[0]


@pytest.mark.parametrize("rows", [(23, 46, 400), ROWS, (45, 150, 600)])
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs_with_padding_of_every_amount(name, rows):
    graph = NASTY[name]()
    kind = np.where(graph.kind == INPUT, INPUT, kind_index(KINDS[len(name) % 3]))
    hardware = machine(np.random.default_rng(len(name)))
    problem = prepare_fusion(graph._replace(kind=kind), hardware, rows=rows)
    assert priority_fusion(problem).tolist() == reference.priority_fusion(problem)[0]


@pytest.mark.parametrize("max_kernel_ops", [3, 64])
@pytest.mark.parametrize("seed", range(10))
def test_the_kernels_that_it_builds_are_those_of_the_configuration(seed, max_kernel_ops):
    """Where nothing is repeated and ops are in few kernels; so it never costs more than nothing."""
    problem = element_wise(np.random.default_rng(seed), max_kernel_ops)
    fuse = priority_fusion(problem)
    expected, ticks = reference.priority_fusion(problem)
    found = kernels.kernels(problem, fuse)
    assert fuse.any() and fuse.tolist() == expected
    assert (
        int(fusion_cost(problem, fuse)) == ticks <= int(fusion_cost(problem, fuse_nothing(problem)))
    )
    # What is fused is in all of its readers, and in memory no more.
    assert not fuse[list(found.members)].any()
    assert max(map(len, found.members.values())) <= max_kernel_ops


@pytest.mark.parametrize("seed", range(10))
def test_no_single_decision_more_saves_anything(seed):
    problem = element_wise(np.random.default_rng(seed))
    fuse = priority_fusion(problem)
    tried = 0
    for i in np.flatnonzero(problem.configurable & ~fuse):
        more = kernels.kernels(problem, fuse | (np.arange(len(fuse)) == i))
        if i not in more.members:  # it is in all of its readers
            assert more.cost > int(fusion_cost(problem, fuse))
            tried += 1
    assert tried or (fuse == problem.configurable).all()


def test_an_op_is_fused_if_to_compute_it_twice_is_less_than_to_move_it():
    """Fused, it is neither written nor read: 100 + 2 x 100, and reads 2 x 100 instead of 100."""
    ops = [op("input"), op("add", 0), op("neg", 1, pinned=True), op("mul", 1, pinned=True)]
    for seconds, expected in ((199, [1]), (200, [1]), (201, [])):
        assert fused(ops, compute=[0, seconds, 0, 0]) == expected
    # A launch that it saves counts, too.
    late = unit_rate_devices(1, memory_bandwidth=1.0, launch=10.0, overlap=0.0)
    for seconds, expected in ((210, [1]), (211, [])):
        assert fused(ops, compute=[0, seconds, 0, 0], hardware=late) == expected


def test_what_saves_most_comes_first_and_of_equals_the_first_op():
    """Of two results in a chain one is kept in its kernel, because kernels have two ops at most."""
    for first, second, expected in ((100, 300, [2]), (300, 100, [1]), (100, 100, [1])):
        ops = [op("input", size=300), op("neg", 0, size=first), op("neg", 1, size=second)]
        ops.append(op("neg", 2, size=50, pinned=True))
        assert fused(ops, max_kernel_ops=2) == expected
        assert fused(ops) == [1, 2]


def test_readers_that_were_fused_are_one_reader():
    """What is dear would be computed twice, until the two that read it are in one kernel."""
    ops = [op("input"), op("exp", 0), op("neg", 1), op("sin", 1), op("add", 2, 3, pinned=True)]
    compute = [0, 1000, 0, 0, 0]
    assert fused(ops, compute=compute) == [1, 2, 3]
    ops[3] = op("sin", 1, pinned=True)
    ops[4] = op("add", 2, 0, pinned=True)
    assert fused(ops, compute=compute) == [2]


def test_makers_of_what_was_fused_are_scored_anew():
    """Op 1 makes 30 of 100: to fuse it is worth it where its readers read these 100 anyway."""
    start = [op("input"), op("add", 0, size=30), op("neg", 1, size=1), op("sin", 1, 0, pinned=True)]
    compute = [0, 100, 0, 0, 0]
    # Op 2 does not, but the op does that it is fused into first.
    assert fused([*start, op("mul", 2, 0, pinned=True)], compute=compute) == [1, 2]
    assert fused([*start, op("mul", 2, pinned=True)], compute=compute) == [2]


def fused_of_two(*, compute, memory, repetitions):
    """What is fused of ops 1 and 2 of a chain, which another op ends; all is in ticks.

    The first computes and makes as much as is said, and the op after each uses it so often.
    """
    ops = [op("input"), op("neg", 0), op("neg", 1), op("neg", 2, pinned=True)]
    problem = prepare_fusion(graphs.from_ops(ops), BYTES)
    size = len(problem.compute)
    changed = problem._replace(
        compute=np.int32([0, compute] + [0] * (size - 2)),
        memory=np.int32([0, *memory] + [0] * (size - 3)),
        read=np.where(problem.read > 0, 1, 0),
        repetitions=np.int32([1, *repetitions] + [1] * (len(problem.repetitions) - 3)),
    )
    problem = rebuilt(changed)
    found = np.flatnonzero(priority_fusion(problem)).tolist()
    assert found == np.flatnonzero(reference.priority_fusion(problem)[0]).tolist()
    return found


def test_what_an_op_saved_before_its_reader_was_fused_counts_no_more():
    """Op 2 saves more and is first; then op 1 would be computed 300 times."""
    assert fused_of_two(compute=10, memory=(1000, 2000), repetitions=(1, 1)) == [1, 2]
    assert fused_of_two(compute=10, memory=(1000, 2000), repetitions=(1, 300)) == [2]
    assert fused_of_two(compute=10, memory=(2000, 1000), repetitions=(1, 300)) == [1]


def test_nothing_is_computed_more_often_than_a_time_can_say():
    """2¹⁵ times, and not 2²⁰."""
    repetitions = 2**10, 2**10
    saved = 2**17 + 1  # what it makes, and what the next op reads
    for compute, expected in ((4, [1, 2]), (5, [2])):
        assert (
            fused_of_two(compute=compute, memory=(2**17, 2**18), repetitions=repetitions)
            == expected
        )
        assert (compute * (MAX_REPETITIONS - 1) <= saved) == (expected == [1, 2])


def test_what_saves_nothing_and_costs_nothing_is_fused():
    for compute, expected in ((1001, [1, 2]), (1002, [2])):
        assert fused_of_two(compute=compute, memory=(1000, 2000), repetitions=(2, 1)) == expected


def test_one_reader_that_may_not_have_it_keeps_it_in_memory():
    ops = [op("input"), op("neg", 0), op("sin", 1, pinned=True), op("dot_general", 1, pinned=True)]
    assert fused(ops) == []
    assert fused([*ops[:3], op("cos", 1, pinned=True)]) == [1]


def test_a_kernel_has_no_more_ops_than_the_limit():
    ops = [op("input"), *(op("neg", i) for i in range(20)), op("neg", 20, pinned=True)]
    problem = prepare_fusion(
        graphs.from_ops(ops),
        unit_rate_devices(1),
        rules=Rules(RULES["cpu"].fuses_into, max_kernel_ops=4),
    )
    sizes = [
        len(ops) for ops in kernels.kernels(problem, priority_fusion(problem)).members.values()
    ]
    assert max(sizes) == 4
    assert fused(ops, max_kernel_ops=1) == [] and fused(ops, max_kernel_ops=64) == list(
        range(1, 21)
    )


@pytest.mark.slow
def test_a_hub_is_fused_into_a_thousand_readers_where_that_saves():
    ops = [op("input", size=400), op("add", 0, size=400)]
    ops += [op("mul", 1, size=400, pinned=True)] * 1000
    problem = prepare_fusion(graphs.from_ops(ops), unit_rate_devices(1))
    fuse = priority_fusion(problem)
    assert np.flatnonzero(fuse).tolist() == [1]
    assert int(np.sum(kernels_of(problem, fuse).is_end)) == 1000
    # With as much work as a reader takes, to do it a thousand times saves nothing.
    assert fused(ops, compute=[0, 1e3] + [0] * 1000) == []


def test_a_chain_of_a_thousand_ops_is_one_kernel():
    ops = [op("input"), *(op("neg", i) for i in range(1000)), op("neg", 1000, pinned=True)]
    assert fused(ops, max_kernel_ops=4000) == list(range(1, 1001))
