"""The compiled dispatcher: what an expert would write for CPUs, in numba.

One candidate after another in scalar code, candidates spread over threads that keep their
workspace. Bit-equal with `gopt.cost.dispatch.evaluate`. The next event of a device is the end of
the op that runs there, or the start of the best one. Ops that arrive while their device is busy
are in a set of ranks, those that arrive later in a heap by time: first come, first served, all are
in the heap. What makes it fast, by measurement:

- ops whose tensors stay have no end: their readers are told when they start, because nothing else
  starts on that device before they end;
- ranks in sets of bits, after a radix sort (20 to 50 % less time than a heap of keys, where many
  ops are ready);
- devices are chosen without branches, and so is what is freed (5 to 15 %): half of the time goes
  to branches that are predicted wrongly;
- the readers of a (tensor, device) are a linked list, and what begins it is beside how many of
  them are left; masks of devices say where transfers go;
- the number of devices is a constant, indices are unsigned, and no array is passed to a function
  with branches unless it is inlined: else references to it are counted, in atomic steps (2 x).

What did not pay: buckets of keys; a queue beside the heap for ops that come in order; to start the
only op that has arrived without a look at the set; to put into sets without a branch.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from experiments.throughput.peers import compiled
from experiments.throughput.peers.queues import lowest, pop_entry, push_entry
from experiments.throughput.peers.ranks import (
    add,
    create_sets,
    create_sorter,
    rank_by_key,
    take,
)
from experiments.throughput.peers.threads import in_parts
from gopt.cost.execution import Cost, Keys
from gopt.problem import Problem

_NEVER = np.int64(2**62)  # no event is as late
_IS_START, _TIME = np.int64(256), np.int64(9)  # an event is its time, whether it starts, its device
_ITEM, _KEY = np.uint64(2**32 - 1), np.uint64(32)  # a cell or an entry is two numbers
_COUNT, _USE = np.int64(2**32), np.int64(2**32 - 1)
_END = np.uint32(2**32 - 1)
_NONE, _ONE, _SIX, _LOW = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)


class Tables(NamedTuple):
    """A problem as the simulator reads it. `N` ops, `E` uses."""

    problem: compiled.Tables
    inputs: Any  # uint64, the inputs
    sources: Any  # uint64, other ops that read nothing
    first_read: Any  # uint32 [N], where what an op reads begins
    read: Any  # uint32 [E + N], tensor · D, and `_END` after those of each op
    freed: Any  # int32 [E + N], units of the tensor


def tables(problem: Problem) -> Tables:
    """Returns what the simulator reads of a problem, computed once."""
    found = compiled.tables(problem)
    reads_nothing = found.degree == 0
    ends = found.first_read[1:]  # of the reads of each op
    return Tables(
        problem=found,
        inputs=np.flatnonzero(found.is_input).astype(np.uint64),
        sources=np.flatnonzero(reads_nothing & ~found.is_input).astype(np.uint64),
        first_read=(found.first_read[:-1] + np.arange(ends.size)).astype(np.uint32),
        read=np.insert(found.read * np.uint32(problem.num_devices), ends, _END),
        freed=np.insert(found.size[found.read], ends, 0),
    )


def evaluate(problem: Tables, keys: Keys, *, threads: int | None = None) -> Cost:
    """Returns the costs of a population: makespans int32 `[P]` and peaks int32 `[P, D]`.

    Args:
      problem: see `tables`.
      keys: NumPy arrays, float32 `[P, ...]`. Those of transfers are not read; if the priorities are
        None, ops are served first come, first served.
      threads: how many threads to use, by default one for each core of this process.
    """
    first_come = keys.priority is None
    given = keys.device, (keys.device[:, :, 0] if first_come else keys.priority)
    arrays = [np.ascontiguousarray(leaf, np.float32).view(np.int32) for leaf in given]
    count, _, devices = keys.device.shape
    cost = Cost(np.empty(count, np.int32), np.empty((count, devices), np.int32))
    levels = max(1, -(-(len(problem.first_read) - 1).bit_length() // 6))
    run = _simulator(devices, levels, first_come)
    in_parts(partial(run, problem, *arrays, *cost), count, threads)
    return cost


@cache
def _simulator(num_devices: int, levels: int, first_come: bool) -> Callable[..., None]:
    """Returns a function that costs candidates `low` to `high` of a population, in one thread.

    Numba takes the arguments of this function as constants and drops what they rule out.
    """
    devices, masks = np.uint64(num_devices), (num_devices + 63) // 64

    @njit
    def place(device_key: Any, allowed: Any, device: Any) -> None:
        """Decides where ops run."""
        for op in range(device.size):
            best, where = np.int32(-1), np.uint32(0)
            for d in range(num_devices):
                bits = max(device_key[op, d], np.int32(0)) if allowed[op, d] else np.int32(-1)
                where = np.uint32(d) if bits > best else where
                best = max(best, bits)
            device[op] = where

    @njit
    def link(problem: Any, device: Any, cells: Any, following: Any, away: Any, sends: Any) -> None:
        """Finds the readers of each (tensor, device)."""
        tensor, consumer, producer, pinned = problem[16], problem[17], problem[15], problem[14]
        cells[:] = _USE
        away[:] = _NONE
        sends[:] = False
        for use in range(consumer.size):
            on = np.uint64(device[consumer[use]])
            slot = np.uint64(tensor[use]) * devices + on
            cell = cells[slot]
            following[use] = cell
            cells[slot] = (cell & ~_USE) + _COUNT | use
            away[np.uint64(tensor[use]) * np.uint64(masks) + (on >> _SIX)] |= _ONE << (on & _LOW)
        for t in range(producer.size):
            home = np.uint64(device[producer[t]])
            readers = np.int64(pinned[t])  # pinned: a reader that never comes
            for word in range(masks):
                bits = away[t * masks + word]
                if home >> _SIX == np.uint64(word):
                    bits &= ~(_ONE << (home & _LOW))
                sends[producer[t]] |= bits != _NONE
                while bits != _NONE:
                    readers += 1
                    bits &= bits - _ONE
            cells[np.uint64(t) * devices + home] += readers * _COUNT

    @njit
    def next_start(on: Any, free: Any, is_ready: Any, late: Any, entry: Any) -> Any:
        """Returns the event of the best op that starts on a device.

        Args:
          on: the device.
          free: when it is free.
          is_ready: whether an op has arrived.
          late: how many ops are in the heap.
          entry: the first one of the heap.
        """
        time = free if is_ready else max(free, np.int64(entry >> _KEY))
        event = time << _TIME | _IS_START | np.int64(on)
        return event if is_ready | (late != _NONE) else _NEVER

    @njit(nogil=True, error_model="numpy")
    def run(
        tables: Any,
        device_keys: Any,
        priorities: Any,
        makespans: Any,
        peaks: Any,
        low: int,
        high: int,
    ) -> None:
        problem, inputs, sources, first_read, read, freed = tables
        op_ticks, transfer_ticks = problem[0].reshape(-1), problem[1].reshape(-1)
        channel, synchronous, allowed = problem[2].reshape(-1), problem[3], problem[4]
        made, dropped, workspace, degree, first_tensor = problem[6:11]
        size, consumer = problem[13], problem[17]
        num_ops, rows = degree.size, np.uint64(degree.size)

        tallies, entries = create_sorter(num_ops)
        by_rank, rank = np.empty(num_ops, np.uint32), np.empty(num_ops, np.uint32)
        words, begin = create_sets(num_ops, num_devices, levels)
        top = begin[levels - 1]
        heap = np.empty(num_ops * num_devices, np.uint64)  # by (time, op), one for each device
        late = np.zeros(num_devices, np.uint64)  # how many ops are in it
        device = np.empty(num_ops, np.uint32)
        waits = np.empty(num_ops, np.int64)  # tensors an op waits for, when the others arrived
        cells = np.empty(size.size * num_devices, np.int64)  # readers left, and the first use
        following = np.empty(consumer.size, np.int32)  # the next use of the same, or -1
        away = np.empty(size.size * masks, np.uint64)  # devices where a tensor is read
        sends = np.empty(num_ops, np.bool_)
        free = np.empty(num_devices, np.int64)
        link_free = np.empty(num_devices * num_devices, np.int64)
        live, peak = np.empty(num_devices, np.int32), np.empty(num_devices, np.int32)
        runs = np.empty(num_devices, np.uint64)  # the op that runs and will send
        end_event = np.empty(num_devices, np.int64)  # when it does
        event = np.empty(num_devices, np.int64)

        for candidate in range(low, high):
            place(device_keys[candidate], allowed, device)
            link(problem, device, cells, following, away, sends)
            if not first_come:
                rank_by_key(priorities[candidate], tallies, entries, by_rank, rank)
            for reader in range(num_ops):
                waits[reader] = degree[reader] * _COUNT
            free[:] = 0
            link_free[:] = 0
            live[:] = 0
            event[:] = _NEVER
            end_event[:] = _NEVER
            for source in inputs:
                for t in range(first_tensor[source], first_tensor[source + _ONE]):
                    live[device[source]] += size[t]
            peak[:] = live
            for source in inputs:
                live[device[source]] -= dropped[source]
            for source in sources:
                on = np.uint64(device[source])
                if first_come:
                    push_entry(heap, on * rows, late[on], source)
                    late[on] += _ONE
                else:
                    add(words, begin, devices, levels, on, np.uint64(rank[source]))
                event[on] = _IS_START | np.int64(on)

            num_sent = 0
            while True:
                if num_sent < inputs.size:
                    op, now = inputs[num_sent], np.int64(0)
                    here = np.uint64(device[op])
                    num_sent += 1
                else:
                    first = event[0]
                    for d in range(1, num_devices):
                        first = min(first, event[d])
                    if first == _NEVER:
                        break
                    now = first >> _TIME
                    here = np.uint64(first & np.int64(255)) if num_devices > 1 else _NONE
                    if first & _IS_START == 0:
                        op = runs[here]
                        end_event[here] = _NEVER
                    else:
                        base = here * rows
                        if first_come:
                            op = pop_entry(heap, base, late[here]) & _ITEM
                            late[here] -= _ONE
                        else:
                            while late[here] > _NONE and np.int64(heap[base] >> _KEY) <= now:
                                arrived = pop_entry(heap, base, late[here]) & _ITEM
                                late[here] -= _ONE
                                add(words, begin, devices, levels, here, np.uint64(rank[arrived]))
                            op = np.uint64(by_rank[take(words, begin, devices, levels, here)])
                        now += op_ticks[op * devices + here]
                        free[here] = now
                        used = live[here] + made[op]
                        peak[here] = max(peak[here], used + workspace[op])
                        used -= dropped[op]
                        k = first_read[op]
                        slot = read[k]
                        while slot != _END:
                            cell = cells[np.uint64(slot) + here] - _COUNT
                            cells[np.uint64(slot) + here] = cell
                            used -= freed[k] & np.int32((cell - _COUNT) >> 63)
                            k += np.uint32(1)
                            slot = read[k]
                        live[here] = used
                        if num_devices > 1 and sends[op]:
                            runs[here] = op
                            end_event[here] = now << _TIME | np.int64(here)
                            event[here] = end_event[here]
                            continue

                for t in range(first_tensor[op], first_tensor[op + _ONE]):
                    at_home = np.uint64(t) * devices + here
                    for word in range(masks):
                        bits = away[t * masks + word]
                        while bits != _NONE:
                            to = lowest(bits) + np.uint64(64 * word) if num_devices > 1 else _NONE
                            bits &= bits - _ONE
                            end = now
                            if to != here:
                                through = channel[here * devices + to]
                                if through >= 0:
                                    end = max(end, link_free[through])
                                if synchronous:
                                    end = max(end, max(free[here], free[to]))
                                end += transfer_ticks[at_home * devices + to]
                                if through >= 0:
                                    link_free[through] = end
                                if synchronous:
                                    free[here] = end
                                    free[to] = end
                                live[to] += size[t]
                                peak[to] = max(peak[to], live[to])
                                cell = cells[at_home] - _COUNT
                                cells[at_home] = cell
                                live[here] -= size[t] & np.int32((cell - _COUNT) >> 63)
                            base, free_there = to * rows, free[to]
                            use = np.int32(cells[np.uint64(t) * devices + to])
                            while use >= 0:
                                reader = np.uint64(consumer[np.uint32(use)])
                                use = following[np.uint32(use)]
                                time = max(waits[reader] & _USE, end)
                                missing = (waits[reader] >> 32) - 1
                                waits[reader] = missing << 32 | time
                                if missing == 0:
                                    if not first_come and time <= free_there:
                                        ready = np.uint64(rank[reader])
                                        add(words, begin, devices, levels, to, ready)
                                    else:
                                        arrival = np.uint64(time) << _KEY | reader
                                        push_entry(heap, base, late[to], arrival)
                                        late[to] += _ONE
                            if to != here:
                                is_ready = words[top + to] != _NONE
                                start = next_start(to, free_there, is_ready, late[to], heap[base])
                                event[to] = min(start, end_event[to])
                base, is_ready = here * rows, words[top + here] != _NONE
                event[here] = next_start(here, free[here], is_ready, late[here], heap[base])
            makespans[candidate] = free.max()
            peaks[candidate] = peak

    return run
