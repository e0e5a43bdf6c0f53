"""Constraint programming finds and proves the least time of recomputation."""

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics.solvers.recompute import cp_sat, moccasin
from tests.heuristics.solvers.recompute.cases import (
    ONE,
    YARDSTICKS,
    held_in_the_way,
    skipping,
    tiny,
    yardsticks,
)
from tests.reference.recompute import least_ticks
from tests.tiers import slow


def solve(problem, budget, max_runs=3, **options):
    options = {"seconds": 60, "workers": 1, "progress": False} | options
    found = cp_sat.solve(problem, budget, max_runs=max_runs, **options)
    if found.runs is not None:
        ticks, peak = cost_of_runs(problem, found.runs)
        assert found.bound <= found.ticks == ticks and peak <= budget
        assert max(np.bincount(found.runs), default=0) <= max_runs
        assert found.is_optimal == (found.bound == found.ticks)
    return found


def assert_least(problem, budget, max_runs):
    found = solve(problem, budget, max_runs)
    least = least_ticks(problem, budget, max_runs)
    assert found.is_optimal
    assert (None if found.runs is None else found.ticks) == least


@pytest.mark.parametrize("seed", [*range(20), *slow(*range(20, 200))])
def test_no_sequence_of_a_tiny_problem_takes_less_time(seed):
    problem, budgets = tiny(seed)
    for budget in budgets:
        assert_least(problem, budget, 2 + seed % 2)


@pytest.mark.parametrize("seed", [*range(10), *slow(*range(10, 60))])
def test_no_sequence_of_a_problem_with_far_reads_takes_less_time(seed):
    problem, budgets = skipping(seed)
    for budget in budgets:
        assert_least(problem, budget, 1 + seed % 3)


@pytest.mark.parametrize("seed", [*range(10), *slow(*range(10, 60))])
def test_from_a_known_sequence_the_least_time_is_found_too(seed):
    problem, budgets = skipping(seed)
    for budget in budgets:
        known = moccasin.solve(problem, budget, max_runs=3, seconds=60, workers=1, progress=False)
        if known.runs is not None:
            found = solve(problem, budget, initial=known.runs)
            assert found.is_optimal and found.ticks == least_ticks(problem, budget, 3)


@pytest.mark.slow
@pytest.mark.skipif(not YARDSTICKS.is_file(), reason="needs a file that does not come with gopt")
def test_yardsticks_that_are_known():
    for instance, problem, budget in yardsticks():
        found = solve(problem, budget)
        assert found.is_optimal and found.ticks == instance["best"], instance["name"]


def test_an_op_in_the_way_runs_again():
    problem, budget = held_in_the_way()
    found = solve(problem, budget)
    assert (found.runs, found.ticks) == ([0, 1, 2, 3, 0, 4], 10)
    assert solve(problem, budget, max_runs=1).runs is None
    assert solve(problem, 6).runs is None


def test_order_is_free():
    """The program's order needs 2 units, as both chains are open."""
    ops = [
        Op(outputs=(Output(1),)),
        Op(outputs=(Output(1),)),
        Op(inputs=((0, 0),)),
        Op(inputs=((1, 0),)),
    ]
    problem = prepare(from_ops(ops), ONE, max_runs=1)
    assert cost_of_runs(problem, range(4))[1] == 2
    assert solve(problem, 1).runs in ([0, 2, 1, 3], [1, 3, 0, 2])


def test_a_known_sequence_is_improved_or_returned():
    problem, budget = held_in_the_way()
    known = [0, 1, 0, 1, 2, 3, 0, 4]
    assert solve(problem, budget, initial=known).ticks == 10
    found = solve(problem, budget, initial=known, seconds=1e-9)
    assert (found.runs, found.ticks, found.is_optimal) == (known, 14, False)
    best = [0, 1, 2, 3, 0, 4]
    assert solve(problem, budget, initial=best) == (best, 10, 10, True)


@pytest.mark.parametrize(
    "change, message",
    (
        ({"budget": -1}, "budget is -1: expected a whole number of units"),
        ({"budget": 7.5}, "budget is 7.5: expected a whole number of units"),
        ({"max_runs": 0}, "max_runs is 0: expected a whole number, 1 at least"),
        ({"seconds": 0}, "seconds is 0: expected a positive number"),
        ({"initial": [0, 1]}, "initial is invalid: op 2 is not among the runs"),
        ({"initial": [0, 1, 2, 3, 4]}, "initial needs 11 units: the budget is 7"),
        ({"initial": [0, 1, 2, 3, 0, 4], "max_runs": 1}, "initial has 2 runs of op 0"),
    ),
)
def test_bad_arguments_raise(change, message):
    problem, budget = held_in_the_way()
    with pytest.raises(ValueError, match=message):
        solve(problem, **({"budget": budget} | change))
