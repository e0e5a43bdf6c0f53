"""Fusion by levels against the plain reference, bit for bit, and by hand."""

from graphlib import TopologicalSorter

import jax
import numpy as np
import pytest

from gopt.cost.fusion.cost import fusion_cost, kernels_of
from gopt.cost.fusion.levels import MAX_LEVEL, fuse_by_level, kernel_ends_by_level
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.fusion import members
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.graph.kinds import INPUT, kind_index
from tests.cost.fusion.test_cost import KINDS, LARGE, ROWS, check_random, machine, rules_with
from tests.reference import fusion as reference
from tests.reference.fusions import rebuilt
from tests.strategies import HUBS, NASTY
from tests.tiers import slow

CLONES = (False, True)
ends = jax.jit(jax.vmap(kernel_ends_by_level, (None, 0)))
fused = jax.jit(jax.vmap(fuse_by_level, (None, 0)))
costs = jax.jit(jax.vmap(fusion_cost, (None, 0)))
kernels = jax.jit(kernels_of)


def random_levels(rng, rows):
    """All alike, few and many, and some that are extreme; bits as levels."""
    levels = [np.full(rows, level) for level in (-3, 0, 1, 20)]
    levels += [rng.integers(0, count + 1, rows) for count in (1, 1, 3, 20, 20)]
    levels += [1 + rng.permutation(rows), 1 + np.arange(rows), rng.integers(-5, 5, rows)]
    levels += [rng.choice([0, 1, MAX_LEVEL - 1, MAX_LEVEL], rows)]
    return np.stack(levels).astype(np.int32)


def check(problem, rng):
    """Returns how many ops are fused by each candidate."""
    n = int(problem.num_ops)
    levels = random_levels(rng, len(problem.compute))
    found, bits = np.array(ends(problem, levels)), np.array(fused(problem, levels))
    graph = reference.Graph(problem)
    cost = costs(problem, bits)
    for k, level in enumerate(levels):
        right = reference.by_level(problem, level, graph)
        assert found[k].tolist() == [
            *(next(end for end, inside in right.items() if op in inside) for op in range(n)),
            *range(n, len(level)),
        ]
        assert np.flatnonzero(bits[k]).tolist() == sorted(set(range(n)) - right.keys())
        # The bits are a configuration of the same kernels, with duplication or without.
        timed = graph.timed(right)
        assert reference.kernels(problem, bits[k], graph) == timed
        assert cost[k] == timed.cost
        is_acyclic(graph, found[k])
    return bits.sum(1)


def is_acyclic(graph, end):
    """No kernel waits for itself, and each has one end, its last op."""
    waits = {int(end[op]): set() for op in graph.ops}
    for _, maker, reader, _ in graph.uses:
        if end[maker] != end[reader]:
            assert end[maker] == maker
            waits[int(end[reader])].add(int(end[maker]))
    order = list(TopologicalSorter(waits).static_order())
    assert len(order) == len(waits)
    assert all(end[op] >= op for op in graph.ops)


@pytest.mark.parametrize("allow_duplication", CLONES)
@pytest.mark.parametrize("seed", (*range(3), *slow(*range(3, 15))))
def test_random_graphs_match_the_reference(seed, allow_duplication):
    def rules(rng):
        max_kernel_ops = int(rng.choice([1, 2, 3, 5, 64]))
        return rules_with(allow_duplication, max_kernel_ops, RULES[str(rng.choice(["cpu", "gpu"]))])

    check_random(seed, rules, check)


def sparse(rng, num_ops, kinds, sizes=(9, 9, 9, 1, 90)):
    """Each op is read by few, the next ones mostly, so that much is fused."""
    ops = [Op("input", outputs=(Output(9, (9,)),))]
    for op in range(1, num_ops):
        near = np.maximum(op - rng.geometric(0.4, rng.integers(1, 3)), 0)
        size = int(rng.choice(sizes))
        kind = str(rng.choice(kinds))
        near = near[:1] if kind == "broadcast_in_dim" else near
        reads = tuple((int(i), 0) for i in np.unique(near))
        ops.append(Op(kind, reads, (Output(size, (size,), pinned=rng.random() < 0.05),), flops=5))
    return graphs.from_ops(ops)


@pytest.mark.slow
@pytest.mark.parametrize("allow_duplication", CLONES)
@pytest.mark.parametrize("max_kernel_ops", [2, 3, 6, 64])
@pytest.mark.parametrize("kinds", [("add",), ("add", "exp"), (*KINDS, *["mul"] * 8)])
def test_graphs_where_much_is_fused_match_the_reference(kinds, max_kernel_ops, allow_duplication):
    rng = np.random.default_rng(max_kernel_ops)
    rules = rules_with(allow_duplication, max_kernel_ops, RULES["gpu"])
    most = 0
    for _ in range(4):
        graph = sparse(rng, 31, kinds)
        found = check(prepare_fusion(graph, machine(rng), rules=rules, rows=(40, 90, 900)), rng)
        most = max(most, found.max())
    assert most > 4


