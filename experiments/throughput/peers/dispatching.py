"""Cost candidates of priority dispatch in numba, as an expert would write it for CPUs.

Scalar code costs one candidate after another. Candidates are spread over threads that keep their
workspace. Results equal `gopt.cost.schedule.dispatch.evaluate` bit for bit, for up to 64 devices.

The next event of a device is the end of its running op, or the start of the best op. Ops that
arrive while their device is busy are in a heap by key, later ones in a heap by time. First come,
first served, all ops are in the second heap. Reasons for its speed:

- ops whose tensors stay on the device need no end event: their readers are notified at the start,
  because nothing else starts on that device before the end;
- the readers of a (tensor, device) are a linked list, whose head lies beside its length; a word of
  bits holds the devices that a tensor is sent to;
- the number of devices is a constant, indices are unsigned, and devices are chosen and tensors
  freed without branches.

Without benefit: sets of ranks after a radix sort instead of heaps of keys (0 to 30 % fewer
candidates per second).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from experiments.throughput.peers import compiled
from experiments.throughput.peers.queues import FUNCTIONS, lowest
from experiments.throughput.peers.threads import in_parts
from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.problem import Problem

_NEVER = np.int64(2**62)  # later than all events
_IS_START, _TIME = np.int64(64), np.int64(7)  # an event packs its time, a start bit and its device
_READERS, _FIRST = 0, 1  # number of remaining readers, first use
_MISSING, _ARRIVED = 0, 1  # number of tensors an op waits for, latest arrival of the others
_ZERO, _ONE, _DEVICE, _KEY = np.uint64(0), np.uint64(1), np.uint64(63), np.uint64(32)


class Tables(NamedTuple):
    """A problem in the dispatcher's format."""

    problem: compiled.Tables
    inputs: Any  # uint64, input ops
    sources: Any  # uint64, other ops that read nothing


def tables(problem: Problem) -> Tables:
    """Return the tables that the dispatcher reads, computed once for each problem."""
    found = compiled.tables(problem)
    reads_nothing = found.degree == 0
    return Tables(
        problem=found,
        inputs=np.flatnonzero(found.is_input).astype(np.uint64),
        sources=np.flatnonzero(reads_nothing & ~found.is_input).astype(np.uint64),
    )


def evaluate(problem: Tables, keys: Keys) -> Cost:
    """Return the costs of a population.

    Args:
      problem: tables from `tables`.
      keys: NumPy arrays, float32 `[P, ...]`. Transfer keys are not read. If the priorities are
        None, ops are dispatched first come, first served.

    Raises:
      ValueError: the problem has more than 64 devices.
    """
    devices = keys.device.shape[-1]
    if devices > 64:
        raise ValueError(f"keys.device has {devices} devices: expected 64 at most")
    first_come = keys.priority is None
    given = keys.device, (keys.device[:, :, 0] if first_come else keys.priority)
    return in_parts(_dispatcher(devices, first_come), problem, given)


