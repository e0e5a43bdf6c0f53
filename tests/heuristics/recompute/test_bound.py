"""Lower bounds on small programs; `test_rules` has random ones."""

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics.recompute.bound import LowerBounds
from gopt.heuristics.solvers.recompute import cp_sat
from tests.cost.recompute.test_cost import random_choices, random_problem
from tests.heuristics.recompute.graphs import ONE, chain_problem, random_training
from tests.strategies import SMALL, random_graph
from tests.tiers import slow


def problem_of(ops, seconds, **options):
    return prepare(padding.pad(from_ops(ops)), ONE, max_runs=2, seconds=seconds, **options)


def joined(sizes, seconds, **options):
    """Ops that read one input; then one that reads them all, behind one without a result."""
    count = len(sizes)
    ops = [Op("input", outputs=(Output(1.0, pinned=True),))]
    ops += [Op(inputs=((0, 0),), outputs=(Output(size),)) for size in sizes]
    ops += [Op(inputs=((k, 0),), outputs=(Output(0.0),)) for k in range(1, count + 1)]
    waits = tuple((count + k, 0) for k in range(1, count + 1))
    ops += [Op(inputs=waits, outputs=(Output(0.0),))]  # behind all: nothing need be held
    barrier = len(ops) - 1
    ops += [Op(inputs=((barrier, 0), (k, 0)), outputs=(Output(0.0),)) for k in range(1, count + 1)]
    times = [0.0, *seconds, *np.zeros(2 * count + 1)]
    return problem_of(ops, np.array(times), **options)


def peak_bound(problem):
    return LowerBounds(problem).peak


def time_bound(problem, budget):
    return LowerBounds(problem).ticks(budget)


def ticks(problem, seconds):
    return round(seconds / float(problem.tick))


def test_what_does_not_fit_runs_again_and_the_dearest_is_held():
    problem = joined([4.0, 4.0, 4.0], [1.0, 2.0, 3.0])
    bytes = [round(size / float(problem.unit)) for size in (13, 9, 5)]
    assert time_bound(problem, bytes[0]) == ticks(problem, 6)
    assert time_bound(problem, bytes[1]) == pytest.approx(ticks(problem, 7), abs=1)
    assert time_bound(problem, bytes[2]) == pytest.approx(ticks(problem, 9), abs=1)


def test_what_may_not_run_again_is_held():
    repeats = [True, False, True, *[True] * 5]
    problem = joined([4.0, 3.0], [1.0, 2.0], may_repeat=repeats)
    need = round(5 / float(problem.unit))  # the input and the first
    assert peak_bound(problem) == need
    assert time_bound(problem, need - 1) is None
    assert time_bound(problem, need) == pytest.approx(ticks(problem, 5), abs=1)


def test_a_chain_and_its_budget():
    problem = chain_problem(9)
    one = ticks(problem, 1)
    assert peak_bound(problem) == 3
    assert time_bound(problem, 10) == 18 * one
    # Seven values are in memory while the turn runs; nine are wanted.
    assert 18 * one < time_bound(problem, 8) <= 20 * one
    assert time_bound(problem, 2) is None


def test_no_optimum_is_below_the_bound():
    above = 0
    for seed in range(8):
        problem = random_training(np.random.default_rng(seed), 5)
        _, peak = cost_of_runs(problem, runs_of(problem, None))
        budget = (peak_bound(problem) + peak) // 2
        found = cp_sat.solve(problem, budget, seconds=10, progress=False)
        assert found.is_optimal
        if found.runs is not None:
            assert time_bound(problem, budget) <= found.ticks
            above += time_bound(problem, budget) > problem.ticks.sum()
    assert above >= 2


@pytest.mark.parametrize("seed", [*range(60), *slow(*range(60, 1000))])
def test_no_candidate_is_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, SMALL.ops - 1)), rng.choice([0.1, 0.3]))
    problem = random_problem(rng, graph, SMALL, max_runs=3)
    bounds = LowerBounds(problem)
    for _ in range(5):
        runs = runs_of(problem, random_choices(rng, problem, max_runs=3))
        ticks, peak = cost_of_runs(problem, runs)
        assert bounds.peak <= peak
        assert bounds.ticks(peak) <= ticks


@pytest.mark.parametrize("ops", [1, 2])
def test_nothing_to_bound(ops):
    problem = problem_of([Op("input", outputs=(Output(3.0),))] * ops, np.zeros(ops))
    assert peak_bound(problem) == 0
    assert time_bound(problem, 0) == 0
