"""The searches of `gopt.schedule`: by name, from heuristics to trained policies, or a callable.

Networks are imported where they are used, so that `import gopt` stays light.
"""

from functools import partial
from typing import Any, Protocol

import jax

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph
from gopt.heuristics import HEURISTICS
from gopt.heuristics.schedule import baselines
from gopt.heuristics.schedule.evolve import evolve
from gopt.search.parallel import on_host
from gopt.search_argument import Weights, load_policy


class ScheduleSearch(Protocol):
    """A callable for `search=` of `gopt.schedule`, see `gopt.search_argument`."""

    def __call__(
        self, key: jax.Array, graph: Graph, problem: Problem, /, *, objective: str, evaluations: int
    ) -> Keys:
        """Return the keys of a schedule."""


SEARCHES: tuple[str, ...] = ("best", "regal", "go", "brkga", *HEURISTICS)
LEARNED = ("regal", "go")


@on_host
def find(
    search: str | ScheduleSearch,
    graph: Graph,
    problem: Problem,
    *,
    objective: str,
    evaluations: int,
    seed: int,
    weights: Weights | None = None,
) -> Keys:
    """Return the keys of the schedule that a search finds.

    Args:
      search: one of `SEARCHES`, or a callable.
      graph: padded graph.
      problem: the graph on a machine, on the host.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      evaluations: number of candidates that the search may cost.
      seed: random seed of the search.
      weights: policy for one of `LEARNED`, see `gopt.schedule`.

    Raises:
      ValueError: the policy does not exist.
    """
    if isinstance(search, str) and search in HEURISTICS:
        return HEURISTICS[search](problem)
    named: dict[str, ScheduleSearch] = {
        "best": _best,
        "brkga": _brkga,
        "regal": partial(_regal, weights=weights),
        "go": partial(_go, weights=weights),
    }
    run = named[search] if isinstance(search, str) else search
    key = jax.random.key(seed)
    return run(key, graph, problem, objective=objective, evaluations=evaluations)


def _best(
    key: jax.Array, graph: Graph, problem: Problem, /, *, objective: str, evaluations: int
) -> Keys:
    from gopt.scheduling import best

    del graph
    return best.search(key, problem, objective=objective, evaluations=evaluations).best


def _brkga(
    key: jax.Array, graph: Graph, problem: Problem, /, *, objective: str, evaluations: int
) -> Keys:
    del graph
    return _evolve(key, problem, objective=objective, evaluations=evaluations)


@partial(jax.jit, static_argnames=("objective", "evaluations"))
def _evolve(key: jax.Array, problem: Problem, *, objective: str, evaluations: int) -> Keys:
    return evolve(key, problem, objective=objective, evaluations=evaluations).best


def _go(
    key: jax.Array,
    graph: Graph,
    problem: Problem,
    /,
    *,
    objective: str,
    evaluations: int,
    weights: Weights | None,
) -> Keys:
    from gopt.systems import go

    params, settings = load_policy(weights, go.load)
    return go.search(
        key,
        problem,
        params,
        inputs=go.inputs(graph, problem, settings=settings),
        objective=objective,
        evaluations=evaluations,
        settings=settings,
    ).best


def _regal(
    key: jax.Array,
    graph: Graph,
    problem: Problem,
    /,
    *,
    objective: str,
    evaluations: int,
    weights: Weights | None,
) -> Keys:
    from gopt.scheduling import best
    from gopt.systems import regal

    devices = problem.num_devices
    if weights is None and devices != 2:
        raise ValueError(
            f"search is 'regal': the policies that ship are for 2 devices, the problem has "
            f"{devices}; expected weights=, hardware= with 2 devices, or search='best'"
        )
    params, settings = load_policy(weights, regal.load, objective=objective, devices=devices)
    inputs = regal.inputs(graph, problem, settings=settings, objective=objective)
    action = _action(params, inputs, settings=settings)
    return best.search(
        key,
        problem,
        objective=objective,
        evaluations=evaluations,
        initial=best.Starts(baselines.heuristic_keys(problem), action),
        settings=settings,
    ).best


@partial(jax.jit, static_argnames="settings")
def _action(params: Any, inputs: Any, *, settings: Any) -> Any:
    from gopt.systems import regal

    return regal.act(None, params, inputs, settings=settings)