@pytest.mark.parametrize("seed", range(30))
def test_it_matches_the_reference_where_much_is_repeated(seed):
    rng = np.random.default_rng(seed)
    graph, max_kernel_ops = sparse(rng, 31, ("add", "mul", "exp")), int(rng.choice([3, 64]))
    rules = rules_with(bool(seed % 2), max_kernel_ops)
    problem = prepare_fusion(graph, machine(rng), rules=rules, rows=(40, 90, 900))
    times = np.where(rng.random(90) < 0.2, 3, 1).astype(np.int32)
    check(rebuilt(problem._replace(repetitions=times)), rng)


@pytest.mark.slow
@pytest.mark.parametrize("allow_duplication", CLONES)
@pytest.mark.parametrize("name", [*NASTY, *HUBS])
def test_nasty_graphs_match_the_reference(name, allow_duplication):
    rng = np.random.default_rng(0)
    graph = (NASTY | HUBS)[name]()
    kinds = np.where(graph.kind == INPUT, INPUT, kind_index("add"))
    large = int(graph.num_ops) >= ROWS[0][0] or int(graph.num_uses) > 60
    rules, rows = rules_with(allow_duplication), LARGE if large else ROWS[0]
    problem = prepare_fusion(graph._replace(kind=kinds), machine(rng), rules=rules, rows=rows)
    if name not in HUBS:
        check(problem, rng)
        return
    levels = random_levels(rng, rows[0])[[5, 8]]
    graph = reference.Graph(problem)
    for level, bits in zip(levels, fused(problem, levels), strict=True):
        right = reference.by_level(problem, level, graph)
        assert set(np.flatnonzero(bits)) == set(graph.ops) - right.keys()


@pytest.mark.slow
def test_padding_changes_nothing():
    rng = np.random.default_rng(1)
    graph, hardware = sparse(rng, 25, ("add", "mul", "exp")), machine(rng)
    level = rng.integers(0, 4, 25)
    for allow_duplication in CLONES:
        found = set()
        for rows in ((26, 120, 400), *ROWS, (300, 400, 2000)):
            rules = rules_with(allow_duplication, max_kernel_ops=5)
            problem = prepare_fusion(graph, hardware, rules=rules, rows=rows)
            fill = np.repeat([[0], [2], [20]], rows[0] - 25, 1)
            levels = np.concatenate([np.repeat(level[None], 3, 0), fill], 1)
            for end in np.asarray(ends(problem, levels)):
                found.add((*end[:25].tolist(),))
                assert end[25:].tolist() == list(range(25, rows[0]))
        assert len(found) == 1 and sum(found.pop() != np.arange(25)) > 3


@pytest.mark.parametrize("seed", range(10))
def test_equal_levels_are_the_bits(seed):
    """Without duplication, what is of one level is decided as bits are, from the last op on."""
    rng = np.random.default_rng(seed)
    rules = rules_with(False, max_kernel_ops=int(rng.choice([3, 64])), rules=RULES["gpu"])
    problem = prepare_fusion(sparse(rng, 31, KINDS), machine(rng), rules=rules, rows=(40, 90, 900))
    for share in (0.2, 0.5, 1):
        bits = rng.random(40) < share
        found = np.asarray(ends(problem, 7 * bits[None].astype(np.int32)))[0]
        effective = found != np.arange(40)
        assert not np.any(effective & ~bits)
        right = kernels(problem, bits)
        jax.tree.map(np.testing.assert_array_equal, kernels(problem, effective), right)
        for end, inside in members(right, problem).items():
            assert {int(found[op]) for op in inside} == {end}


# By hand.


def op(kind, *reads, size=100, shape=10, pinned=False):
    return Op(kind, tuple((i, 0) for i in reads), (Output(size, (shape,), pinned=pinned),))


def kernels_by_hand(ops, level, *, max_kernel_ops=64, rules=RULES["cpu"]):
    """The ops of each kernel that has several."""
    hardware = unit_rate_devices(1, memory_bandwidth=1.0)
    problem = prepare_fusion(
        graphs.from_ops(ops),
        hardware,
        rules=Rules(rules.fuses_into, max_kernel_ops, allow_duplication=False),
    )
    level = np.append(level, np.zeros(len(problem.compute) - len(ops), np.int32))
    found = np.asarray(ends(problem, level[None]))[0]
    groups = {end: np.flatnonzero(found == end).tolist() for end in found.tolist()}
    return {end: inside for end, inside in groups.items() if len(inside) > 1}


