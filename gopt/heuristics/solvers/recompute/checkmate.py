"""Checkmate: recomputation as an integer program over stages, and rounding of its relaxation.

Source: Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica and Gonzalez, "Checkmate: Breaking
the memory wall with optimal tensor rematerialization" (MLSys 2020). As published, with ops in a
given order, one new op in each stage, and any number of runs of an op. The variables are described
in `gopt.heuristics.solvers.recompute.stages`.

`solve` solves the program. `rounding` solves its linear relaxation within less memory, keeps the S
above one half, and runs the fewest ops that this needs. Our choice: S and FREE for each tensor,
since our ops may make several; CP-SAT and HiGHS instead of Gurobi; several allowances of memory.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize, sparse

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.solvers.recompute.common import (
    ROUNDING,
    Program,
    Solution,
    check_arguments,
    checked_order,
    checked_runs,
    cp_model,
    run_solver,
)
from gopt.heuristics.solvers.recompute.stages import Stages
from gopt.host.progress import Progress, Show

ALLOWANCES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # the paper uses 0.1
_INFEASIBLE = 2  # status of scipy.optimize.milp


def solve(
    problem: Problem,
    budget: int,
    *,
    order: Sequence[int] | None = None,
    seconds: float,
    workers: int = 0,
    seed: int = 0,
    progress: Show = True,
) -> Solution:
    """Return the fastest sequence of runs within a budget of Checkmate's integer program.

    CP-SAT solves the program: needs the extra `solvers`. Its bound holds for the given order.

    Args:
      problem: one problem, as NumPy arrays.
      budget: largest memory, units.
      order: all ops in the order of their first runs; by default the order of the program.
      seconds: time limit of the solver, s.
      workers: number of threads; 0 means one per core.
      seed: random seed of the solver.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Raises:
      ValueError: `budget` or `seconds` is out of range, or `order` is invalid.
      RuntimeError: CP-SAT rejects the model.
    """
    check_arguments(budget, seconds)
    program = Program(problem)
    chosen = checked_order(program, order)
    if (known := program.without_runs(budget)) is not None:
        return known
    rows = Stages(program, chosen, budget)
    with Progress("Checkmate", progress) as work:
        work.phase(f"solver, {seconds:g} s at most")
        model = cp_model.CpModel()
        columns = [
            model.new_int_var(low, high, "") for low, high in zip(rows.low, rows.high, strict=True)
        ]
        for terms, low, high in rows.rows:
            total = sum(factor * columns[column] for column, factor in terms.items())
            model.add_linear_constraint(total, low, high)
        model.minimize(sum(price * columns[column] for column, price in rows.prices.items()))
        solver, status = run_solver(model, seconds, workers, seed)
    bound = program.once
    if np.isfinite(solver.best_objective_bound):
        bound = max(bound, math.ceil(solver.best_objective_bound - ROUNDING))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(None, 0, program.once, status == cp_model.INFEASIBLE)
    runs = rows.runs({key for key, column in rows.run.items() if solver.value(columns[column])})
    best, most = checked_runs(problem, runs, budget)
    return Solution(best, most, min(bound, most), status == cp_model.OPTIMAL)


def rounding(
    problem: Problem,
    budget: int,
    *,
    order: Sequence[int] | None = None,
    allowances: Sequence[float] = ALLOWANCES,
    seconds: float,
    progress: Show = True,
) -> Solution:
    """Return the fastest sequence that two-phase rounding of Checkmate's relaxation finds.

    Rounding may need more memory than the relaxation. So the relaxation has the budget less an
    allowance, and of several allowances the best result that fits is returned. The bound is that
    relaxation with the whole budget, if 0 is among the allowances.

    Args:
      problem: one problem, as NumPy arrays.
      budget: largest memory, units.
      order: all ops in the order of their first runs; by default the order of the program.
      allowances: shares of the budget that the relaxation leaves free.
      seconds: time limit of the solver for all allowances together, s.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Raises:
      ValueError: `budget` or `seconds` is out of range, `order` is invalid, or an allowance is not
        in 0..1.
    """
    check_arguments(budget, seconds)
    for allowance in allowances:
        if not 0 <= allowance < 1:
            raise ValueError(f"allowances has {allowance}: expected 0 at least and less than 1")
    program = Program(problem)
    chosen = checked_order(program, order)
    if (known := program.without_runs(budget)) is not None:
        return known
    rows = Stages(program, chosen, budget)
    best: list[int] | None = None
    most, bound, ends = 0, program.once, time.monotonic() + seconds
    with Progress("Checkmate's rounding", progress) as work:
        for done, allowance in enumerate(sorted(allowances)):
            work.phase("relaxations", len(allowances))
            work.advance(done)
            left = ends - time.monotonic()
            if left <= 0:
                break
            found = _relaxation(rows, budget * (1 - allowance), left)
            if found.status == _INFEASIBLE:
                if allowance == 0:
                    return Solution(None, 0, bound, True)
                break  # so is a larger allowance
            if found.x is None:
                break
            if allowance == 0:
                bound = max(bound, math.ceil(found.fun - ROUNDING * max(1, found.fun)))
            runs = rows.rounded({key for key, at in rows.hold.items() if found.x[at] > 0.5})
            ticks, peak = cost_of_runs(problem, runs)
            if peak <= budget and (best is None or ticks < most):
                best, most = runs, ticks
    if best is None:
        return Solution(None, 0, bound, False)
    return Solution(best, most, min(bound, most), most <= bound)


def _relaxation(rows: Stages, budget: float, seconds: float) -> Any:
    """Return the result of HiGHS for the linear relaxation, within a budget."""
    high = np.array(rows.high, float)
    high[rows.memory] = budget
    prices = np.zeros(len(high))
    prices[list(rows.prices)] = list(rows.prices.values())
    entries = [(k, *term) for k, (terms, *_) in enumerate(rows.rows) for term in terms.items()]
    line, column, factor = np.array(entries).T
    matrix = sparse.csr_array((factor, (line, column)), (len(rows.rows), len(high)))
    low, most = ([row[k] for row in rows.rows] for k in (1, 2))
    return optimize.milp(
        prices,
        bounds=optimize.Bounds(rows.low, high),
        constraints=optimize.LinearConstraint(matrix, low, most),
        options={"time_limit": seconds},
    )
