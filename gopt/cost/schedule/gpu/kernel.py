"""GPU kernel that issues the items of many candidates, one candidate per thread.

Each candidate is a lane: a small state machine. At each step a lane either takes the next item from
its queue, or notifies the next consumers of the item that it took before. So lanes do not wait for
each other's ops with many uses. A lane's number of steps depends on its own items and uses only; it
visits two uses per step.

A thread owns its lane. It reads only what it wrote itself, in order, so the kernel needs no
barriers. Triton gives each thread one element of a vector whose length is the number of threads:
`LANES` is the size of a warp.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Bool

LANES = 32

# Columns of an item's record. They are adjacent because they are read together; see `Lanes`.
RANK, WAITS, SEEN, TICKS = range(4)
COLUMNS = 4

_USES = 2  # uses that a lane visits in one step
_WORD = 32  # bits of a word


class Shared(NamedTuple):
    """Tables that all candidates of a graph share.

    Attributes:
      consumer: consumer of each use, int32 `[G, E]`.
      tensor: tensor of each use, int32 `[G, E]`.
      bounds: first use of each op, then of each tensor, int32 `[G, N + 1 + T + 1]`. Row i,
        for op i, or row N + 1 + t, for tensor t, is the first use; the next row is the end.
      channel: link of each pair of devices, int32 `[G, D · D]`; -1 for none.
      synchronous: 1 if transfers occupy both devices, else 0, int32 `[G]`.
    """

    consumer: Any
    tensor: Any
    bounds: Any
    channel: Any
    synchronous: Any


class Lanes(NamedTuple):
    """State of `L` candidates, the candidates of a graph adjacent; `I` = N + T·D items.

    The record of an item has four int32 columns:

    - `RANK`: rank of the item.
    - `WAITS`: number of missing inputs, shifted left by `device_bits`. The low bits are the op's
      device, or the transfer's source device.
    - `SEEN`: time at which its inputs have arrived, ticks. After the item is issued: its position
      in the order of issue, counted from 1.
    - `TICKS`: duration, ticks; -1 for an input op.

    Attributes:
      by_rank: items by rank, int32 `[L, I]`.
      top: last level of the queue of ready ranks, int32 `[L]`.
      words: other levels of the queue, and a spare word, int32 `[L, W]`.
      free: time at which each device, then each link, is free, int32 `[L, D + D · D]`, ticks.
      records: records of the items, int32 `[L, I · 4]`.
    """

    by_rank: Any
    top: Any
    words: Any
    free: Any
    records: Any


def device_bits(devices: int) -> int:
    """Return the number of low bits of `WAITS` that hold the device."""
    return (devices - 1).bit_length()


def queue(ready: Bool[jax.Array, " I"]) -> list[jax.Array]:
    """Return the levels of a queue of ready ranks, finest first.

    The queue is like `gopt.cost.schedule.engine.ready_queue`, with another order of bits: the
    smallest rank has the highest bit of its word, for `lax.clz`. The last level is one word.

    Args:
      ready: whether each rank is ready, bool `[I]`.
    """
    levels: list[jax.Array] = []
    while not levels or levels[-1].size > 1:
        bits = jnp.pad(ready, (0, -ready.size % _WORD)).reshape(-1, _WORD)
        bits = jnp.where(bits, _bit(jnp.arange(_WORD, dtype=jnp.int32)), 0)
        levels.append(jnp.sum(bits, 1, dtype=jnp.int32))
        ready = levels[-1] != 0
    return levels


def _bit(rank: jax.Array) -> jax.Array:
    return lax.shift_right_logical(jnp.int32(-(2**31)), rank & (_WORD - 1))


def _starts(size: int) -> list[int]:
    """Return the first index in `Lanes.words` of each level of a queue for `size` ranks."""
    starts, start = [], 0
    while size > _WORD:
        starts.append(start)
        size = -(-size // _WORD)
        start += size
    return starts


def issue(
    shared: Shared, lanes: Lanes, ops: int, devices: int, *, interpret: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Issue all items of all lanes.

    Args:
      shared: tables of the graphs. All graphs have the same number of lanes.
      lanes: initial state; the queue holds the items that are ready at the start.
      ops: number of ops, `N`.
      devices: number of devices, `D`.
      interpret: whether to emulate the kernel, on any device, instead of compiling it.

    Returns:
      Makespans, int32 `[L]`, ticks, and the final records, int32 `[L, I · 4]`.
    """
    count, written = lanes.top.size, (lanes.words, lanes.free, lanes.records)
    first = len(shared) + len(lanes) - len(written)
    *_, records, makespan = pl.pallas_call(
        partial(_kernel, ops, devices),
        grid=(-(-count // LANES),),
        out_shape=[jax.ShapeDtypeStruct(leaf.shape, jnp.int32) for leaf in (*written, lanes.top)],
        input_output_aliases={first + k: k for k in range(len(written))},
        compiler_params=plgpu.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="issue",
    )(*shared, *lanes)
    return makespan, records


def _kernel(ops: int, devices: int, *refs: Any) -> None:
    consumers, tensors, bounds, channel, synchronous, by_rank, tops = refs[:7]
    words, free, records, makespans = refs[10:]  # refs[7:10] alias these three outputs
    count, starts = tops.shape[0], _starts(by_rank.shape[1])
    d, bits = jnp.int32(devices), device_bits(devices)
    lane = pl.program_id(0) * LANES + jnp.arange(LANES, dtype=jnp.int32)
    graph = lax.div(lane, jnp.int32(count // consumers.shape[0]))

    def load(ref: Any, *at: jax.Array, mask: jax.Array) -> jax.Array:
        return plgpu.load(ref.at[at], mask=mask, other=0)

    def store(ref: Any, *at: jax.Array, value: jax.Array, mask: jax.Array) -> None:
        plgpu.store(ref.at[at], value, mask=mask)

    def look_up(item: jax.Array, *columns: int, mask: jax.Array) -> list[jax.Array]:
        return [load(records, lane, item * COLUMNS + column, mask=mask) for column in columns]

    def note(item: jax.Array, column: int, value: jax.Array, mask: jax.Array) -> None:
        store(records, lane, item * COLUMNS + column, value=value, mask=mask)

    def home(waits: jax.Array) -> jax.Array:
        return waits & ((1 << bits) - 1)

    def smallest(top: jax.Array, mask: jax.Array) -> tuple[jax.Array, list[Any]]:
        """Return the smallest rank in the queue, and the words on the path to it, finest first."""
        path: list[Any] = []
        rank = lax.clz(top)
        for start in reversed(starts):
            place = start + rank
            path.insert(0, (place, load(words, lane, place, mask=mask)))
            rank = rank * _WORD + lax.clz(path[0][1])
        return rank, path

    def leave(top: jax.Array, rank: jax.Array, path: list[Any], mask: jax.Array) -> jax.Array:
        for place, word in path:
            word = word & ~_bit(rank)
            store(words, lane, place, value=word, mask=mask)
            rank, mask = rank >> 5, mask & (word == 0)
        return jnp.where(mask, top & ~_bit(rank), top)

    def join(top: jax.Array, rank: jax.Array, mask: jax.Array) -> jax.Array:
        places = [start + (rank >> 5 * (k + 1)) for k, start in enumerate(starts)]
        held = [load(words, lane, place, mask=mask) for place in places]
        for place, word in zip(places, held, strict=True):
            store(words, lane, place, value=word | _bit(rank), mask=mask)
            rank = rank >> 5
        return jnp.where(mask, top | _bit(rank), top)

    # A step loads first and stores last. So lanes that take an item and lanes that notify
    # consumers wait for memory at the same time.
    def step(state: Any) -> Any:
        top, issued, item, here, finish, use, last, makespan = state
        takes = (use >= last) & (top != 0)

        # Find the items to notify of the last item's end. A consumer on another device waits for a
        # transfer, so the transfer is notified instead, once for each such consumer; the first
        # notification counts. A transfer notifies only consumers on its target device.
        told, tells = [], []
        for k in range(_USES):
            walks = use + k < last
            reader = load(consumers, graph, use + k, mask=walks)
            tensor = load(tensors, graph, use + k, mask=walks)
            there = home(*look_up(reader, WAITS, mask=walks))
            told.append(jnp.where(there == here, reader, ops + tensor * d + there))
            tells.append(walks & ((there == here) | (item < ops)))

        # Take the next item.
        first, path = smallest(top, takes)
        item = jnp.where(takes, load(by_rank, lane, first, mask=takes), item)

        # An item that is notified twice in one step gets the same record from both stores. So each
        # store counts both notifications.
        readers = []
        for reader, mask in zip(told, tells, strict=True):
            times = sum(((told[k] == reader) & tells[k]).astype(jnp.int32) for k in range(_USES))
            rank, waits, seen = look_up(reader, RANK, WAITS, SEEN, mask=mask)
            waits, seen = waits - (times << bits), jnp.maximum(seen, finish)
            readers.append((reader, rank, waits, seen, mask))

        # The next item will visit the uses of the tensors that it produces or transfers.
        waits, seen, ticks = look_up(item, WAITS, SEEN, TICKS, mask=takes)
        is_op, slot = item < ops, item - ops
        made = jnp.where(is_op, item, ops + 1 + lax.div(slot, d))
        use = jnp.where(takes, load(bounds, graph, made, mask=takes), use + _USES)
        last = jnp.where(takes, load(bounds, graph, made + 1, mask=takes), last)

        # It starts when the resources that it occupies are free. An input op occupies none; a
        # transfer without a link occupies no link.
        source = home(waits)
        target = jnp.where(is_op, source, lax.rem(slot, d))
        link = load(channel, graph, source * d + target, mask=takes & ~is_op)
        own = takes & (jnp.where(is_op, ticks, link) >= 0)
        both = takes & ~is_op & is_synchronous
        occupied = (jnp.where(is_op, source, d + link), own), (source, both), (target, both)
        for resource, mask in occupied:
            seen = jnp.maximum(seen, load(free, lane, resource, mask=mask))
        end = seen + jnp.maximum(ticks, 0)
        for resource, mask in occupied:
            store(free, lane, resource, value=end, mask=mask)

        issued = issued + takes.astype(jnp.int32)
        note(item, SEEN, issued, takes)
        top = leave(top, first, path, takes)
        for reader, rank, waits, seen, mask in readers:
            note(reader, WAITS, waits, mask)
            note(reader, SEEN, seen, mask)
            top = join(top, rank, mask & (waits < 1 << bits))  # no input is missing
        here, finish = jnp.where(takes, target, here), jnp.where(takes, end, finish)
        return top, issued, item, here, finish, use, last, jnp.maximum(makespan, finish)

    def is_busy(state: Any) -> jax.Array:
        top, *_, use, last, _ = state
        return jnp.max(((top != 0) | (use < last)).astype(jnp.int32)) > 0

    exists = lane < count
    is_synchronous = load(synchronous, graph, mask=exists) != 0
    top, none = load(tops, lane, mask=exists), jnp.zeros(LANES, jnp.int32)
    *_, makespan = lax.while_loop(is_busy, step, (top, *[none] * 7))
    store(makespans, lane, value=makespan, mask=exists)
