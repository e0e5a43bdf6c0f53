"""Solvers beside gopt's search, by the model of the search: nothing is compiled or timed.

The solvers do not know results that take the place of an operand. So here no result does.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.memory.subject import subject
from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute.bound import LowerBounds
from gopt.heuristics.solvers.recompute import checkmate, cp_sat, moccasin
from gopt.heuristics.solvers.recompute.common import Solution
from gopt.scheduling.recompute.program import MAX_RUNS
from gopt.scheduling.recompute.search import search

SOLVERS: dict[str, Callable[..., Solution]] = {
    "CP-SAT": cp_sat.solve,
    "MOCCASIN": moccasin.solve,
    "Checkmate": checkmate.solve,
    "Checkmate, rounded": checkmate.rounding,
}


def compare(
    name: str, budgets: tuple[float, ...], evaluations: int, seconds: float, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each budget: times by the model as shares of no recomputation, and seconds.

    Args:
      name: name of the step.
      budgets: shares of the bytes without arguments of the better of XLA's two programs.
      evaluations: budget of gopt's search.
      seconds: time of each solver, s, its model not counted; more if gopt's search took more.
      seed: random seed of gopt's search.
    """
    given = subject(name)
    problem: Problem = given.found.problem._replace(
        in_place=np.zeros_like(given.found.problem.in_place)
    )
    once = int(problem.ticks.sum(dtype=np.int64))
    rows = []
    for budget in budgets:
        units = given.found.units(int(budget * given.limit))
        row: dict[str, Any] = {"step": name, "budget": budget, "ops": int(problem.num_ops)}
        began = time.perf_counter()
        runs = _found(problem, units, evaluations, seed)
        took = row["gopt s"] = time.perf_counter() - began
        ticks, peak = cost_of_runs(problem, runs)
        row["gopt"] = ticks / once if peak <= units else None
        for solver, solve in SOLVERS.items():
            began = time.perf_counter()
            solution = solve(problem, units, seconds=max(seconds, took), progress=False)
            row[f"{solver} s"] = time.perf_counter() - began
            row[solver] = solution.ticks / once if solution.runs is not None else None
            if solver == "CP-SAT":  # the bounds of the others hold for one order alone
                bound = max(solution.bound, LowerBounds(problem).ticks(units) or 0)
                row["bound"] = max(bound / once, 1.0)
        rows.append(row)
    return rows


def _found(problem: Problem, units: int, evaluations: int, seed: int) -> list[int]:
    """Return gopt's runs: of two runs of an op, or of more if these do not fit."""
    runs: list[int] = []
    for max_runs in range(2, MAX_RUNS + 1):
        result = search(
            jax.random.key(seed), problem, budget=units, evaluations=evaluations, max_runs=max_runs
        )
        runs = runs_of(problem, jax.device_get(result.best))
        if cost_of_runs(problem, runs)[1] <= units:
            break
    return runs
