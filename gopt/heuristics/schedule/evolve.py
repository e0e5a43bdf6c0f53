"""BRKGA over the schedules of a problem."""

from typing import Any

from jaxtyping import PRNGKeyArray

from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.objectives import population_cost, relaxed_cost
from gopt.cost.schedule.problem import Problem
from gopt.search import brkga
from gopt.search.loop import Loop, LoopResult, MakeLoop, Run, whole
from gopt.search.relaxed import relaxed_first


def evolve(
    key: PRNGKeyArray,
    problem: Problem,
    *arrays: Any,
    objective: str,
    evaluations: int,
    settings: brkga.Settings | None = None,
    initial: Keys | None = None,
    make: MakeLoop | None = None,
    run: Run = whole,
    **options: Any,
) -> LoopResult:
    """Run BRKGA on one problem, starting with the relaxed cost of the objective.

    Args:
      key: random key.
      problem: one problem.
      *arrays: further arrays of `make`.
      objective: objective to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of candidates to evaluate.
      settings: sizes of a generation.
      initial: starting candidates, `[K, ...]`.
      make: function that makes the loop of one cost; by default `loop`.
      run: how loops run, see `gopt.search.loop`.
      **options: further options of `make`.
    """

    def one(
        key: PRNGKeyArray, *, is_relaxed: bool, evaluations: int, initial: Keys | None
    ) -> LoopResult:
        return run(
            make or loop,
            key,
            problem,
            initial,
            *arrays,
            objective=objective,
            is_relaxed=is_relaxed,
            evaluations=evaluations,
            population=settings,
            **options,
        )

    return relaxed_first(
        one,
        key,
        evaluations=evaluations,
        population=(settings or brkga.Settings()).population,
        initial=initial,
        has_relaxed=relaxed_cost(problem, objective) is not None,
    )


def loop(
    key: PRNGKeyArray,
    problem: Problem,
    initial: Keys | None,
    *,
    objective: str,
    is_relaxed: bool,
    evaluations: int,
    population: brkga.Settings | None,
    **proposals: Any,
) -> Loop:
    """Return BRKGA on one cost of a problem as a loop.

    Args:
      key: random key.
      problem: one problem.
      initial: starting candidates, `[K, ...]`.
      objective: objective to minimise.
      is_relaxed: whether the cost is the relaxed one of the objective.
      evaluations: number of candidates to evaluate.
      population: sizes of a generation.
      **proposals: `proposal` and `bias` of `gopt.search.brkga.minimize`.
    """
    cost = (relaxed_cost if is_relaxed else population_cost)(problem, objective)
    assert cost is not None
    return brkga.loop(
        key,
        cost,
        keys_shape(problem),
        evaluations=evaluations,
        settings=population,
        initial=initial,
        **proposals,
    )
