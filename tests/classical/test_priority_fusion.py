"""Priority fusion against a plain greedy one, and what XLA's instruction fusion keeps in memory."""

import numpy as np
import pytest

from gopt import graph as graphs
from gopt.classical.fusion import instruction_fusion, nothing, priority_fusion
from gopt.classical.instruction_fusion import _kept, _Uses
from gopt.cost.fusion import cloned, cloned_cost
from gopt.fusion_problem import prepare_fusion
from gopt.fusion_rules import RULES, Rules
from gopt.graph import Op, Output
from gopt.hardware import homogeneous
from gopt.kinds import INPUT, kind_index
from tests.cost.test_fusion import KINDS, machine, random_graph
from tests.reference import fusion as kernels
from tests.reference import fusions as reference
from tests.strategies import NASTY

ROWS = (64, 128)


def plain(rng):
    """A problem of element-wise ops, of which nothing is repeated."""
    graph = random_graph(rng, 30)
    kind = np.where(graph.kind == INPUT, INPUT, kind_index("add"))
    problem = prepare_fusion(graph._replace(kind=kind), machine(rng), rows=ROWS)
    return problem._replace(times=np.ones_like(problem.times))


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", range(25))
def test_priority_fusion_is_the_plain_greedy_one(seed, target):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 31)))
    rules = Rules(RULES[target].into, limit=int(rng.choice([1, 2, 4, 64])))
    problem = prepare_fusion(graph, machine(rng), rules=rules, rows=ROWS)
    assert priority_fusion(problem).tolist() == reference.priority_fusion(problem)


@pytest.mark.parametrize("name", [n for n in NASTY if "hub" not in n])
def test_priority_fusion_of_nasty_graphs(name):
    graph = NASTY[name]()
    kind = np.where(graph.kind == INPUT, INPUT, kind_index(KINDS[0]))
    if int(graph.num_ops) > 40:
        pytest.skip("the plain greedy one takes too long")
    problem = prepare_fusion(graph._replace(kind=kind), machine(np.random.default_rng(0)))
    assert priority_fusion(problem).tolist() == reference.priority_fusion(problem)


@pytest.mark.parametrize("seed", range(10))
def test_what_it_fuses_never_costs_more(seed):
    """Where nothing is repeated, the decoded configuration is what was built step by step."""
    problem = plain(np.random.default_rng(seed))
    fuse = priority_fusion(problem)
    assert fuse.any() and not fuse[~problem.configurable].any()
    assert int(cloned_cost(problem, fuse)) <= int(cloned_cost(problem, nothing(problem)))
    # No single decision more saves anything.
    for op in np.flatnonzero(problem.configurable & ~fuse):
        more = fuse | (np.arange(len(fuse)) == op)
        right = kernels.cloned(problem, more)
        if op not in right.members:  # it is in all of its readers
            assert right.cost > int(cloned_cost(problem, fuse))


def test_a_hub_is_fused_into_a_thousand_readers_where_that_saves():
    size = (100,)
    ops = [Op("input", outputs=(Output(400, size),))]
    ops.append(Op("add", ((0, 0),), (Output(400, size),)))
    ops += [Op("mul", ((1, 0),), (Output(400, size, pinned=True),)) for _ in range(1000)]
    problem = prepare_fusion(graphs.from_ops(ops), homogeneous(1))
    fuse = priority_fusion(problem)
    assert np.flatnonzero(fuse).tolist() == [1]
    assert int(np.sum(cloned(problem, fuse).kernels.is_end)) == 1000
    # With as much work as a reader takes, to do it a thousand times saves nothing.
    dear = prepare_fusion(graphs.from_ops(ops), homogeneous(1), compute=[0, 1e3] + [0] * 1000)
    assert not priority_fusion(dear).any()


@pytest.mark.parametrize("seed", range(40))
def test_what_instruction_fusion_keeps_in_memory_is_what_ways_say(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 14)
    rules = Rules(RULES["gpu"].into)
    problem = prepare_fusion(graph, machine(rng), rules=rules, rows=ROWS)
    kept = _kept(problem, _Uses(problem))
    assert set(np.flatnonzero(kept)) == reference.kept_in_memory(problem)
    assert not instruction_fusion(problem)[: len(kept)][kept].any()


def test_some_random_graphs_keep_something():
    counts = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem = prepare_fusion(random_graph(rng, 14), machine(rng), rows=ROWS)
        counts.append(sum(_kept(problem, _Uses(problem))))
    assert sum(count > 0 for count in counts) > 5


def test_a_long_way_is_no_deep_recursion():
    """A sum, read by the first and by the last of a chain that starts at a product."""
    size = (10,)
    ops = [Op("input", outputs=(Output(40, size),)) for _ in range(2)]
    ops.append(Op("add", ((0, 0), (1, 0)), (Output(40, size),)))
    ops.append(Op("dot_general", ((2, 0),), (Output(40, size),)))
    ops += [Op("neg", ((i, 0),), (Output(40, size),)) for i in range(3, 3003)]
    ops.append(Op("mul", ((3003, 0), (2, 0)), (Output(40, size, pinned=True),)))
    problem = prepare_fusion(graphs.from_ops(ops), homogeneous(1))
    assert not instruction_fusion(problem)[2]  # it is read by the product, too
