"""The clock: how long items take, what they occupy meanwhile, and when that is free again.

Written for one candidate and one item at a time (see `gopt.cost.schedule.engine.cells`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.problem import Problem


class Clock(NamedTuple):
    """How long items take and what they occupy, wherever ops run.

    The home of an op is its device, that of a transfer the device that it leaves. The role of an
    item is 0 for an input, 1 for another op, and 2 + d for a transfer to device d.
    """

    maker: Any  # int32 [N + T·D], the op whose device is the home, and the role in the last bits
    ticks: Any  # int32 [(N + T·D) · D], by item and home
    occupied: Any  # int32 [(2 + D) · D], by role and home, up to three resources, see `_resources`


# Resources: one that is always free, one that nobody asks for, the devices, the links.
_IDLE, _UNASKED, _FIRST = 0, 1, 2


def create(problem: Problem) -> Clock:
    """Returns the clock of a problem, the same for all candidates."""
    n, t, _ = problem.shape
    d = problem.num_devices
    devices = jnp.arange(d, dtype=jnp.int32)
    maker = jnp.concatenate([jnp.arange(n, dtype=jnp.int32), jnp.repeat(problem.producer, d)])
    role = jnp.concatenate([jnp.where(problem.is_input, 0, 1), jnp.tile(2 + devices, t)])

    bits = _bits(d)
    link = jnp.where(problem.channel < 0, _IDLE, _FIRST + d + problem.channel)
    # A synchronous transfer occupies both of its devices, too.
    both = jnp.where(problem.synchronous, _FIRST + devices, _IDLE)
    sends = ((link << bits | both[:, None]) << bits) | both
    runs = jnp.stack([jnp.full(d, _IDLE), _FIRST + devices]) << (2 * bits)
    transfer_ticks = problem.transfer_ticks.swapaxes(1, 2)
    return Clock(
        maker << bits | role,
        jnp.concatenate([problem.op_ticks.ravel(), transfer_ticks.ravel()]),
        jnp.concatenate([runs, sends.T]).ravel(),
    )


def durations(times: Clock, device: jax.Array) -> jax.Array:
    """Returns how long each item takes if ops run on these devices, int32 `[N + T·D]`, ticks."""
    d = _devices(times)
    items = jnp.arange(times.maker.size, dtype=jnp.int32)
    return times.ticks[items * d + device[times.maker >> _bits(d)]]


def demand(times: Clock, device: jax.Array, item: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns what an item occupies, for `wait` and `occupy`, and for how long, ticks."""
    d = _devices(times)
    maker = load(times.maker, item)
    role, home = maker & ((1 << _bits(d)) - 1), load(device, maker >> _bits(d))
    return load(times.occupied, role * d + home), load(times.ticks, item * d + home)


def idle(devices: int) -> jax.Array:
    """Returns when each resource is free at the start, int32 `[R]`, ticks; `free` below.

    Other functions take a longer array, too, of which it is the beginning.
    """
    return jnp.zeros(_FIRST + devices + devices**2, jnp.int32)


def free_devices(free: jax.Array, devices: int) -> jax.Array:
    """Returns when devices are free, int32 `[D]`, ticks."""
    return free[_FIRST : _FIRST + devices]


def wait(free: jax.Array, occupied: jax.Array, begin: jax.Array, devices: int) -> jax.Array:
    """Returns when all that an item occupies is free, and no earlier than `begin`."""
    for resource in _resources(occupied, devices):
        begin = jnp.maximum(begin, load(free, resource))
    return begin


def occupy(free: jax.Array, occupied: jax.Array, end: jax.Array, devices: int) -> jax.Array:
    """Returns when resources are free after an item that occupies some of them until its end."""
    for resource in _resources(occupied, devices):
        free = store(free, jnp.maximum(resource, _UNASKED), end)
    return free


def demands(times: Clock, device: jax.Array) -> jax.Array:
    """Returns `demand` of all items, one after another, and of nothing: `[2 · (N + T·D + 1)]`."""
    d = _devices(times)
    role, home = times.maker & ((1 << _bits(d)) - 1), device[times.maker >> _bits(d)]
    rows = jnp.stack([times.occupied[role * d + home], durations(times, device)], 1)
    return jnp.pad(rows, ((0, 1), (0, 0))).ravel()


def _devices(times: Clock) -> int:
    return int(times.ticks.size // times.maker.size)


def _bits(devices: int) -> int:
    # For the role of an item, and for a resource that is no link.
    return (_FIRST + devices - 1).bit_length()


def _resources(occupied: jax.Array, devices: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the resources that an item occupies: its own, and two more devices or `_IDLE`.

    They are packed in 31 bits, for which `gopt.cost.hardware.MAX_DEVICES` leaves room.
    """
    bits = _bits(devices)
    mask = (1 << bits) - 1
    return occupied >> (2 * bits), (occupied >> bits) & mask, occupied & mask
