"""Objectives of schedules: a cost as one number to minimise."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float32

from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.execution import evaluate, makespan, peaks
from gopt.cost.schedule.problem import MAX_TICKS, Problem

OBJECTIVES: tuple[str, ...] = ("peak_memory", "makespan", "capped_makespan")


def check_objective(name: str) -> None:
    """Raise `ValueError` if the name is not in `OBJECTIVES`."""
    if name not in OBJECTIVES:
        raise ValueError(f"objective is {name!r}: expected one of {', '.join(OBJECTIVES)}")


def objective(problem: Problem, cost: Cost, name: str) -> Float32[jax.Array, " ..."]:
    """Return a cost as one number to minimise, float32: exact below 2²⁴, else rounded.

    - "peak_memory": largest peak over devices, units.
    - "makespan": makespan, ticks.
    - "capped_makespan": makespan, ticks, if the schedule fits the capacities. Otherwise
      U (1 + max over devices of excess / capacity), where U = 2³⁰ ticks exceeds every makespan.

    Args:
      problem: one problem; only its capacities are read.
      cost: makespan `[...]` and peaks `[..., D]`.
      name: one of `OBJECTIVES`.

    Returns:
      The objective, float32 `[...]`.

    Raises:
      ValueError: `name` is not in `OBJECTIVES`.
    """
    check_objective(name)
    if name == "peak_memory":
        return jnp.max(cost.peak, axis=-1).astype(jnp.float32)
    if name == "makespan":
        return cost.makespan.astype(jnp.float32)
    capacity = jnp.asarray(problem.capacity)
    capacity = jnp.broadcast_to(capacity, cost.peak.shape)
    excess = jnp.maximum(cost.peak - capacity, 0).astype(jnp.float32)
    excess = excess / jnp.maximum(capacity, 1).astype(jnp.float32)
    worst = jnp.max(excess, axis=-1)
    return jnp.where(worst > 0, MAX_TICKS * (1 + worst), cost.makespan.astype(jnp.float32))


def population_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array]:
    """Return the function that a search minimises.

    It maps the keys of a population, `[P, ...]`, to their `objective`, float32 `[P]`.

    Args:
      problem: one problem.
      name: one of `OBJECTIVES`.

    Raises:
      ValueError: `name` is not in `OBJECTIVES`.
    """
    check_objective(name)

    def cost(keys: Keys) -> jax.Array:
        if name == "peak_memory":
            found = Cost(None, jax.vmap(peaks, (None, 0))(problem, keys))
        elif name == "makespan":
            found = Cost(jax.vmap(makespan, (None, 0))(problem, keys), None)
        else:
            found = jax.vmap(evaluate, (None, 0))(problem, keys)
        return objective(problem, found, name)

    return cost


def relaxed_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array] | None:
    """Return a smoother cost that a search may minimise before `population_cost`, or None.

    For "capped_makespan" it is makespan · max(1, peak / capacity)⁴, with the largest ratio over
    devices. Other objectives have None.

    It helps searches that start from heuristics. There, slow schedules that fit can displace all
    fast schedules that nearly fit. On 14 validation graphs of `experiments.regal`, it improved
    REGAL from heuristics, without the spectral cut, by 3.5 % on average (range -14 to +38 %). A
    power of 16 gave no further gain. The fourth power is our choice.

    Args:
      problem: one problem.
      name: one of `OBJECTIVES`.

    Returns:
      Function from keys `[P, ...]` to costs, float32 `[P]`; or None.
    """
    if name != "capped_makespan":
        return None

    def cost(keys: Keys) -> jax.Array:
        found = jax.vmap(evaluate, (None, 0))(problem, keys)
        capacity = jnp.maximum(jnp.asarray(problem.capacity), 1).astype(jnp.float32)
        excess = jnp.max(found.peak.astype(jnp.float32) / capacity[None], -1, initial=1.0)
        # The limit keeps the cost finite.
        return found.makespan.astype(jnp.float32) * jnp.minimum(excess, 2.0**20) ** 4

    return cost
