"""Checkmate finds the least time in stages of a fixed order; rounding comes near."""

import numpy as np
import pytest

from gopt.cost.recompute.cost import cost_of_runs
from gopt.heuristics.solvers.recompute import checkmate
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

QUIET = {"seconds": 60, "progress": False}


def solve(problem, budget, **options):
    options = {"seconds": 60, "workers": 1, "progress": False} | options
    found = checkmate.solve(problem, budget, **options)
    if found.runs is not None:
        ticks, peak = cost_of_runs(problem, found.runs)
        assert found.bound <= found.ticks == ticks and peak <= budget
    return found


def assert_least(problem, budget):
    """The exact solver finds the least time, and the rounding none below it."""
    found, rounded = solve(problem, budget), checkmate.rounding(problem, budget, **QUIET)
    assert found.is_optimal
    least = least_ticks(problem, budget, 4, is_staged=True)
    if found.runs is None:
        assert least is None and rounded.runs is None
        return
    if max(np.bincount(found.runs)) <= 4:
        assert found.ticks == least
    else:
        assert least is None or found.ticks <= least
    assert rounded.bound <= found.ticks
    if rounded.runs is not None:
        ticks, peak = cost_of_runs(problem, rounded.runs)
        assert found.ticks <= rounded.ticks == ticks and peak <= budget
        assert rounded.is_optimal == (rounded.bound == rounded.ticks)


@pytest.mark.parametrize("seed", [*range(20), *slow(*range(20, 100))])
def test_no_sequence_of_a_tiny_problem_takes_less_time(seed):
    problem, budgets = tiny(seed)
    for budget in budgets:
        assert_least(problem, budget)


@pytest.mark.parametrize("seed", [*range(6), *slow(*range(6, 40))])
def test_no_sequence_of_a_problem_with_far_reads_takes_less_time(seed):
    problem, budgets = skipping(seed)
    for budget in budgets:
        assert_least(problem, budget)


def test_an_op_in_the_way_runs_again():
    problem, budget = held_in_the_way()
    found = solve(problem, budget)
    assert (found.runs, found.ticks, found.is_optimal) == ([0, 1, 2, 3, 0, 4], 10, True)
    rounded = checkmate.rounding(problem, budget, **QUIET)
    assert (rounded.runs, rounded.ticks) == (found.runs, 10) and rounded.bound >= 8
    assert solve(problem, 6).runs is None
    assert checkmate.rounding(problem, 6, **QUIET).runs is None


def test_first_runs_are_in_the_given_order():
    problem, budget = two_chains()
    order = [2, 0, 3, 1]
    assert solve(problem, budget, order=order).runs == order
    assert checkmate.rounding(problem, budget, order=order, **QUIET).runs == order


@pytest.mark.parametrize(
    "change, message",
    (
        ({"budget": -1}, "budget is -1: expected a whole number of units"),
        ({"seconds": 0}, "seconds is 0: expected a positive number"),
        ({"order": [0, 1]}, "order has 2 entries: expected each op once"),
        ({"order": [1, 0, 2, 3, 4]}, "order has op 1 before op 0, which it reads"),
    ),
)
def test_bad_arguments_raise(change, message):
    problem, budget = held_in_the_way()
    with pytest.raises(ValueError, match=message):
        solve(problem, **({"budget": budget} | change))
    with pytest.raises(ValueError, match=message):
        checkmate.rounding(problem, **({"budget": budget} | QUIET | change))


def test_a_bad_allowance_raises():
    with pytest.raises(ValueError, match="allowances has 1: expected 0 at least and less than 1"):
        checkmate.rounding(*held_in_the_way(), allowances=[0, 1], **QUIET)


@pytest.mark.slow
@pytest.mark.skipif(not YARDSTICKS.is_file(), reason="needs a file that does not come with gopt")
def test_yardsticks_that_are_known():
    """All yardsticks are chains, so that the order of the program is the best one."""
    found = [solve(*case, workers=2).ticks - instance["best"] for instance, *case in yardsticks()]
    assert min(found) == 0 and max(found) == 0
