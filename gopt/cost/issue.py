"""The order in which items are issued, and the clock.

Written for one candidate, as loops over scalars (see `gopt.cost.cells`). All of it is max, + and -
on int32.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost import ready_queue
from gopt.cost.cells import if_negative, load, store, unit
from gopt.cost.waiting import Waiting
from gopt.problem import Problem


class Clock(NamedTuple):
    """How long items take and what they occupy, wherever ops run.

    The home of an op is its device, that of a transfer the device that it leaves. The role of an
    item is 0 for an input, 1 for another op, and 2 + d for a transfer to device d.
    """

    maker: Any  # int32 [N + T·D], the op whose device is the home, and the role in the last bits
    ticks: Any  # int32 [(N + T·D) · D], by item and home
    occupied: Any  # int32 [(2 + D) · D], by role and home, up to three resources, see `_resources`


class Issued(NamedTuple):
    """What happens to the items."""

    position: Any  # int32 [N + T·D], place in the order of issue, counted from 1; 0 for no item
    end: Any  # int32 [N + T·D], ticks
    makespan: Any  # int32 [], ticks


# Resources: one that is always free, one that nobody asks for, the devices, the links.
_IDLE, _UNASKED, _FIRST = 0, 1, 2


def clock(problem: Problem) -> Clock:
    """Returns the clock of a problem, the same for all candidates."""
    n, t, _ = problem.shape
    d = problem.num_devices
    devices = jnp.arange(d, dtype=jnp.int32)
    maker = jnp.concatenate([jnp.arange(n, dtype=jnp.int32), jnp.repeat(problem.producer, d)])
    role = jnp.concatenate([jnp.where(problem.is_input, 0, 1), jnp.tile(2 + devices, t)])

    bits = _device_bits(d)
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
    d = times.ticks.size // times.maker.size
    items = jnp.arange(times.maker.size, dtype=jnp.int32)
    return times.ticks[items * d + device[times.maker >> _device_bits(d)]]


def _device_bits(devices: int) -> int:
    # For the role of an item, and for a resource that is no link.
    return (_FIRST + devices - 1).bit_length()


def _resources(occupied: jax.Array, devices: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the resources that an item occupies: its own, and two more devices or `_IDLE`.

    They are packed in 31 bits, for which `gopt.hardware.MAX_DEVICES` leaves room.
    """
    bits = _device_bits(devices)
    mask = (1 << bits) - 1
    return occupied >> (2 * bits), (occupied >> bits) & mask, occupied & mask


def issue(
    problem: Problem,
    device: jax.Array,
    waits: Waiting,
    by_rank: jax.Array,
    rank: jax.Array,
    times: Clock | None,
) -> Issued:
    """Returns in which order items are issued, and when they end.

    List scheduling: of all ready items the one with the smallest rank goes next. An item that is
    issued walks the list of those that wait for it, each of which then waits for one less. They
    start no earlier than it ends. Without a clock all ends are 0, and take no time to find.
    """
    n = problem.shape.ops
    d = problem.num_devices
    size = rank.size
    bits = _device_bits(d)
    reads = problem.first_read[1:] - problem.first_read[:-1]
    missing = jnp.concatenate([reads, jnp.ones(size - n, jnp.int32)])
    target = jnp.concatenate([problem.consumer, jnp.arange(n, size, dtype=jnp.int32)])

    def step(state: Any) -> Any:
        queue, next_rank, missing, position, k, arrived, free, end, last = state
        item = load(by_rank, next_rank)
        queue = ready_queue.remove(queue, next_rank)
        position = store(position, item, k)
        finish = jnp.int32(0)
        if times is not None:
            free, end = write(free, end, last)
            maker = load(times.maker, item)
            role, home = maker & ((1 << bits) - 1), load(device, maker >> bits)
            occupied = load(times.occupied, role * d + home)
            begin = load(arrived, item)
            for resource in _resources(occupied, d):
                begin = jnp.maximum(begin, load(free, resource))
            finish = begin + load(times.ticks, item * d + home)
            last = item, occupied, finish

        def notify(state: Any) -> Any:
            element, next_rank, queue, missing, arrived = state
            item = load(target, element)
            if times is not None:
                arrived = store(arrived, item, jnp.maximum(load(arrived, item), finish))
            missing = store(missing, item, load(missing, item) - 1)
            is_ready = if_negative(load(missing, item) - 1, jnp.int32(1))
            own = load(rank, item)
            queue = ready_queue.add(queue, own, is_ready)
            # The smaller of the two ranks, of which none is more than `EMPTY` + 2³⁰.
            less = (own | (1 - is_ready) * ready_queue.EMPTY) - next_rank
            next_rank = next_rank + if_negative(less, less)
            return load(waits.next, element), next_rank, queue, missing, arrived

        # Found before the list is walked, so that the two go on side by side.
        state = load(waits.head, item), ready_queue.first(queue), queue, missing, arrived
        _, next_rank, queue, missing, arrived = lax.while_loop(lambda s: s[0] >= 0, notify, state)
        return queue, next_rank, missing, position, k + 1, arrived, free, end, last

    def write(free: jax.Array, end: jax.Array, last: Any) -> tuple[jax.Array, jax.Array]:
        item, occupied, finish = last
        for resource in _resources(occupied, d):
            free = store(free, jnp.maximum(resource, _UNASKED), finish)
        return free, store(end, item, finish)

    is_source = (reads == 0) & (jnp.arange(n) < problem.num_ops)
    queue = unit(partial(ready_queue.create, size))(
        jnp.where(is_source, rank[:n], ready_queue.EMPTY)
    )
    none, zero = jnp.zeros(size, jnp.int32), jnp.int32(0)
    free = jnp.zeros(_FIRST + d + d * d, jnp.int32)
    last = zero, zero, zero
    state = queue, ready_queue.first(queue), missing, none, jnp.int32(1), none, free, none, last
    state = lax.while_loop(lambda s: s[1] < ready_queue.EMPTY, step, state)
    *_, free, end, last = state
    free, end = write(free, end, last)
    # Nothing ends after the last op: a transfer has a reader that waits for it.
    return Issued(state[3], end, jnp.max(free[_FIRST : _FIRST + d]))
