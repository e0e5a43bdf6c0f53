"""Search by measured times: one candidate after another, on the host."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gopt.search import guided


class Measured(NamedTuple):
    """What a search by measured times found."""

    fuse: np.ndarray  # bool [N], the best
    seconds: np.ndarray  # float64 [evaluations], of the best after each


def search(
    key: jax.Array,
    cost: Callable[[np.ndarray], float],
    start: np.ndarray,
    guide: guided.Guide,
    *,
    evaluations: int,
    settings: guided.Settings | None = None,
) -> Measured:
    """Returns what `gopt.search.guided.minimize` does, for a cost that JAX cannot trace.

    Args:
      key: random key.
      cost: maps a configuration, bool `[N]`, to seconds; infinite where it failed.
      start: bool `[N]`.
      guide: see `gopt.search.guided`.
      evaluations: how many candidates to measure, the start among them.
      settings: how the guide is used.

    Raises:
      ValueError: `evaluations` is less than one.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    settings = settings or guided.Settings()
    ask = jax.jit(partial(guided.ask, settings=settings))
    scores_of, tell = jax.jit(guide), jax.jit(guided.tell)
    decisions = jnp.asarray(start, jnp.int32)
    seconds = [cost(np.asarray(start, bool))]
    # Costs that are compared are shares of the first, which a float32 tells apart.
    first = seconds[0] if np.isfinite(seconds[0]) and seconds[0] > 0 else 1.0
    state = guided.init(decisions, jnp.float32(seconds[0] / first))
    for index in range(evaluations - 1):
        if index % settings.refresh == 0:
            scores = scores_of(state.decisions)
            order = jnp.argsort(-scores, stable=True).astype(jnp.int32)
            rest = jnp.int32(settings.rest * jnp.sum(scores > -jnp.inf))
        node = ask(jax.random.fold_in(key, index), state, scores, order)
        candidate = guided.flip(key, state.decisions, node)
        found = cost(np.asarray(candidate) > 0)
        state = tell(state, node, candidate, jnp.float32(found / first), rest=rest)
        seconds.append(min(seconds[-1], found))
    return Measured(np.asarray(state.decisions) > 0, np.array(seconds))
