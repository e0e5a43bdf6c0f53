"""The passes over the items of a schedule: who waits for whom, the order with the clock, memory.

Each is written for one candidate, as loops over scalars with data-dependent bounds, which XLA
turns into native functions on CPUs. All of it is max, + and - on int32.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost import ready_queue
from gopt.cost.cells import load, store, unit
from gopt.problem import Problem

_NONE = -1  # the end of a list


class Waiting(NamedTuple):
    """Who waits for whom under a placement: for each item a linked list of what it lets go on.

    An element of a list is a use, whose consumer reads what the item makes on the item's device,
    or `E` + t · D + d, the transfer of a tensor that the item makes.
    """

    head: Any  # int32 [N + T·D], first element of the list of an item, or -1
    next: Any  # int32 [E + T·D], the element after it, or -1
    items: Any  # int32 [N + T·D], the items that there are, by index: ops, then transfers
    count: Any  # int32 [], how many items there are


class Clock(NamedTuple):
    """How long items take under a placement, and on what."""

    ticks: Any  # int32 [N + T·D]
    occupied: Any  # int32 [N + T·D], up to three resources, see `_resources`


class Issued(NamedTuple):
    """What happens to the items."""

    position: Any  # int32 [N + T·D], place in the order of issue, counted from 1; 0 for no item
    end: Any  # int32 [N + T·D], ticks
    makespan: Any  # int32 [], ticks


# Resources: one that is always free, one that nobody asks for, the devices, the links.
_IDLE, _UNASKED, _FIRST = 0, 1, 2


def waiting(problem: Problem, device: jax.Array) -> Waiting:
    """Returns who waits for whom if ops run on these devices."""
    n, t, e = problem.shape
    d = problem.num_devices
    maker = problem.producer[problem.tensor]
    copy = n + problem.tensor * d

    def join_use(state: Any) -> Any:
        use, count, owner, element, head, next_, items = state
        head = store(head, owner, element)  # of the use before
        to = load(device, load(problem.consumer, use))
        is_local = to == load(device, load(maker, use))
        owner = jnp.where(is_local, load(maker, use), load(copy, use) + to)
        behind = load(head, owner)
        items = store(items, count, owner)
        count = count + (~is_local & (behind == _NONE))
        return use + 1, count, owner, use, head, store(next_, use, behind), items

    def join_transfer(state: Any) -> Any:
        k, owner, element, head, next_ = state
        head = store(head, owner, element)
        slot = load(items, k) - n
        owner, element = load(problem.producer, lax.div(slot, d)), e + slot
        return k + 1, owner, element, head, store(next_, element, load(head, owner))

    size = n + t * d
    head, next_ = jnp.full(size + 1, _NONE, jnp.int32), jnp.full(e + t * d, _NONE, jnp.int32)
    zero = jnp.int32(0)
    state = (
        zero,
        problem.num_ops,
        jnp.int32(size),
        zero,
        head,
        next_,
        jnp.arange(size, dtype=jnp.int32),
    )
    _, count, *written, items = lax.while_loop(lambda s: s[0] < problem.num_uses, join_use, state)
    _, owner, element, head, next_ = lax.while_loop(
        lambda s: s[0] < count, join_transfer, (problem.num_ops, *written)
    )
    if d > 2:  # on two devices a tensor has one transfer at most
        items = _sort_transfers(items, problem.num_ops, count)
    return Waiting(store(head, owner, element)[:size], next_, items, count)


def _sort_transfers(items: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
    """Returns the items with those from `start` sorted; only those of one tensor are mixed up."""

    def insert(state: Any) -> Any:
        k, items = state
        item = load(items, k)

        def move(state: Any) -> Any:
            at, items = state
            return at - 1, store(items, at, load(items, at - 1))

        at, items = lax.while_loop(
            lambda s: (s[0] > start) & (load(s[1], jnp.maximum(s[0] - 1, 0)) > item),
            move,
            (k, items),
        )
        return k + 1, store(items, at, item)

    return lax.while_loop(lambda s: s[0] < count, insert, (start, items))[1]


def clock(problem: Problem, device: jax.Array) -> Clock:
    """Returns what the times of items depend on if ops run on these devices."""
    n, t, _ = problem.shape
    d = problem.num_devices
    home = device[problem.producer]
    devices = jnp.arange(d, dtype=jnp.int32)
    link = jnp.where(problem.channel < 0, _IDLE, _FIRST + d + problem.channel)
    # A synchronous transfer occupies both of its devices, too.
    both = jnp.where(problem.synchronous, _FIRST + devices, _IDLE)
    bits = _device_bits(d)
    sends = ((link << bits | both[:, None]) << bits) | both
    runs = jnp.where(problem.is_input, _IDLE, _FIRST + device) << (2 * bits)

    # Selected device by device, and written in two parts: XLA vectorises these, but neither
    # gathers, nor sums over devices, nor a concatenation of what it fuses.
    run_ticks, sent_ticks = jnp.zeros(n, jnp.int32), jnp.zeros((t, d), jnp.int32)
    sent = jnp.zeros((t, d), jnp.int32)
    for at in range(d):
        run_ticks = jnp.where(device == at, problem.op_ticks[:, at], run_ticks)
        is_home = (home == at)[:, None]
        sent_ticks = jnp.where(is_home, problem.transfer_ticks[:, at], sent_ticks)
        sent = jnp.where(is_home, sends[at], sent)

    def items(ops: jax.Array, transfers: jax.Array) -> jax.Array:
        return jnp.zeros(n + t * d, jnp.int32).at[:n].set(ops).at[n:].set(transfers.ravel())

    return Clock(items(run_ticks, sent_ticks), items(runs, sent))


def _device_bits(devices: int) -> int:
    return (_FIRST + devices - 1).bit_length()


def _resources(occupied: jax.Array, devices: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the resources that an item occupies: its own, and two more devices or `_IDLE`."""
    bits = _device_bits(devices)
    mask = (1 << bits) - 1
    return occupied >> (2 * bits), (occupied >> bits) & mask, occupied & mask