@cache
def _dispatcher(num_devices: int, first_come: bool) -> Callable[..., None]:
    """Return a function that costs candidates `low` to `high` of a population, in one thread.

    Numba takes the arguments of this function as constants and drops branches that they rule out.
    """
    devices = np.uint64(num_devices)
    _, push, pop = FUNCTIONS["heap"]
    place = compiled.placing(num_devices)

    @njit
    def link(problem: Any, device: Any, reads: Any, following: Any, goes: Any, sends: Any) -> None:
        """Link the readers of each (tensor, device), and find the transfers."""
        tensor, consumer, producer = problem.tensor, problem.consumer, problem.producer
        reads[:, _READERS] = 0
        reads[:, _FIRST] = -1
        goes[:] = _ZERO
        sends[:] = False
        for use in range(consumer.size):
            on = np.uint64(device[consumer[use]])
            slot = np.uint64(tensor[use]) * devices + on
            following[use] = reads[slot, _FIRST]
            reads[slot, _FIRST] = use
            reads[slot, _READERS] += 1
            goes[tensor[use]] |= _ONE << on
        for t in range(producer.size):
            home = np.uint64(device[producer[t]])
            others = goes[t] & ~(_ONE << home)
            sends[producer[t]] |= others != _ZERO
            readers = np.int32(problem.pinned[t])  # pinned: a reader that never comes
            while others != _ZERO:
                readers += 1  # type: ignore[assignment]
                others &= others - _ONE
            reads[np.uint64(t) * devices + home, _READERS] += readers

    @njit(inline="always")
    def next_start(on: Any, free: Any, num_ready: Any, num_late: Any, late: Any) -> Any:
        """Return the start event of the best op on a device, once it is free."""
        arrived = np.int64(late[on, 0] >> _KEY)
        time = free[on] if num_ready[on] != _ZERO else max(free[on], arrived)
        event = time << _TIME | _IS_START | np.int64(on)
        return event if (num_ready[on] | num_late[on]) != _ZERO else _NEVER

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
        problem = tables.problem
        op_ticks, allowed = problem.op_ticks.reshape(-1), problem.allowed
        transfer_ticks, channel = problem.transfer_ticks.reshape(-1), problem.channel.reshape(-1)
        first_tensor, size, consumer = problem.first_tensor, problem.size, problem.consumer
        first_read, read = problem.first_read, problem.read
        num_ops = problem.degree.size

        device = np.empty(num_ops, np.uint32)
        waits = np.empty((num_ops, 2), np.int32)
        reads = np.empty((size.size * num_devices, 2), np.int32)  # of each (tensor, device)
        following = np.empty(consumer.size, np.int32)  # the next use of the same, or -1
        goes = np.empty(size.size, np.uint64)  # bits of the devices that a tensor is sent to
        sends = np.empty(num_ops, np.bool_)  # whether an op has transfers
        ready = np.empty((num_devices, num_ops), np.uint64)  # heaps of ops by key
        late = np.empty((num_devices, num_ops), np.uint64)  # heaps of ops by time of arrival
        num_ready, num_late = np.zeros(num_devices, np.uint64), np.zeros(num_devices, np.uint64)
        free = np.empty(num_devices, np.int64)
        link_free = np.empty(num_devices * num_devices, np.int64)
        live, peak = np.empty(num_devices, np.int32), np.empty(num_devices, np.int32)
        runs = np.empty(num_devices, np.uint64)  # the op that runs and will send
        end_event = np.empty(num_devices, np.int64)  # time when that op ends
        event = np.empty(num_devices, np.int64)  # next event of each device

        for candidate in range(low, high):
            priority = priorities[candidate]
            place(device_keys[candidate], allowed, device)
            link(problem, device, reads, following, goes, sends)
            waits[:, _MISSING] = problem.degree
            waits[:, _ARRIVED] = 0
            free[:] = 0
            link_free[:] = 0
            live[:] = 0
            event[:] = _NEVER
            end_event[:] = _NEVER
            for op in tables.inputs:
                for t in range(first_tensor[op], first_tensor[op + _ONE]):
                    live[device[op]] += size[t]
            peak[:] = live
            for op in tables.inputs:
                live[device[op]] -= problem.dropped[op]
            for op in tables.sources:
                on = np.uint64(device[op])
                if first_come:
                    num_late[on] = push(late[on], num_late[on], np.int32(0), op)
                else:
                    num_ready[on] = push(ready[on], num_ready[on], priority[op], op)
                event[on] = _IS_START | np.int64(on)

            num_sent = 0
            while True:
                if num_sent < tables.inputs.size:
                    op, now = tables.inputs[num_sent], np.int64(0)
                    here = np.uint64(device[op])
                    num_sent += 1
                else:
                    first = event[0]
                    for d in range(1, num_devices):
                        first = min(first, event[d])
                    if first == _NEVER:
                        break
                    now = first >> _TIME
                    here = np.uint64(first) & _DEVICE if num_devices > 1 else _ZERO
                    if first & _IS_START == 0:
                        op = runs[here]
                        end_event[here] = _NEVER
                    else:
                        if first_come:
                            item, num_late[here] = pop(late[here], num_late[here])
                        else:
                            while num_late[here] > 0 and np.int64(late[here, 0] >> _KEY) <= now:
                                item, num_late[here] = pop(late[here], num_late[here])
                                num_ready[here] = push(
                                    ready[here], num_ready[here], priority[item], item
                                )
                            item, num_ready[here] = pop(ready[here], num_ready[here])
                        op = np.uint64(item)
                        now += op_ticks[op * devices + here]
                        free[here] = now
                        used = live[here] + problem.made[op]
                        peak[here] = max(peak[here], used + problem.workspace[op])
                        used -= problem.dropped[op]
                        for k in range(first_read[op], first_read[op + _ONE]):
                            slot = np.uint64(read[k]) * devices + here
                            readers = reads[slot, _READERS] - np.int32(1)
                            reads[slot, _READERS] = readers
                            used -= size[read[k]] * np.int32(readers == 0)
                        live[here] = used
                        if num_devices > 1 and sends[op]:
                            runs[here] = op
                            end_event[here] = now << _TIME | np.int64(here)
                            event[here] = end_event[here]
                            continue

                for t in range(first_tensor[op], first_tensor[op + _ONE]):
                    at_home = np.uint64(t) * devices + here
                    left = goes[t]
                    while left != _ZERO:
                        to = lowest(left) if num_devices > 1 else _ZERO
                        left &= left - _ONE
                        end = now
                        if to != here:
                            through = channel[here * devices + to]
                            if through >= 0:
                                end = max(end, link_free[through])
                            if problem.synchronous:
                                end = max(end, max(free[here], free[to]))
                            end += transfer_ticks[at_home * devices + to]
                            if through >= 0:
                                link_free[through] = end
                            if problem.synchronous:
                                free[here] = end
                                free[to] = end
                            live[to] += size[t]
                            peak[to] = max(peak[to], live[to])
                            readers = reads[at_home, _READERS] - np.int32(1)
                            reads[at_home, _READERS] = readers
                            live[here] -= size[t] * np.int32(readers == 0)
                        use = reads[np.uint64(t) * devices + to, _FIRST]
                        while use >= 0:
                            reader = np.uint64(consumer[np.uint32(use)])
                            use = following[np.uint32(use)]
                            arrived = np.int32(max(np.int64(waits[reader, _ARRIVED]), end))
                            waits[reader, _ARRIVED] = arrived
                            waits[reader, _MISSING] -= 1
                            if waits[reader, _MISSING] == 0:
                                if not first_come and arrived <= free[to]:
                                    num_ready[to] = push(
                                        ready[to], num_ready[to], priority[reader], reader
                                    )
                                else:
                                    num_late[to] = push(late[to], num_late[to], arrived, reader)
                        if to != here:
                            start = next_start(to, free, num_ready, num_late, late)
                            event[to] = min(start, end_event[to])
                event[here] = next_start(here, free, num_ready, num_late, late)
            makespans[candidate] = free.max()  # type: ignore[call-overload]
            peaks[candidate] = peak

    return run
