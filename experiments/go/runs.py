"""What the methods reach on one row of the table."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go import keeping, methods
from experiments.go.case import Case
from experiments.go.tables import seconds_of, simulated
from gopt.cost.joint.problem import JointProblem
from gopt.cost.schedule.problem import MAX_TICKS, Problem
from gopt.search.parallel import shard_candidates
from gopt.systems import go

Tree = Any


class Runs(NamedTuple):
    """What a search reached on one row in `S` runs."""

    makespan: np.ndarray  # s, [S]; no number where the memory of a device does not suffice
    history: np.ndarray  # s, [S, K], the shortest so far
    evaluations: np.ndarray  # [K], until then
    seconds: float  # of one core for each run, without compilation


Found = tuple[Runs, go.Decision]  # with the best decision of all runs


def kept(path: Path, about: dict[str, Any], search: Callable[[], Found]) -> Found:
    """Returns what a search reached: what is kept in a file, or what it does now.

    Args:
      path: of the file.
      about: what it is of, see `experiments.go.keeping`.
      search: what is searched if there is no file.

    Raises:
      ValueError: the file is about something else, or cannot be read.
    """

    def make() -> dict[str, Any]:
        found, decision = search()
        return {**found._asdict(), **decision._asdict()}

    arrays = keeping.kept(path, about, make)
    figures: dict[str, Any] = {name: arrays[name] for name in Runs._fields}
    decision = go.Decision(*(arrays[name] for name in go.TASKS))
    return Runs(**figures | {"seconds": float(figures["seconds"])}), decision


def run(
    search: Callable[[jax.Array, Case, Tree], methods.Found],
    keys: jax.Array,
    case: Case,
    params: Tree,
) -> Found:
    """Returns what a search reaches from each of the random keys, and its best decision.

    Args:
      search: one of `experiments.go.methods.searches`.
      keys: random keys, `[S]`.
      case: the row.
      params: of each run, `[S, ...]`.

    Raises:
      RuntimeError: a decision that is returned costs something else than is said.
    """
    cases = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *jnp.shape(x))), case)

    def one(row: tuple[jax.Array, Case, Tree]) -> methods.Found:
        return search(*row)

    every = jax.jit(shard_candidates(lambda *rows: jax.lax.map(one, rows)))
    ready = every.lower(keys, cases, params).compile()
    began = time.perf_counter()
    found = jax.device_get(jax.block_until_ready(ready(keys, cases, params)))
    seconds = (time.perf_counter() - began) / -(-len(keys) // jax.device_count())
    for k, cost in enumerate(found.cost):
        decision = jax.tree.map(lambda x, k=k: x[k], found.decision)
        again = float(simulated(case.problem, decision, case.order))
        if again != float(cost):
            raise RuntimeError(f"a search reports {cost}, its decision costs {again}")
    makespan, history = (_seconds(case.problem, x) for x in (found.cost, found.history))
    top = int(np.argmin(found.cost))
    best = jax.tree.map(lambda x: x[top], found.decision)
    return Runs(makespan, history, found.evaluations[0], seconds), best


def _seconds(problem: Problem | JointProblem, cost: np.ndarray) -> np.ndarray:
    """Returns costs in s, no number for those of decisions that do not fit."""
    return np.where(cost < MAX_TICKS, seconds_of(problem, cost), np.nan)
