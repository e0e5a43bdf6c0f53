"""What the methods reach on one row of the table."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go.methods import OBJECTIVE, Case, Found
from gopt.parallel import spread
from gopt.problem import Problem, to_seconds
from gopt.systems import go

Tree = Any


class Runs(NamedTuple):
    """What a search reached on one row in `S` runs."""

    makespan: np.ndarray  # s, [S]
    history: np.ndarray  # s, [S, K], the shortest so far
    evaluations: np.ndarray  # [K], until then
    seconds: float  # of one core for each run, without compilation


def run(
    search: Callable[[jax.Array, Case, Tree], Found],
    keys: jax.Array,
    case: Case,
    params: Tree,
) -> tuple[Runs, np.ndarray]:
    """Returns what a search reaches from each of the random keys `[S]`, and its best placement.

    Raises:
      RuntimeError: the placement that is returned costs something else than is said.
    """
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *jnp.shape(x))), (case, params))

    def one(row: tuple[jax.Array, Case, Tree]) -> Found:
        return search(*row)

    every = jax.jit(spread(lambda *rows: jax.lax.map(one, rows)))
    ready = every.lower(keys, *rows).compile()
    began = time.perf_counter()
    found = jax.device_get(jax.block_until_ready(ready(keys, *rows)))
    cores = min(len(keys), jax.device_count())
    seconds = (time.perf_counter() - began) * cores / len(keys)
    top = int(np.argmin(found.cost))
    again = _cost(case.problem, jnp.asarray(found.device[top]))
    if float(again) != float(found.cost[top]):
        raise RuntimeError(f"a search reports {found.cost[top]}, its placement costs {again}")
    makespan, history = (to_seconds(case.problem, x) for x in (found.cost, found.history))
    return Runs(makespan, history, found.evaluations[0], seconds), found.device[top]


@jax.jit
def _cost(problem: Problem, device: jax.Array) -> jax.Array:
    return go.placement_cost(problem, OBJECTIVE)(device[None])[0]
