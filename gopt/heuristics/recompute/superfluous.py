"""Sequences of runs without second runs that their budget does not need.

Source: our own.
"""

from collections.abc import Callable, Sequence

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import Problem


def without_superfluous(
    problem: Problem,
    runs: Sequence[int],
    budget: int,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Return runs of which none but the first one of an op can be left out within a budget.

    Second runs are left out one by one, the slowest first. Their readers then read the run before.

    Args:
      problem: one problem.
      runs: ops in the order in which they run, some more than once; they fit into the budget.
      budget: memory that the runs may need, units.
      is_over: says whether to end early, with what is left out so far.

    Raises:
      ValueError: the runs need more than the budget.
    """
    _, peak = cost_of_runs(problem, runs)
    if peak > budget:
        raise ValueError(f"runs need {peak} units: expected at most the budget, {budget}")
    left = list(enumerate(runs))
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for run in sorted(_again(left), key=lambda run: -int(problem.ticks[run[1]])):
            fewer = [other for other in left if other is not run]
            if is_over():
                break
            if cost_of_runs(problem, [op for _, op in fewer])[1] <= budget:
                left, is_shorter = fewer, True
    return [op for _, op in left]


def _again(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs of ops that have run before, given as place and op."""
    first: dict[int, int] = {}
    return [run for run in runs if first.setdefault(run[1], run[0]) != run[0]]
