"""Objectives of a schedule: a cost as one number to minimise."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.execution import evaluate, makespan, peaks
from gopt.cost.schedule.problem import MAX_TICKS, Problem

OBJECTIVES: tuple[str, ...] = ("peak_memory", "makespan", "capped_makespan")


def check_objective(name: str) -> None:
    """Raises `ValueError` if there is no objective of that name."""
    if name not in OBJECTIVES:
        raise ValueError(f"objective is {name!r}: expected one of {', '.join(OBJECTIVES)}")


def objective(problem: Problem, cost: Cost, name: str) -> jax.Array:
    """Returns a cost as one number to be minimised, float32: exact below 2²⁴, else rounded.

    "peak_memory" is the largest over devices, in units; "makespan" is in ticks;
    "capped_makespan" too, but a schedule that does not fit the capacities costs
    U (1 + max over devices of excess / capacity) with U = 2³⁰ ticks, longer than any schedule.

    Raises:
      ValueError: there is no objective of that name.
    """
    check_objective(name)
    if name == "peak_memory":
        return jnp.max(cost.peak, axis=-1).astype(jnp.float32)
    if name == "makespan":
        return cost.makespan.astype(jnp.float32)
    capacity = jnp.asarray(problem.capacity)
    excess = jnp.maximum(cost.peak - capacity, 0) / jnp.maximum(capacity, 1).astype(jnp.float32)
    worst = jnp.max(excess, axis=-1)
    return jnp.where(worst > 0, MAX_TICKS * (1 + worst), cost.makespan.astype(jnp.float32))


def population_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array]:
    """Returns what a search minimises: a map from keys `[P, ...]` to an `objective`, `[P]`.

    Raises:
      ValueError: there is no objective of that name.
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
    """Returns what a search may minimise first, instead of `population_cost`; None: nothing else.

    For "capped_makespan" it is the makespan times the fourth power of peak / capacity where that
    is more than one. It is there for searches from heuristics: slow schedules that fit can push
    all fast ones that nearly fit out of a population. On 14 validation graphs of
    `experiments.regal` REGAL from heuristics, without the spectral cut, gained 3.5 % by it on
    average, between -14 and +38 %; a power of 16 was no better. The fourth is our choice.
    """
    if name != "capped_makespan":
        return None

    def cost(keys: Keys) -> jax.Array:
        found = jax.vmap(evaluate, (None, 0))(problem, keys)
        capacity = jnp.maximum(jnp.asarray(problem.capacity), 1).astype(jnp.float32)
        excess = jnp.max(found.peak / capacity, -1, initial=1.0)
        return found.makespan * jnp.minimum(excess, 2.0**20) ** 4  # finite

    return cost
