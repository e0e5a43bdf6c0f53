"""All searches on one graph, and what they reach by when."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.local_advantage.graphs import DEFAULT, Case
from experiments.local_advantage.methods import Found, Task, starts
from gopt.cost.fusion import fusion_cost


class Runs(NamedTuple):
    """What a search reached in `S` runs from one kind of start."""

    improvement: np.ndarray  # [S, evaluations], share of the cost of the default, best by then
    seconds: float  # of one run, without compilation


Row = dict[tuple[str, str], Runs]  # of one graph, by start and method


def run(
    case: Case,
    searches: Mapping[str, Callable[[Any, Task], Found]],
    params: Mapping[str, Any],
    *,
    seeds: int,
    key: jax.Array,
) -> Row:
    """Returns what all searches reach on one graph from the default and from random configurations.

    Args:
      case: the graph.
      searches: see `methods.many`.
      params: of the networks that guide, by the names of their searches.
      seeds: runs of each search, each from a random configuration of its own.
      key: random key.
    """
    to_start, to_run = jax.random.split(key)
    problem, graphs = (jax.tree.map(jnp.asarray, x) for x in (case.problem, case.graphs))
    keys = jax.random.split(to_run, seeds)
    default = case.costs[DEFAULT]
    found: Row = {}
    given = starts(to_start, case.found[DEFAULT], problem, seeds)
    for name, search in searches.items():
        tasks = {
            start: Task(problem, graphs, jnp.asarray(configurations), params.get(name))
            for start, configurations in given.items()
        }
        compiled = search.lower(keys, next(iter(tasks.values()))).compile()  # type: ignore[attr-defined]
        for start, task in tasks.items():
            began = time.perf_counter()
            result = jax.device_get(compiled(keys, task))
            seconds = time.perf_counter() - began
            _check(case, result, name)
            improvement = 1 - result.history.astype(np.float64) / default
            found[start, name] = Runs(improvement, seconds / seeds)
    return found


def _check(case: Case, found: Found, name: str) -> None:
    """Checks that configurations cost what the search says."""
    costs = np.asarray(_costs(case.problem, found.fuse))
    if (costs != found.history[:, -1]).any():
        raise RuntimeError(f"{case.name}, {name}: costs {costs}, found {found.history[:, -1]}")


@jax.jit
def _costs(problem: Any, fuse: jax.Array) -> jax.Array:
    return jax.vmap(fusion_cost, (None, 0))(problem, fuse)


def needed(improvement: np.ndarray, target: float) -> np.ndarray:
    """Returns the evaluations until each run is as good as a target, int64 `[S]`; 0 if never.

    Args:
      improvement: by evaluations, `[S, E]`.
      target: an improvement.
    """
    reached = improvement >= target - 1e-12
    return np.where(reached.any(1), reached.argmax(1) + 1, 0)


def target(improvement: np.ndarray) -> float:
    """Returns the mean improvement of runs at their end."""
    return float(improvement[:, -1].mean())
