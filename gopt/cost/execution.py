"""What a schedule costs: candidates are decoded, ordered, timed, and their memory summed.

Items are issued one after another, the smallest rank among the ready ones first. Because the
issue order never depends on time, a cost is three passes over the items: the order, the clock
(forwards) and the memory (backwards), see `gopt.cost.passes`. Their loops have data-dependent
bounds: batched, they would select whole states at every step, so `jax.vmap` of the public
functions maps over candidates instead.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost import passes, ready_queue
from gopt.problem import MAX_TICKS, Problem


class Keys(NamedTuple):
    """A candidate: random keys in [0, 1], or their pytree for a population `[P, ...]`."""

    device: Any  # float32 [N, D], an op runs where its key is largest
    priority: Any  # float32 [N], smaller is issued earlier
    transfer: Any  # float32 [T, D], priority of the transfer of a tensor to a device


class Decision(NamedTuple):
    """A decoded candidate. Items are numbered as in `Problem`."""

    device: Any  # int32 [N]
    rank: Any  # int32 [N + T·D], a permutation


class Schedule(NamedTuple):
    """What happens when a decision is carried out. Items are numbered as in `Problem`."""

    device: Any  # int32 [N]
    order: Any  # int32 [N + T·D], items as issued; -1 after the last
    num_items: Any  # int32 []
    start: Any  # int32 [N + T·D], ticks; 0 for items that are not issued
    end: Any  # int32 [N + T·D], ticks
    usage: Any  # int32 [N + T·D], units on the device of the k-th item while it runs
    makespan: Any  # int32 [], ticks
    peak: Any  # int32 [D], units


class Cost(NamedTuple):
    """What a candidate costs."""

    makespan: Any  # int32 [], ticks
    peak: Any  # int32 [D], units


def keys_shape(problem: Problem) -> Keys:
    """Returns the shapes of the keys of one candidate."""
    (n, t, _), d = problem.shape, problem.num_devices
    shapes = Keys((n, d), (n,), (t, d))
    return Keys(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


def check_keys(problem: Problem, keys: Keys) -> None:
    """Raises `ValueError` if the keys of one candidate do not have the shapes of the problem."""
    for field, expected, leaf in zip(Keys._fields, keys_shape(problem), keys, strict=True):
        if jnp.shape(leaf) != expected.shape:
            raise ValueError(
                f"keys.{field} has shape {jnp.shape(leaf)}: expected {expected.shape}; "
                "use jax.vmap for a population"
            )


def decode(problem: Problem, keys: Keys) -> Decision:
    """Returns the devices and ranks that the keys of one candidate stand for.

    An op goes to the largest of its device keys among the allowed devices, the lowest index on
    ties; items are ranked by (key, index). -0.0 equals 0.0.
    """
    check_keys(problem, keys)
    key = _item_keys(keys)
    order = jnp.argsort(ready_queue.key_bits(key), stable=True)
    rank = jnp.zeros(key.shape, jnp.int32).at[order].set(jnp.arange(key.size, dtype=jnp.int32))
    return Decision(_devices(problem, keys), rank)


def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Returns the schedule of one decision, to look at.

    Memory is accounted along the issue order: exact for synchronous transfers, an approximation
    for asynchronous ones.
    """
    return _simulate(jax.tree.map(jnp.asarray, problem), jax.tree.map(jnp.asarray, decision))


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Returns the cost of one candidate: the same as `simulate(problem, decode(problem, keys))`.

    Compose with `jax.vmap` for a population, and once more for a batch of graphs. Memory is
    accounted along the issue order: exact for synchronous transfers, an approximation for
    asynchronous ones.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    return _evaluate(jax.tree.map(jnp.asarray, problem), jax.tree.map(jnp.asarray, keys))


OBJECTIVES: tuple[str, ...] = ("peak_memory", "makespan", "capped_makespan")


def objective(problem: Problem, cost: Cost, name: str) -> jax.Array:
    """Returns a cost as one number to be minimised, float32: exact below 2²⁴, else rounded.

    "peak_memory" is the largest over devices, in units; "makespan" is in ticks;
    "capped_makespan" too, but a schedule that does not fit the capacities costs
    U (1 + max over devices of excess / capacity) with U = 2³⁰ ticks, longer than any schedule.

    Raises:
      ValueError: there is no objective of that name.
    """
    makespan = cost.makespan.astype(jnp.float32)
    if name == "peak_memory":
        return jnp.max(cost.peak, axis=-1).astype(jnp.float32)
    if name == "makespan":
        return makespan
    if name == "capped_makespan":
        capacity = jnp.asarray(problem.capacity)
        excess = jnp.maximum(cost.peak - capacity, 0) / jnp.maximum(capacity, 1).astype(jnp.float32)
        worst = jnp.max(excess, axis=-1)
        return jnp.where(worst > 0, MAX_TICKS * (1 + worst), makespan)
    raise ValueError(f"objective is {name!r}: expected one of {', '.join(OBJECTIVES)}")


def population_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array]:
    """Returns what a search minimises: a map from keys `[P, ...]` to an `objective`, `[P]`.

    Raises:
      ValueError: there is no objective of that name.
    """
    if name not in OBJECTIVES:
        raise ValueError(f"objective is {name!r}: expected one of {', '.join(OBJECTIVES)}")

    def cost(keys: Keys) -> jax.Array:
        return objective(problem, jax.vmap(evaluate, (None, 0))(problem, keys), name)

    return cost


def _devices(problem: Problem, keys: Keys) -> jax.Array:
    device = jnp.where(problem.allowed, ready_queue.key_bits(keys.device), -1)
    return jnp.argmax(device, axis=-1).astype(jnp.int32)


def _item_keys(keys: Keys) -> jax.Array:
    return jnp.concatenate([jnp.ravel(keys.priority), jnp.ravel(keys.transfer)])


@jax.custom_batching.sequential_vmap
def _evaluate(problem: Problem, keys: Keys) -> Cost:
    device = _devices(problem, keys)
    items, count = passes.live_items(problem, device)
    by_rank, rank = ready_queue.rank_by_key(_item_keys(keys), items, count)
    order, count = passes.issue(problem, device, by_rank, rank)
    end = passes.clock(problem, device, order, count)
    _, peak = passes.memory(problem, device, order, count)
    return Cost(jnp.max(end), peak)


@jax.custom_batching.sequential_vmap
def _simulate(problem: Problem, decision: Decision) -> Schedule:
    device, rank = decision
    by_rank = jnp.zeros_like(rank).at[rank].set(jnp.arange(rank.size, dtype=jnp.int32))
    order, count = passes.issue(problem, device, by_rank, rank)
    end = passes.clock(problem, device, order, count)
    usage, peak = passes.memory(problem, device, order, count)
    issued = jnp.zeros(rank.size, bool).at[order].set(order >= 0, mode="drop")
    home = device[problem.producer]
    ops = jnp.take_along_axis(problem.op_ticks, device[:, None], axis=1)
    sent = jnp.take_along_axis(problem.transfer_ticks, home[:, None, None], axis=1)
    start = jnp.where(issued, end - jnp.concatenate([ops.ravel(), sent.ravel()]), 0)
    return Schedule(device, order, count, start, end, usage, jnp.max(end), peak)
