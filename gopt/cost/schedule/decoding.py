"""Candidate schedules as random keys, and their decoding into devices and ranks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float32, Int32

from gopt.cost.schedule.engine.ranking import key_bits
from gopt.cost.schedule.problem import Problem


class Keys(NamedTuple):
    """Random keys in [0, 1] of one candidate, or of a population with leading axis `P`.

    Attributes:
      device: device keys, float32 `[N, D]`. An op runs on the allowed device with the largest key.
      priority: priority of each op, float32 `[N]`. Smaller keys are issued earlier.
      transfer: priority of the transfer of each tensor to each device, float32 `[T, D]`.
    """

    device: Any
    priority: Any
    transfer: Any


class Decision(NamedTuple):
    """A decoded candidate. Items are numbered as in `Problem`.

    Attributes:
      device: device of each op, int32 `[N]`.
      rank: rank of each item, int32 `[N + T·D]`, a permutation.
    """

    device: Any
    rank: Any


class Schedule(NamedTuple):
    """Order, times and memory of one simulated decision. Items are numbered as in `Problem`.

    Attributes:
      device: device of each op, int32 `[N]`.
      order: items in the order of issue, int32 `[N + T·D]`; -1 after the last.
      num_items: number of issued items, int32 `[]`.
      start: start of each item, int32 `[N + T·D]`, ticks; 0 for items that are not issued.
      end: end of each item, int32 `[N + T·D]`, ticks.
      usage: memory in use on the device of the k-th issued item while that item runs, int32
        `[N + T·D]`, units.
      makespan: end of the last item, int32 `[]`, ticks.
      peak: peak memory of each device, int32 `[D]`, units.
    """

    device: Any
    order: Any
    num_items: Any
    start: Any
    end: Any
    usage: Any
    makespan: Any
    peak: Any


class Cost(NamedTuple):
    """The cost of one candidate.

    Attributes:
      makespan: end of the last item, int32 `[]`, ticks.
      peak: peak memory of each device, int32 `[D]`, units.
    """

    makespan: Any
    peak: Any


def keys_shape(problem: Problem) -> Keys:
    """Return the shapes and dtypes of the keys of one candidate."""
    (n, t, _), d = problem.shape, problem.num_devices
    shapes = Keys((n, d), (n,), (t, d))
    return Keys(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


def check_keys(problem: Problem, keys: Keys) -> None:
    """Raise `ValueError` if the keys of one candidate do not have the shapes of the problem."""
    for field, expected, leaf in zip(Keys._fields, keys_shape(problem), keys, strict=True):
        if jnp.shape(leaf) != expected.shape:
            raise ValueError(
                f"keys.{field} has shape {jnp.shape(leaf)}: expected {expected.shape}; "
                "use jax.vmap for a population"
            )


def decode(problem: Problem, keys: Keys) -> Decision:
    """Return the devices and ranks that the keys of one candidate encode.

    An op runs on the allowed device with the largest key, with the lowest index on ties. Items are
    ranked by (key, index). -0.0 equals 0.0.

    Args:
      problem: one problem.
      keys: one candidate.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    key = item_keys(keys)
    order = jnp.argsort(key_bits(key), stable=True)
    rank = jnp.zeros(key.shape, jnp.int32).at[order].set(jnp.arange(key.size, dtype=jnp.int32))
    return Decision(devices_of(problem, keys), rank)


def devices_of(problem: Problem, keys: Keys) -> Int32[jax.Array, " N"]:
    """Return the device of each op, int32 `[N]`."""
    device = jnp.where(problem.allowed, key_bits(keys.device), -1)
    return jnp.argmax(device, axis=-1).astype(jnp.int32)


def item_keys(keys: Keys) -> Float32[jax.Array, " N+T*D"]:
    """Return the keys of all items, float32 `[N + T·D]`: ops first, then transfers."""
    return jnp.concatenate([jnp.ravel(keys.priority), jnp.ravel(keys.transfer)])
