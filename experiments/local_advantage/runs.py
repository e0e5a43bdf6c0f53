"""Run all searches on one graph, and measure their progress."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.runs import Runs, timed_runs
from experiments.local_advantage.graphs import DEFAULT, Case
from experiments.local_advantage.methods import Task, starts
from gopt.cost.fusion.cost import fusion_cost

Row = dict[str, Runs]  # costs as shares of the default's, by `label`


def label(start: str, method: str) -> str:
    """Return the name of the runs of a method from a kind of start."""
    return f"{start}, {method}"


def run(
    case: Case,
    searches: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    seeds: int,
    key: jax.Array,
) -> Row:
    """Return the results of all searches on one graph, from the default and from random starts.

    Args:
      case: graph.
      searches: searches, see `methods.many`.
      params: parameters of guiding networks, by the names of their searches.
      seeds: runs of each search, each from its own random configuration.
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
        ready = search.lower(keys, next(iter(tasks.values()))).compile()
        for start, task in tasks.items():
            reached, seconds = timed_runs(ready, keys, task)
            costs = np.asarray(_costs(case.problem, reached.best))
            if (costs != reached.cost).any():
                raise RuntimeError(f"{case.name}, {name}: costs {costs}, found {reached.cost}")
            cost, history = (x / np.float64(default) for x in (reached.cost, reached.history))
            found[label(start, name)] = Runs(cost, reached.evaluations[0], history, seconds=seconds)
    return found


def improvement(runs: Runs) -> np.ndarray:
    """Return the improvement of each run over the default after each evaluation, `[S, E]`."""
    return 1 - runs.history


@jax.jit
def _costs(problem: Any, fuse: jax.Array) -> jax.Array:
    return jax.vmap(fusion_cost, (None, 0))(problem, fuse)


def target(improvement: np.ndarray) -> float:
    """Return the mean final improvement of runs."""
    return float(improvement[:, -1].mean())


def until(improvement: np.ndarray, target: float) -> tuple[np.ndarray, int]:
    """Return the evaluations until each run reaches a target, `[S]`, and the number that never do.

    A run that never reaches it counts as its budget, which is less than it would need.

    Args:
      improvement: improvement by evaluations, `[S, E]`.
      target: improvement to reach.
    """
    reached = improvement >= target - 1e-12
    ever = reached.any(1)
    return np.where(ever, reached.argmax(1) + 1, improvement.shape[1]), int((~ever).sum())


def written(counts: np.ndarray, never: int) -> str:
    """Return mean evaluations as a table cell, with the number of runs that never got there."""
    return f"≥ {counts.mean():.0f} ({never})" if never else f"{counts.mean():.0f}"


Pair = tuple[np.ndarray, np.ndarray]  # evaluations that a search and a base need, `[S]` each


def share(pairs: Sequence[Pair]) -> float:
    """Return the geometric mean over graphs of the evaluations needed, as a share of the base's.

    Runs that never get there count as their budget on both sides, so this does not bound the ratio.
    """
    return float(np.exp(np.mean([np.log(found.mean() / base.mean()) for found, base in pairs])))


def share_interval(pairs: Sequence[Pair], *, resamples: int = 2000) -> tuple[float, float]:
    """Return the 95 % interval of `share` by a bootstrap over runs, at least two of each graph.

    Run k starts alike on both sides, and both sides are drawn together. The interval is conditional
    on these graphs, this network and this target. With few runs it is too narrow.
    """
    count = len(pairs[0][0])
    rng = np.random.default_rng(0)

    def again() -> list[Pair]:
        rows = [rng.integers(count, size=count) for _ in pairs]
        return [(found[k], base[k]) for (found, base), k in zip(pairs, rows, strict=True)]

    low, high = np.percentile([share(again()) for _ in range(resamples)], [2.5, 97.5])
    return float(low), float(high)
