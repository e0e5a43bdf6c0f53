"""BRKGA over the schedules of a problem."""

from typing import Any

from jaxtyping import PRNGKeyArray

from gopt.cost.schedule.decoding import keys_shape
from gopt.cost.schedule.objectives import population_cost, relaxed_cost
from gopt.cost.schedule.problem import Problem
from gopt.search import brkga


def evolve(
    key: PRNGKeyArray, problem: Problem, *, objective: str, evaluations: int, **settings: Any
) -> brkga.Result:
    """Run BRKGA on one problem, starting with the relaxed cost of the objective.

    Args:
      key: random key.
      problem: one problem.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of candidates to evaluate.
      **settings: further arguments of `gopt.search.brkga.minimize`.
    """
    return brkga.minimize(
        key,
        population_cost(problem, objective),
        keys_shape(problem),
        evaluations=evaluations,
        relaxed=relaxed_cost(problem, objective),
        **settings,
    )
