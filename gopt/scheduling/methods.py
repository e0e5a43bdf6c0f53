"""Ways to find a schedule of a problem by name: searches, a trained policy, heuristics.

What needs networks is imported where it is used, so that `import gopt` stays light.
"""

import os
from functools import partial
from typing import Any

import jax

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph
from gopt.heuristics import HEURISTICS
from gopt.heuristics.schedule import baselines
from gopt.heuristics.schedule.evolve import evolve
from gopt.search.parallel import on_host

METHODS: tuple[str, ...] = ("best", "regal", "go", "brkga", *HEURISTICS)
LEARNED = ("regal", "go")


@on_host
def find(
    method: str,
    graph: Graph,
    problem: Problem,
    *,
    objective: str,
    evaluations: int,
    seed: int,
    weights: str | os.PathLike[str] | None = None,
) -> Keys:
    """Return the keys of the schedule that a method finds.

    Args:
      method: one of `METHODS`, see `gopt.schedule`.
      graph: padded graph.
      problem: the graph on a machine, on the host.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: budget of a search.
      seed: random seed of a search.
      weights: file with a policy for one of `LEARNED`; by default the one that ships.

    Raises:
      ValueError: the policy does not exist.
    """
    key = jax.random.key(seed)
    if method in HEURISTICS:
        return HEURISTICS[method](problem)
    if method == "brkga":
        return _brkga(key, problem, objective=objective, evaluations=evaluations)
    if method == "regal":
        return _regal(key, graph, problem, objective, evaluations, weights)
    if method == "go":
        from gopt.systems import go

        params, settings = go.load(weights)
        budget: dict[str, Any] = {"objective": objective, "evaluations": evaluations}
        inputs = go.inputs(graph, problem, settings=settings)
        found = go.search(key, problem, params, inputs=inputs, **budget, settings=settings)
        return found.best
    from gopt.scheduling import best

    return best.search(key, problem, objective=objective, evaluations=evaluations).keys


@partial(jax.jit, static_argnames=("objective", "evaluations"))
def _brkga(key: jax.Array, problem: Problem, *, objective: str, evaluations: int) -> Keys:
    return evolve(key, problem, objective=objective, evaluations=evaluations).keys


def _regal(
    key: jax.Array,
    graph: Graph,
    problem: Problem,
    objective: str,
    evaluations: int,
    weights: str | os.PathLike[str] | None,
) -> Keys:
    from gopt.scheduling import best
    from gopt.systems import regal

    devices = problem.num_devices
    params, settings = regal.load(weights, objective=objective, devices=devices)
    inputs = regal.inputs(graph, problem, settings=settings, objective=objective)
    action = _action(params, inputs, settings=settings)
    return best.search(
        key,
        problem,
        objective=objective,
        evaluations=evaluations,
        given=best.Starts(baselines.heuristic_keys(problem), action),
        settings=settings,
    ).keys


@partial(jax.jit, static_argnames="settings")
def _action(params: Any, inputs: Any, *, settings: Any) -> Any:
    from gopt.systems import regal

    return regal.act(None, params, inputs, settings=settings)
