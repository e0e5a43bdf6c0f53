"""The searches of `gopt.fuse`, by measured times: one candidate after another, on the host."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from gopt.cost.fusion.problem import FusionProblem
from gopt.graph.graph import Graph
from gopt.search import guided

FusionCost = Callable[[np.ndarray], float]  # a configuration, bool [N], to seconds
SEARCHES = ("local_advantage", "random")
LEARNED = ("local_advantage",)


class FusionSearchResult(NamedTuple):
    """Result of a search by measured times.

    Attributes:
      fuse: bool `[N]`, best configuration.
      seconds: float64 `[evaluations]`, time of the best configuration after each evaluation, in s.
    """

    fuse: np.ndarray
    seconds: np.ndarray


class FusionSearch(Protocol):
    """A callable for `search=` of `gopt.fuse`, see `gopt.search_argument`."""

    def __call__(
        self,
        key: jax.Array,
        graph: Graph,
        problem: FusionProblem,
        /,
        *,
        cost: FusionCost,
        start: np.ndarray,
        evaluations: int,
    ) -> FusionSearchResult:
        """Return the best configuration that was found."""


def local_advantage_search(
    key: jax.Array,
    graph: Graph,
    problem: FusionProblem,
    /,
    *,
    cost: FusionCost,
    start: Bool[np.ndarray, " N"],
    evaluations: int,
    policy: tuple[Any, Any],
) -> FusionSearchResult:
    """Search as a network of `gopt.systems.local_advantage` advises; a `FusionSearch`.

    Args:
      key: random key.
      graph: graph of the program.
      problem: the graph with rates.
      cost: seconds of a configuration.
      start: configuration to begin with, bool `[N]`.
      evaluations: number of configurations to measure.
      policy: parameters and settings of the network.
    """
    from gopt.systems import local_advantage  # with networks: `import gopt` stays light

    params, settings = policy
    graphs = local_advantage.inputs(graph, problem, settings=settings)
    guide = local_advantage.guide(params, graphs, problem.configurable, settings=settings)
    moves = (guided.flip, *local_advantage.shifts(graphs, problem.configurable))
    return search(key, cost, start, guide, evaluations=evaluations, moves=moves)


def random_search(
    key: jax.Array,
    graph: Graph,
    problem: FusionProblem,
    /,
    *,
    cost: FusionCost,
    start: np.ndarray,
    evaluations: int,
) -> FusionSearchResult:
    """Flip decisions drawn uniformly, and keep each flip that is not slower; a `FusionSearch`."""
    del graph
    may_change = jnp.asarray(problem.configurable)
    return search(
        key,
        cost,
        start,
        lambda decisions: jnp.where(may_change, 0.0, -jnp.inf),
        evaluations=evaluations,
        settings=guided.Settings(top_share=1.0, rest_share=0.0),
    )


def search(
    key: PRNGKeyArray,
    cost: FusionCost,
    start: Bool[np.ndarray, " N"],
    guide: guided.Guide,
    *,
    evaluations: int,
    settings: guided.Settings | None = None,
    moves: Sequence[guided.Move] = (guided.flip,),
) -> FusionSearchResult:
    """Minimise as `gopt.search.guided.minimize`, for a cost that JAX cannot trace.

    Args:
      key: random key.
      cost: maps a configuration, bool `[N]`, to seconds; infinite where it failed.
      start: bool `[N]`, configuration to begin with.
      guide: scores of single changes, see `gopt.search.guided`.
      evaluations: number of candidates to measure, the start included.
      settings: settings of the guided search.
      moves: see `gopt.search.guided.minimize`.

    Raises:
      ValueError: `evaluations` is less than one, or `moves` is empty.
    """
    guided.check_budget(evaluations, moves)
    settings = settings or guided.Settings()
    ask = jax.jit(partial(guided.ask, settings=settings))
    change = jax.jit(partial(guided.change, moves=tuple(moves)))
    tell = jax.jit(partial(guided.tell, settings=settings))
    advice = jax.jit(lambda decisions: guided.rank(guide(decisions)))
    decisions = jnp.asarray(start, jnp.int32)
    seconds = [cost(np.asarray(start, bool))]
    # Costs that are compared are shares of the first, which a float32 tells apart.
    first = seconds[0] if np.isfinite(seconds[0]) and seconds[0] > 0 else 1.0
    state = guided.init(decisions, jnp.float32(seconds[0] / first), moves=len(moves))
    for index, step in enumerate(jax.random.split(key, evaluations - 1)):
        if index % settings.guide_interval == 0:
            said = advice(state.decisions)
        to_ask, to_change = jax.random.split(step)
        taken = ask(to_ask, state, said)
        candidate = change(to_change, state.decisions, taken)
        found = cost(np.asarray(candidate) > 0)
        state = tell(state, taken, candidate, jnp.float32(found / first), said.choices)
        seconds.append(min(seconds[-1], found))
    return FusionSearchResult(np.asarray(state.decisions) > 0, np.array(seconds))
