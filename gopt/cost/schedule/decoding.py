"""Candidate schedules as random keys: decode a candidate into devices and ranks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.engine.ranking import key_bits
from gopt.cost.schedule.problem import Problem


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
    key = item_keys(keys)
    order = jnp.argsort(key_bits(key), stable=True)
    rank = jnp.zeros(key.shape, jnp.int32).at[order].set(jnp.arange(key.size, dtype=jnp.int32))
    return Decision(devices_of(problem, keys), rank)


def devices_of(problem: Problem, keys: Keys) -> jax.Array:
    """Returns where ops run, int32 `[N]`."""
    device = jnp.where(problem.allowed, key_bits(keys.device), -1)
    return jnp.argmax(device, axis=-1).astype(jnp.int32)


def item_keys(keys: Keys) -> jax.Array:
    """Return the keys of all items, float32 `[N + T·D]`: ops first, then transfers."""
    return jnp.concatenate([jnp.ravel(keys.priority), jnp.ravel(keys.transfer)])