def issue(
    problem: Problem, waits: Waiting, by_rank: jax.Array, rank: jax.Array, times: Clock | None
) -> Issued:
    """Returns in which order items are issued, and when they end.

    List scheduling: of all ready items the one with the smallest rank goes next. An item that is
    issued walks the list of those that wait for it, each of which then waits for one less. They
    start no earlier than it ends. Without a clock all ends are 0, and take no time to find.
    """
    n = problem.shape.ops
    d = problem.num_devices
    size = rank.size
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
            occupied = load(times.occupied, item)
            begin = load(arrived, item)
            for resource in _resources(occupied, d):
                begin = jnp.maximum(begin, load(free, resource))
            finish = begin + load(times.ticks, item)
            last = item, occupied, finish

        def notify(state: Any) -> Any:
            element, next_rank, queue, missing, arrived = state
            item = load(target, element)
            if times is not None:
                arrived = store(arrived, item, jnp.maximum(load(arrived, item), finish))
            missing = store(missing, item, load(missing, item) - 1)
            left = load(missing, item)
            own = load(rank, item)
            queue = ready_queue.add(queue, own, left == 0)
            # A rank or more than any: a select would become a branch that is hard to predict.
            candidate = own | (jnp.minimum(left, 1) * ready_queue.EMPTY)
            next_rank = jnp.minimum(next_rank, candidate)
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


def memory(
    problem: Problem, device: jax.Array, position: jax.Array, count: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns what is on each device at each step of the order of issue, and the peaks.

    What is on a device while an item runs is what came until then less what went before: sums
    along the order of issue, of what each step adds and what the step before it frees.

    Args:
      problem: one problem.
      device: int32 `[N]`.
      position: int32 `[N + T·D]`, when items are issued, counted from 1; 0 for no item.
      count: int32 `[]`, how many items there are.

    Returns:
      int32 `[N + T·D + 3, D]` and `[D]`, in units. Row k is the k-th item, row 0 the start.
    """
    n, t, _ = problem.shape
    d = problem.num_devices
    devices = jnp.arange(d, dtype=jnp.int32)
    never = position.size + 2

    ops, sent = position[:n], position[n:].reshape(t, d)
    home = device[problem.producer]
    is_home = home[:, None] == devices
    made = ops[problem.producer]
    # The last reader of a tensor on a device; where it was made, transfers are readers too.
    slot = problem.tensor * d + device[problem.consumer]
    read = jnp.zeros(t * d, jnp.int32).at[slot].max(ops[problem.consumer]).reshape(t, d)
    leaves = jnp.maximum(made, jnp.max(jnp.where(is_home, 0, sent), 1))
    last = jnp.where(is_home, jnp.maximum(read, leaves[:, None]), read)
    last = jnp.where(is_home & problem.pinned[:, None], never, last)
    born = jnp.where(is_home, jnp.where(problem.is_input[problem.producer], 0, made)[:, None], sent)
    size = jnp.where(is_home | (sent > 0), problem.size[:, None], 0)

    change = jnp.zeros((never + 1, d), jnp.int32)
    change = change.at[born, devices].add(size).at[last + 1, devices].add(-size, mode="drop")
    work = jnp.zeros((never + 1, d), jnp.int32).at[ops, device].add(problem.workspace)

    def add(state: Any) -> Any:
        k, live, peak, during = state
        live = live + row(change, k)
        now = live + row(work, k)
        during = lax.dynamic_update_slice(during, now, (k, 0), allow_negative_indices=False)
        return k + 1, live, jnp.maximum(peak, now), during

    def row(rows: jax.Array, k: jax.Array) -> jax.Array:
        return lax.dynamic_slice(rows, (k, 0), (1, d), allow_negative_indices=False)

    none = jnp.zeros((1, d), jnp.int32)
    state = jnp.int32(0), none, none, jnp.zeros_like(work)
    _, _, peak, during = lax.while_loop(lambda s: s[0] <= count, add, state)
    return during, peak[0]
