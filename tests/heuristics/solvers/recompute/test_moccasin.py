"""MOCCASIN finds the least time in stages of a fixed order."""

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs
from gopt.heuristics.solvers.recompute import moccasin
from tests.heuristics.solvers.recompute.cases import (
    YARDSTICKS,
    held_in_the_way,
    skipping,
    tiny,
    two_chains,
    yardsticks,
)
from tests.reference.recompute import least_ticks
from tests.tiers import slow


def solve(problem, budget, **options):
    options = {"seconds": 60, "workers": 1, "progress": False} | options
    found = moccasin.solve(problem, budget, **options)
    if found.runs is not None:
        ticks, peak = cost_of_runs(problem, found.runs)
        assert found.bound <= found.ticks == ticks and peak <= budget
        assert max(np.bincount(found.runs), default=0) <= options.get("max_runs", 2)
    return found


def assert_least(problem, budget, max_runs):
    found = solve(problem, budget, max_runs=max_runs)
    assert found.is_optimal
    value = None if found.runs is None else found.ticks
    assert value == least_ticks(problem, budget, max_runs, is_staged=True)


@pytest.mark.parametrize("seed", [*range(20), *slow(*range(20, 100))])
def test_no_sequence_of_a_tiny_problem_takes_less_time(seed):
    problem, budgets = tiny(seed)
    for budget in budgets:
        assert_least(problem, budget, 1 + seed % 3)


@pytest.mark.parametrize("seed", [*range(10), *slow(*range(10, 40))])
def test_no_sequence_of_a_problem_with_far_reads_takes_less_time(seed):
    problem, budgets = skipping(seed)
    for budget in budgets:
        assert_least(problem, budget, 1 + seed % 3)


def test_an_op_in_the_way_runs_again():
    problem, budget = held_in_the_way()
    found = solve(problem, budget)
    assert (found.runs, found.ticks, found.is_optimal) == ([0, 1, 2, 3, 0, 4], 10, True)
    assert solve(problem, budget, max_runs=1).runs is None
    assert solve(problem, 6).runs is None


def test_first_runs_are_in_the_given_order():
    assert solve(*two_chains(), order=[2, 0, 3, 1]).runs == [2, 0, 3, 1]


@pytest.mark.parametrize(
    "change, message",
    (
        ({"budget": -1}, "budget is -1: expected a whole number of units"),
        ({"max_runs": 0}, "max_runs is 0: expected a whole number, 1 at least"),
        ({"seconds": 0}, "seconds is 0: expected a positive number"),
        ({"order": [0, 1]}, "order has 2 entries: expected each op once"),
        ({"order": [1, 0, 2, 3, 4]}, "order has op 1 before op 0, which it reads"),
    ),
)
def test_bad_arguments_raise(change, message):
    problem, budget = held_in_the_way()
    with pytest.raises(ValueError, match=message):
        solve(problem, **({"budget": budget} | change))


@pytest.mark.slow
@pytest.mark.skipif(not YARDSTICKS.is_file(), reason="needs a file that does not come with gopt")
def test_yardsticks_that_are_known():
    """All yardsticks are chains, and two runs of an op are enough for most."""
    found = [solve(*case, workers=2).ticks - instance["best"] for instance, *case in yardsticks()]
    assert min(found) == 0 and found.count(0) >= 38
