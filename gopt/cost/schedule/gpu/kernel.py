"""A kernel for GPUs that issues the items of many candidates, one candidate in each thread.

A candidate is a lane: a small state machine that at each step either takes the next item from its
queue, or tells the next readers of the item that it took before. No lane waits for the hub of
another one: its steps are as many as its items, and the uses that it walks, two at a time.

A thread is alone with its lane. It reads nothing that another one wrote, and what it wrote itself
in order, so there are no barriers. Triton gives each thread one element of a vector if the vector
is as long as there are threads: `LANES` is a warp.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

LANES = 32

# Columns of the record of an item, which are side by side because they are read together.
RANK, WAITS, SEEN, TICKS = range(4)
COLUMNS = 4

_USES = 2  # that a lane walks in one step
_WORD = 32  # bits


class Shared(NamedTuple):
    """What all candidates for a graph have in common, for `G` graphs."""

    consumer: Any  # int32 [G, E]
    tensor: Any  # int32 [G, E]
    bounds: Any  # int32 [G, N + 1 + T + 1], uses of op i: from [i] to [i + 1]; then of tensors
    channel: Any  # int32 [G, D · D]
    synchronous: Any  # int32 [G]


class Lanes(NamedTuple):
    """The state of `L` candidates, those of a graph one after another; `I` = N + T·D items.

    The record of an item is: its rank; how many inputs it waits for, above the bits of the
    device where it runs, or is sent from; when its inputs have arrived, in ticks, and once it is
    issued its position in the order, counted from 1; how long it takes, or -1 for an input.
    """

    by_rank: Any  # int32 [L, I]
    top: Any  # int32 [L], the last level of the queue of ready ranks
    words: Any  # int32 [L, W], its other levels, and a spare word
    free: Any  # int32 [L, D + D · D], when devices and links are free, ticks
    records: Any  # int32 [L, I · 4]


def device_bits(devices: int) -> int:
    """Returns how many bits of `WAITS` say which device it is."""
    return (devices - 1).bit_length()


def queue(ready: jax.Array) -> list[jax.Array]:
    """Returns the levels of a queue of the ranks that are ready, as in
    `gopt.cost.schedule.engine.ready_queue`.

    The last level is one word. The smallest rank has the highest bit of its word, for `lax.clz`.
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
    """Returns where in `Lanes.words` the levels of a queue for `size` ranks start."""
    starts, start = [], 0
    while size > _WORD:
        starts.append(start)
        size = -(-size // _WORD)
        start += size
    return starts


def issue(
    shared: Shared, lanes: Lanes, ops: int, devices: int, *, interpret: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Returns makespans, int32 `[L]`, ticks, and the records once all items are issued.

    Args:
      shared: of the graphs, which have the same number of lanes each.
      lanes: with the items in the queue that are ready at the start.
      ops: `N`.
      devices: `D`.
      interpret: whether the kernel is emulated, on any device, instead of compiled.
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
    words, free, records, makespans = refs[10:]  # the three before are the same memory
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
        """Returns the first rank in the queue, and the words that led to it, finest first."""
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

    # Loads come first in a step, then stores: so those of lanes that take, and of lanes that walk,
    # wait for memory at the same time.
    def step(state: Any) -> Any:
        top, issued, item, here, finish, use, last, makespan = state
        takes = (use >= last) & (top != 0)

        # Who reads what the last item made, and where. A reader elsewhere waits for a transfer,
        # which is told instead, by each such reader: the first one counts. If the last item was
        # a transfer itself, readers elsewhere are nothing to it.
        told, tells = [], []
        for k in range(_USES):
            walks = use + k < last
            reader = load(consumers, graph, use + k, mask=walks)
            tensor = load(tensors, graph, use + k, mask=walks)
            there = home(*look_up(reader, WAITS, mask=walks))
            told.append(jnp.where(there == here, reader, ops + tensor * d + there))
            tells.append(walks & ((there == here) | (item < ops)))

        # Which item is next.
        first, path = smallest(top, takes)
        item = jnp.where(takes, load(by_rank, lane, first, mask=takes), item)

        # Who is told twice at once is told the same both times, and that it was told twice.
        readers = []
        for reader, mask in zip(told, tells, strict=True):
            times = sum(((told[k] == reader) & tells[k]).astype(jnp.int32) for k in range(_USES))
            rank, waits, seen = look_up(reader, RANK, WAITS, SEEN, mask=mask)
            waits, seen = waits - (times << bits), jnp.maximum(seen, finish)
            readers.append((reader, rank, waits, seen, mask))

        # The next item walks the uses of what it makes, or sends.
        waits, seen, ticks = look_up(item, WAITS, SEEN, TICKS, mask=takes)
        is_op, slot = item < ops, item - ops
        made = jnp.where(is_op, item, ops + 1 + lax.div(slot, d))
        use = jnp.where(takes, load(bounds, graph, made, mask=takes), use + _USES)
        last = jnp.where(takes, load(bounds, graph, made + 1, mask=takes), last)

        # It starts once what it occupies is free: nothing, if it is an input or has no link.
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

        issued = issued + takes
        note(item, SEEN, issued, takes)
        top = leave(top, first, path, takes)
        for reader, rank, waits, seen, mask in readers:
            note(reader, WAITS, waits, mask)
            note(reader, SEEN, seen, mask)
            top = join(top, rank, mask & (waits < 1 << bits))  # it waits for no more
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
