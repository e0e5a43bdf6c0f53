"""Sequences of runs without later runs that their budget does not need.

Source: our own.
"""

from collections.abc import Callable, Sequence

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute.uses import uses_of

Run = tuple[int, int]  # place in the given sequence, and op

TRIALS = 2000  # runs to try to leave out, at most


def without_superfluous(
    problem: Problem,
    runs: Sequence[int],
    budget: int,
    *,
    show: Callable[[int], bool] = lambda done: True,
) -> list[int]:
    """Return the runs without later runs that the budget does not need.

    Each op keeps its first run. Later runs are left out one by one, the slowest first, if the rest
    fits. Readers of a run that is left out read the run of the same op before it. Runs that then
    have no reader are left out, too.

    Args:
      problem: one problem.
      runs: ops in the order in which they run, some more than once; they fit into the budget.
      budget: memory that the runs may need, units.
      show: called with the number of runs that were tried; returns whether to go on.

    Raises:
      ValueError: the runs need more than the budget.
    """
    _, peak = cost_of_runs(problem, runs)
    if peak > budget:
        raise ValueError(f"runs need {peak} units: expected at most the budget, {budget}")
    reads = uses_of(problem).reads
    makers = [[int(problem.producer[tensor]) for tensor in each] for each in reads]
    left = _that_are_read(list(enumerate(runs)), makers)
    tried = sorted(_later(left), key=lambda run: -int(problem.ticks[run[1]]))[:TRIALS]
    for done, run in enumerate(tried):
        if not show(done):
            break
        if run not in left:
            continue
        fewer = _that_are_read([other for other in left if other != run], makers)
        if cost_of_runs(problem, [op for _, op in fewer])[1] <= budget:
            left = fewer
    return [op for _, op in left]


def _later(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of ops that have run before."""
    first: dict[int, Run] = {}
    return [run for run in runs if first.setdefault(run[1], run) != run]


def _that_are_read(runs: list[Run], makers: Sequence[Sequence[int]]) -> list[Run]:
    """Return the first run of each op, and later runs that one of these reads."""
    latest: dict[int, Run] = {}
    sources: dict[Run, list[Run]] = {}
    for run in runs:
        sources[run] = [latest[maker] for maker in makers[run[1]]]
        latest[run[1]] = run
    stays = set(runs) - set(_later(runs))
    for run in reversed(runs):
        if run in stays:
            stays.update(sources[run])
    return [run for run in runs if run in stays]
