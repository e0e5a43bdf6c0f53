"""Durations of items, the resources they occupy, and the times when these are free.

Written for one candidate and one item at a time (see `gopt.cost.schedule.engine.cells`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.problem import Problem


class Clock(NamedTuple):
    """Durations and resources of items, for every placement of ops.

    The home of an op is its device; the home of a transfer is its source device. The role of an
    item is 0 for an input, 1 for another op, and 2 + d for a transfer to device d.

    Attributes:
      maker: int32 `[N + T·D]`; op whose device is the home, with the role in the low bits.
      ticks: int32 `[(N + T·D) · D]`; duration by item and home, ticks.
      occupied: int32 `[(2 + D) · D]`; up to three resources by role and home, see `_resources`.
    """

    maker: Any
    ticks: Any
    occupied: Any


# Resources: one that is always free, one that is written but never read, devices, links.
_IDLE, _UNASKED, _FIRST = 0, 1, 2


def create(problem: Problem) -> Clock:
    """Return the clock of a problem, shared by all candidates."""
    n, t, _ = problem.shape
    d = problem.num_devices
    devices = jnp.arange(d, dtype=jnp.int32)
    maker = jnp.concatenate([jnp.arange(n, dtype=jnp.int32), jnp.repeat(problem.producer, d)])
    role = jnp.concatenate([jnp.where(problem.is_input, 0, 1), jnp.tile(2 + devices, t)])

    bits = _bits(d)
    link = jnp.where(problem.channel < 0, _IDLE, _FIRST + d + problem.channel)
    # A synchronous transfer also occupies both its devices.
    both = jnp.where(problem.synchronous, _FIRST + devices, _IDLE)
    sends = ((link << bits | both[:, None]) << bits) | both[None]
    runs = jnp.stack([jnp.full(d, _IDLE), _FIRST + devices]) << (2 * bits)
    transfer_ticks = problem.transfer_ticks.swapaxes(1, 2)
    return Clock(
        maker << bits | role,
        jnp.concatenate([problem.op_ticks.ravel(), transfer_ticks.ravel()]),
        jnp.concatenate([runs, sends.T]).ravel(),
    )


def durations(times: Clock, device: Int32[jax.Array, " N"]) -> Int32[jax.Array, " N+T*D"]:
    """Return the duration of each item under a placement, int32 `[N + T·D]`, ticks.

    Args:
      times: clock of the problem.
      device: int32 `[N]`; device of each op.
    """
    d = _devices(times)
    items = jnp.arange(times.maker.size, dtype=jnp.int32)
    return times.ticks[items * d + device[times.maker >> _bits(d)]]


def item_resources(
    times: Clock, device: Int32[jax.Array, " N"], item: Int32[jax.Array, ""]
) -> tuple[jax.Array, jax.Array]:
    """Return the packed resources of an item, for `wait` and `occupy`, and its ticks.

    Args:
      times: clock of the problem.
      device: int32 `[N]`; device of each op.
      item: int32 `[]`; item number.
    """
    d = _devices(times)
    maker = load(times.maker, item)
    role, home = maker & ((1 << _bits(d)) - 1), load(device, maker >> _bits(d))
    return load(times.occupied, role * d + home), load(times.ticks, item * d + home)


def idle(devices: int) -> Int32[jax.Array, " R"]:
    """Return the times when resources are free at the start, int32 `[R]`, ticks: all 0.

    This is `free` in other functions, which also accept a longer array that begins with it.
    """
    return jnp.zeros(_FIRST + devices + devices**2, jnp.int32)


def free_devices(free: jax.Array, devices: int) -> Int32[jax.Array, " D"]:
    """Return the times when devices are free, int32 `[D]`, ticks.

    Args:
      free: times when resources are free, as in `idle`.
      devices: number of devices, `D`.
    """
    return free[_FIRST : _FIRST + devices]


def wait(
    free: jax.Array, occupied: Int32[jax.Array, ""], begin: Int32[jax.Array, ""], devices: int
) -> jax.Array:
    """Return the first time, not before `begin`, when all resources of an item are free.

    Args:
      free: times when resources are free, as in `idle`.
      occupied: int32 `[]`; packed resources of the item, as from `item_resources`.
      begin: int32 `[]`; earliest start, ticks.
      devices: number of devices, `D`.
    """
    for resource in _resources(occupied, devices):
        begin = jnp.maximum(begin, load(free, resource))
    return begin


def occupy(
    free: jax.Array, occupied: Int32[jax.Array, ""], end: Int32[jax.Array, ""], devices: int
) -> jax.Array:
    """Return the times when resources are free, after an item has occupied some until `end`.

    Args:
      free: as in `wait`.
      occupied: as in `wait`.
      end: int32 `[]`; end of the item, ticks.
      devices: as in `wait`.
    """
    for resource in _resources(occupied, devices):
        free = store(free, jnp.maximum(resource, _UNASKED), end)
    return free


def all_item_resources(
    times: Clock, device: Int32[jax.Array, " N"]
) -> Int32[jax.Array, " 2*(N+T*D+1)"]:
    """Return `item_resources` of all items in sequence, then zeros: int32 `[2 · (N + T·D + 1)]`.

    Args:
      times: clock of the problem.
      device: int32 `[N]`; device of each op.
    """
    d = _devices(times)
    role, home = times.maker & ((1 << _bits(d)) - 1), device[times.maker >> _bits(d)]
    rows = jnp.stack([times.occupied[role * d + home], durations(times, device)], 1)
    return jnp.pad(rows, ((0, 1), (0, 0))).ravel()


def _devices(times: Clock) -> int:
    return int(times.ticks.size // times.maker.size)


def _bits(devices: int) -> int:
    # Enough for the role of an item, and for a resource other than a link.
    return (_FIRST + devices - 1).bit_length()


def _resources(occupied: jax.Array, devices: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the resources of an item: a device, link or `_IDLE`, and two more devices or `_IDLE`.

    They are packed in 31 bits; `gopt.cost.hardware.MAX_DEVICES` makes sure that they fit.
    """
    bits = _bits(devices)
    mask = (1 << bits) - 1
    return occupied >> (2 * bits), (occupied >> bits) & mask, occupied & mask
