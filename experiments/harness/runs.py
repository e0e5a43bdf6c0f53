"""Record searches and their runs in one format; compile and time them."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.store import Store
from gopt.search.parallel import shard_candidates
from gopt.search.result import SearchResult


class Runs(NamedTuple):
    """Results of `S` runs of a method on one case.

    Attributes:
      cost: lowest cost of each run, `[S]`.
      evaluations: evaluations by entry of the history, `[K]`.
      history: lowest cost so far, `[S, K]`.
      best: best candidate of all runs, any pytree.
      seconds: CPU time of a run, without compilation, s; None if it was not timed.
      ready: seconds of this time that pass before the search begins.
    """

    cost: np.ndarray
    evaluations: np.ndarray
    history: np.ndarray
    best: Any = None
    seconds: Any = None
    ready: float = 0.0

    def after(self, evaluations: Any) -> np.ndarray:
        """Return the cost of each run after given numbers of evaluations, `[S, ...]`.

        The first entry counts from the beginning.
        """
        place = np.searchsorted(self.evaluations, evaluations, "right") - 1
        return self.history[:, np.maximum(place, 0)]

    def until(self, cost: float | np.ndarray) -> tuple[np.ndarray, int]:
        """Return the evaluations until each run reaches a cost, `[S]`, and how many never do.

        The cost is one number, or a column `[S, 1]` of numbers, one for each run.

        A run that never reaches it counts as its budget, which is less than it would need.
        """
        reached = self.history <= cost + 1e-12
        ever = reached.any(1)
        last = self.evaluations[-1]
        return np.where(ever, self.evaluations[reached.argmax(1)], last), int((~ever).sum())

    def within(self, seconds: float) -> np.ndarray:
        """Return the cost of each run after some seconds, `[S]`; NaN if it is unknown.

        All evaluations are assumed to take equally long, including those before the search.
        """
        if self.seconds is None or seconds <= self.ready:
            return np.full(len(self.cost), np.nan)
        share = min(1.0, (seconds - self.ready) / (self.seconds - self.ready))
        done = share * self.evaluations[-1]
        return self.after(done) if done >= self.evaluations[0] else np.full(len(self.cost), np.nan)


def kept_runs(
    store: Store, name: str, make: Callable[[], Mapping[str, Runs]], best: Any = None
) -> dict[str, Runs]:
    """Return runs by method from the store; missing runs are made and written first.

    Args:
      store: store of rows.
      name: name of the row.
      make: function that makes the runs.
      best: type of the best candidates, a `NamedTuple` of arrays; None if they are not kept.
    """
    plain = [field for field in Runs._fields if field != "best"]
    inner = best._fields if best else ()

    def arrays() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for method, runs in make().items():
            found |= {f"{method}|{field}": getattr(runs, field) for field in plain}
            found |= {f"{method}|best {field}": getattr(runs.best, field) for field in inner}
        return {key: np.nan if value is None else value for key, value in found.items()}

    read = store.arrays(name, arrays)
    found = {}
    for method in dict.fromkeys(key.split("|")[0] for key in read):
        fields: dict[str, Any] = {field: read[f"{method}|{field}"] for field in plain}
        seconds, ready = (float(fields.pop(field)) for field in ("seconds", "ready"))
        candidate = best(*(read[f"{method}|best {field}"] for field in inner)) if best else None
        timing = None if np.isnan(seconds) else seconds
        found[method] = Runs(**fields, best=candidate, seconds=timing, ready=ready)
    return found


def over_runs(search: Callable[..., SearchResult]) -> Any:
    """Return a search over rows `[S, ...]`, one after another on each device; jitted."""
    return jax.jit(shard_candidates(lambda *args: jax.lax.map(lambda row: search(*row), args)))


def alike(runs: int, tree: Any) -> Any:
    """Return arguments that are equal for all runs, `[S, ...]`."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (runs, *jnp.shape(x))), tree)


def run(ready: Any, keys: jax.Array, *rows: Any, cost: Callable[[Any], Any]) -> Runs:
    """Return the results of a compiled search from random keys.

    Args:
      ready: compiled search over rows.
      keys: random keys, `[S]`.
      *rows: further arguments of the search.
      cost: function that returns the cost of a candidate, to check what the search reports.

    Raises:
      RuntimeError: a best candidate does not have the reported cost.
    """
    found, seconds = timed(lambda: ready(keys, *rows))
    found = jax.device_get(found)
    candidates = [jax.tree.map(lambda x, k=k: x[k], found.best) for k in range(len(keys))]
    for reported, candidate in zip(found.cost, candidates, strict=True):
        check_cost(reported, cost(candidate))
    best, each = candidates[int(np.argmin(found.cost))], seconds / len(keys)
    return Runs(found.cost, found.evaluations[0], found.history, best, each)


class Timed(NamedTuple):
    """A value, and the CPU time of computing it.

    Attributes:
      value: value.
      seconds: CPU time, s.
    """

    value: Any
    seconds: float


def timed(call: Callable[[], Any]) -> Timed:
    """Return the result of a call, and its CPU time."""
    began = time.process_time()
    result = jax.block_until_ready(call())
    return Timed(result, time.process_time() - began)


def check_cost(cost: Any, again: Any) -> None:
    """Raise a `RuntimeError` if a candidate's cost differs from its search's report."""
    if float(again) != float(cost):
        raise RuntimeError(f"a search reports {cost}, its decision costs {again}")
