"""BRKGA over the schedules of a problem."""

from typing import Any

import jax

from gopt.cost.schedule.decoding import keys_shape
from gopt.cost.schedule.objectives import population_cost, relaxed_cost
from gopt.cost.schedule.problem import Problem
from gopt.search import brkga


def evolve(
    key: jax.Array, problem: Problem, *, objective: str, evaluations: int, **settings: Any
) -> brkga.Result:
    """Returns what BRKGA finds on one problem, by the relaxed cost of the objective first.

    Args:
      key: random key.
      problem: one problem.
      objective: what to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: how many candidates to evaluate.
      **settings: the rest, as of `gopt.search.brkga.minimize`.
    """
    return brkga.minimize(
        key,
        population_cost(problem, objective),
        keys_shape(problem),
        evaluations=evaluations,
        relaxed=relaxed_cost(problem, objective),
        **settings,
    )
