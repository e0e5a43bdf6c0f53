"""Run the searches on one row of the table."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.go.case import Case
from experiments.go.tables import seconds_of, simulated
from experiments.harness.runs import Found, Runs, alike, check_cost, over_runs, timed_runs, top
from gopt.cost.joint.problem import JointProblem
from gopt.cost.schedule.problem import MAX_TICKS, Problem

Tree = Any


def run(
    search: Callable[[jax.Array, Case, Tree], Found], keys: jax.Array, case: Case, params: Tree
) -> Runs:
    """Return the results of a search from each of the random keys; costs are s of a step.

    The cost is NaN where the memory of a device does not suffice.

    Args:
      search: one of `experiments.go.methods.searches`.
      keys: random keys, `[S]`.
      case: row of the table.
      params: parameters of the policy in each run, `[S, ...]`.

    Raises:
      RuntimeError: a decision that is returned does not have the reported cost.
    """
    rows = alike(len(keys), case), params
    found, seconds = timed_runs(over_runs(search).lower(keys, *rows).compile(), keys, *rows)
    for k, cost in enumerate(found.cost):
        decision = jax.tree.map(lambda x, k=k: x[k], found.best)
        check_cost(cost, simulated(case.problem, decision, case.order))
    cost, history = (_seconds(case.problem, x) for x in (found.cost, found.history))
    return Runs(cost, found.evaluations[0], history, top(found), seconds)


def _seconds(problem: Problem | JointProblem, cost: np.ndarray) -> np.ndarray:
    """Return costs in s, NaN for decisions that do not fit."""
    return np.where(cost < MAX_TICKS, seconds_of(problem, cost), np.nan)
