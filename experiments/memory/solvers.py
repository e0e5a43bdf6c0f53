"""Solvers beside gopt's search, by the model of the search: nothing is compiled or timed."""

import time
from collections.abc import Callable
from typing import Any

from experiments.memory.subject import subject
from gopt.heuristics.solvers.recompute import checkmate, cp_sat, moccasin
from gopt.heuristics.solvers.recompute.common import Solution
from gopt.host.progress import Progress
from gopt.scheduling.recompute.plans import search_plan

SOLVERS: dict[str, Callable[..., Solution]] = {
    "CP-SAT": cp_sat.solve,
    "MOCCASIN": moccasin.solve,
    "Checkmate": checkmate.solve,
    "Checkmate, rounded": checkmate.rounding,
}


def compare(
    name: str, budgets: tuple[float, ...], evaluations: int, seconds: float, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each budget: time by the model as a share of no recomputation.

    Args:
      name: name of the step.
      budgets: shares of the bytes without arguments of the better of XLA's two programs.
      evaluations: budget of gopt's search.
      seconds: wall time of each solver, s; more if gopt's search took more.
      seed: random seed of gopt's search.
    """
    given = subject(name)
    found, rows = given.found, []
    for budget in budgets:
        bytes = int(budget * given.limit)
        began = time.perf_counter()
        plan = search_plan(found, bytes, bytes, evaluations, seed, Progress())
        took = time.perf_counter() - began
        share = float(found.problem.tick) / found.seconds
        row: dict[str, Any] = {"step": name, "budget": budget, "kernels": len(found.kernels.groups)}
        row["gopt"] = plan.seconds / found.seconds if plan.packed <= bytes else None
        row |= {"gopt s": took, "bound": 1.0}
        for solver, solve in SOLVERS.items():
            limit = max(seconds, took)
            solution = solve(found.problem, given.units(bytes), seconds=limit, progress=False)
            row[solver] = solution.ticks * share if solution.runs is not None else None
            if solver == "CP-SAT":  # the bounds of the others hold for one order alone
                row["bound"] = max(row["bound"], solution.bound * share)
        rows.append(row)
    return rows
