"""Recomputation by constraint programming, with free order: OR-tools' CP-SAT.

The model of `gopt.heuristics.solvers.recompute.steps` has as many steps as runs, so it stays small
where few ops run again. `solve` therefore solves a row of models with more and more steps. It ends
when more runs would take too much time, however cheap they are.

Source: our own. Needs the extra `solvers`.
"""

import math
import time
from collections.abc import Sequence

import numpy as np

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.solvers.recompute.common import (
    ROUNDING,
    Program,
    Solution,
    check_arguments,
    checked_runs,
    cp_model,
    run_solver,
)
from gopt.heuristics.solvers.recompute.steps import Steps
from gopt.host.progress import Progress, Show

# Shares of the time left, for a model that is not the last one.
_SHARE = 0.1
_IMPROVING = 0.5  # if it contains a known sequence


def solve(
    problem: Problem,
    budget: int,
    *,
    max_runs: int = 3,
    seconds: float,
    workers: int = 0,
    seed: int = 0,
    initial: Sequence[int] | None = None,
    progress: Show = True,
) -> Solution:
    """Return the fastest sequence of runs within a budget that CP-SAT finds, and a lower bound.

    Order and runs are free: the model contains every sequence of `gopt.cost.recompute.cost`,
    but no result takes the place of an operand (`Problem.in_place`).

    Args:
      problem: one problem, as NumPy arrays.
      budget: largest memory, units.
      max_runs: largest number of runs of an op.
      seconds: time limit of all solver calls together, s.
      workers: number of threads; 0 means one per core. With one thread and enough time to finish,
        equal arguments give equal sequences.
      seed: random seed of the solver.
      initial: known sequence within the budget; the result takes no more time. The solver starts
        from it, which helps with more than about 30 ops. MOCCASIN's is good enough.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Raises:
      ValueError: `budget`, `max_runs` or `seconds` is out of range; or `initial` is invalid, does
        not fit into the budget or has too many runs of an op.
      RuntimeError: CP-SAT rejects the model.
    """
    check_arguments(budget, seconds, max_runs)
    program = Program(problem)
    best, most = _start(problem, program, budget, max_runs, initial)
    if (known := program.without_runs(budget)) is not None:
        return known
    prices = sorted(program.ticks[op] for op in program.ops if program.repeats[op])
    prices = [price for price in prices for _ in range(max_runs - 1)]
    ends = time.monotonic() + seconds
    # Sequences with at most `proven` runs again are not faster than `most`.
    proven, again, bound = -1, 0, program.once
    with Progress("CP-SAT", progress) as work:
        while True:
            cap = _affordable(prices, most - program.once - 1)
            left = ends - time.monotonic()
            if cap <= proven or left <= 0:
                break
            number = 0 if best is None else len(best) - len(program.inputs) - len(program.ops)
            again = min(max(again, number if number > proven else 0), cap)
            work.phase(f"{again} runs again at most")
            steps, least = (len(program.ops) + count for count in (again, proven + 1))
            if best is not None and proven < number <= again:
                model = Steps(program, budget, max_runs, steps, least, most + 1)
                model.hint(best)
                limit = left * _IMPROVING
            else:
                model = Steps(program, budget, max_runs, steps, least, most)
                limit = left * _SHARE
            limit = left if again == cap else limit
            solver, status = run_solver(model.model, limit, workers, seed)
            if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                runs = [*program.starting_runs(), *model.runs(solver)]
                best, most = checked_runs(problem, runs, budget)
            if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
                proven = again
                bound = program.once + sum(prices[: proven + 1])
            elif again == cap:
                if np.isfinite(solver.best_objective_bound):
                    bound = max(bound, math.ceil(solver.best_objective_bound - ROUNDING))
                break
            again += max(1, again // 2)
    if best is None:
        return Solution(None, 0, bound, proven >= len(prices))
    bound = most if cap <= proven else min(bound, most)
    return Solution(best, most, bound, bound == most)


def _start(
    problem: Problem,
    program: Program,
    budget: int,
    max_runs: int,
    initial: Sequence[int] | None,
) -> tuple[list[int] | None, int]:
    """Return the first sequence and its ticks; without one, more ticks than any sequence takes."""
    if initial is None:
        return None, program.once + (max_runs - 1) * sum(program.ticks) + 1
    runs = [int(op) for op in initial]
    try:
        ticks, peak = cost_of_runs(problem, runs)
    except ValueError as error:
        raise ValueError(f"initial is invalid: {error}") from error
    if peak > budget:
        raise ValueError(f"initial needs {peak} units: the budget is {budget}")
    for op in program.ops:
        if runs.count(op) > max_runs:
            raise ValueError(
                f"initial has {runs.count(op)} runs of op {op}: max_runs is {max_runs}"
            )
    return runs, ticks


def _affordable(prices: Sequence[int], ticks: int) -> int:
    """Return the largest number of runs again within some ticks, -1 for none; prices rise."""
    if ticks < 0:
        return -1
    return int(np.searchsorted(np.cumsum(np.asarray(prices, np.int64)), ticks, side="right"))