CHAIN = [Op("input", outputs=(Output(9, (9,)),)), *(op("add", i) for i in range(4))]


def test_what_comes_first_has_the_room():
    """Of a chain of four, three of a kernel at most."""
    assert kernels_by_hand(CHAIN, [0, 1, 1, 1, 1], max_kernel_ops=3) == {4: [2, 3, 4]}
    assert kernels_by_hand(CHAIN, [0, 3, 2, 1, 1], max_kernel_ops=3) == {3: [1, 2, 3]}
    assert kernels_by_hand(CHAIN, [0, 3, 1, 2, 1], max_kernel_ops=3) == {2: [1, 2], 4: [3, 4]}
    assert kernels_by_hand(CHAIN, [0, 3, 0, 2, 1], max_kernel_ops=3) == {2: [1, 2], 4: [3, 4]}
    assert kernels_by_hand(CHAIN, [0, 3, 2, 1, 1]) == {4: [1, 2, 3, 4]}


def test_what_an_op_has_with_it_may_be_what_keeps_it_out():
    """A sum may be fused into what adds, and that into a sum; but no sum into a sum."""
    ops = [Op("input", outputs=(Output(9, (9,)),)), op("reduce_sum", 0), op("add", 1)]
    ops.append(op("reduce_sum", 2))
    gpu = RULES["gpu"]
    assert kernels_by_hand(ops, [0, 1, 1, 0], rules=gpu) == {3: [2, 3]}
    assert kernels_by_hand(ops, [0, 1, 2, 0], rules=gpu) == {3: [2, 3]}
    assert kernels_by_hand(ops, [0, 2, 1, 0], rules=gpu) == {2: [1, 2]}


def test_all_readers_must_be_in_one_kernel_by_then():
    """A diamond: op 1 is read by 2 and 3, which 4 reads."""
    ops = [Op("input", outputs=(Output(9, (9,)),)), op("add", 0), op("add", 1), op("mul", 1)]
    ops.append(op("add", 2, 3))
    assert kernels_by_hand(ops, [0, 1, 1, 1, 0]) == {4: [1, 2, 3, 4]}
    assert kernels_by_hand(ops, [0, 1, 2, 2, 0]) == {4: [1, 2, 3, 4]}
    assert kernels_by_hand(ops, [0, 2, 1, 1, 0]) == {4: [2, 3, 4]}
    assert kernels_by_hand(ops, [0, 2, 3, 1, 0]) == {4: [2, 3, 4]}


def test_what_is_dear_is_not_taken_along_to_where_it_would_be_repeated():
    """exp -> neg -> (an operand of 10 elements) + 1000: who comes first decides."""
    ops = [Op("input", outputs=(Output(40, (10,)),)), op("exp", 0), op("neg", 1)]
    ops += [Op("input", outputs=(Output(4000, (1000,)),)), op("add", 2, 3, size=4000, shape=1000)]
    assert kernels_by_hand(ops, [0, 1, 1, 0, 0]) == {4: [2, 4]}
    assert kernels_by_hand(ops, [0, 2, 1, 0, 0]) == {2: [1, 2]}


def test_a_bad_candidate_is_refused():
    problem = prepare_fusion(graphs.from_ops([Op()]), unit_rate_devices(1))
    for function in (fuse_by_level, kernel_ends_by_level):
        with pytest.raises(ValueError, match=r"level has shape \(3,\): expected \(16,\)"):
            function(problem, np.zeros(3, np.int32))


@pytest.mark.slow
def test_maps_over_problems_and_candidates_compose_in_any_order():
    rng = np.random.default_rng(3)
    problems = [
        prepare_fusion(sparse(rng, 31, ("add", "exp")), machine(rng), rows=(40, 90, 900))
        for _ in range(3)
    ]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *problems)
    levels = rng.integers(0, 5, (3, 4, 40))
    expected = np.stack([fused(p, level) for p, level in zip(problems, levels, strict=True)])
    assert 10 < expected.sum() < expected.size - 10
    by_problem = jax.jit(jax.vmap(jax.vmap(fuse_by_level, (None, 0))))(batch, levels)
    np.testing.assert_array_equal(by_problem, expected)
    by_candidate = jax.jit(jax.vmap(jax.vmap(fuse_by_level), (None, 1), 1))(batch, levels)
    np.testing.assert_array_equal(by_candidate, expected)
