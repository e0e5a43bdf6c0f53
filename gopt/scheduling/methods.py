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
    """Returns the keys of the schedule that a method finds.

    Args:
      method: one of `METHODS`, see `gopt.schedule`.
      graph: padded.
      problem: the graph on a machine, on the host.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: budget of a search.
      seed: of a search.
      weights: file with a policy for one of `LEARNED`; by default the one that ships.

    Raises:
      ValueError: there is no such policy.
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

        params, settings = go.load_policy(weights)
        budget: dict[str, Any] = {"objective": objective, "evaluations": evaluations}
        return go.schedule(key, graph, problem, params, **budget, settings=settings)
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
    params, settings = regal.load_policy(weights, objective=objective, devices=devices)
    read = regal.features(graph, problem, objective=objective)
    action = _action(params, read, devices=devices, settings=settings)
    return best.search(
        key,
        problem,
        objective=objective,
        evaluations=evaluations,
        given=best.Starts(baselines.heuristic_keys(problem), action),
        settings=settings,
    ).keys


@partial(jax.jit, static_argnames=("devices", "settings"))
def _action(params: Any, graphs: Any, *, devices: int, settings: Any) -> Any:
    from gopt.systems import regal

    return regal.action(params, graphs, devices=devices, settings=settings)
