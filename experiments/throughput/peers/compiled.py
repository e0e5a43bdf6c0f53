"""Cost candidates of list order in numba, as an expert would write it for CPUs.

Scalar code costs one candidate after another. Candidates are spread over threads that keep their
workspace. Results equal `gopt.cost.schedule.execution.evaluate` bit for bit. Measured reasons for
its speed:

- the uses of each (tensor, device) are a linked list, made in one flat pass. Uses on other devices
  are never visited, and an empty list means that no transfer is needed;
- of two queues of ready items, buckets win where many items are ready, a heap where few are;
- the number of devices is a constant (5 to 12 %), and indices are unsigned, which saves the test
  for negative ones (8 %);
- only requested costs are compiled: peak memory needs no clock, the makespan no counts.

Without benefit: more buckets, even for 80 000 ops; the fields of an op packed in one cache line;
memory in separate passes once the order is known, except where most ops read several tensors.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from experiments.throughput.peers.queues import FUNCTIONS
from experiments.throughput.peers.threads import in_parts
from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.problem import Problem

QUEUES = tuple(FUNCTIONS)


class Tables(NamedTuple):
    """A problem in the decoder's format. `N` ops, `T` tensors, `E` uses, `D` devices.

    Padding ops, tensors and uses are left out, but item numbers include them, as in `Problem`.
    """

    op_ticks: Any  # int32 [N, D], times of ops
    transfer_ticks: Any  # int32 [T, D, D], times of transfers
    channel: Any  # int32 [D, D], link of a pair of devices, or -1 without contention
    synchronous: Any  # bool, whether a transfer occupies both devices
    allowed: Any  # bool [N, D], devices of ops
    is_input: Any  # bool [N], input ops
    made: Any  # int32 [N], units that an op allocates; 0 for inputs
    dropped: Any  # int32 [N], units without a consumer, freed at the end of their op
    workspace: Any  # int32 [N], workspace in units
    degree: Any  # int32 [N], number of tensors that an op reads
    first_tensor: Any  # int32 [N + 1], first tensor of each op
    first_read: Any  # int32 [N + 1], first entry of each op in `read`
    read: Any  # uint32 [E], tensors, sorted by (consumer, tensor)
    size: Any  # int32 [T], units
    pinned: Any  # bool [T], tensors that are never freed on their producer's device
    producer: Any  # uint32 [T], producers of tensors
    tensor: Any  # uint32 [E], tensors of uses, sorted by (tensor, consumer)
    consumer: Any  # uint32 [E], consumers of uses


def tables(problem: Problem) -> Tables:
    """Return the tables that the decoder reads, computed once for each problem."""
    n, t, e = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    producer, size, pinned = problem.producer[:t], problem.size[:t], problem.pinned[:t]
    unread = (np.diff(problem.first_use[: t + 1]) == 0) & ~pinned

    def per_op(values: np.ndarray) -> np.ndarray:
        return np.bincount(producer, values, minlength=n).astype(np.int32)

    found = Tables(
        op_ticks=problem.op_ticks[:n],
        transfer_ticks=problem.transfer_ticks[:t],
        channel=problem.channel,
        synchronous=bool(problem.synchronous),
        allowed=problem.allowed[:n],
        is_input=problem.is_input[:n],
        made=np.where(problem.is_input[:n], 0, per_op(size)).astype(np.int32),
        dropped=per_op(np.where(unread, size, 0)),
        workspace=problem.workspace[:n],
        degree=np.diff(problem.first_read[: n + 1]).astype(np.int32),
        first_tensor=problem.first_tensor[: n + 1],
        first_read=problem.first_read[: n + 1],
        read=problem.read[:e].astype(np.uint32),
        size=size,
        pinned=pinned,
        producer=producer.astype(np.uint32),
        tensor=problem.tensor[:e].astype(np.uint32),
        consumer=problem.consumer[:e].astype(np.uint32),
    )
    # One memory layout is one compiled program.
    return Tables(*(np.ascontiguousarray(f) if np.ndim(f) else f for f in found))


def evaluate(
    problem: Tables, keys: Keys, *, queue: str = "buckets", makespan: bool = True, peak: bool = True
) -> Cost:
    """Return the costs of a population.

    Args:
      problem: tables from `tables`.
      keys: NumPy arrays, float32 `[P, ...]`.
      queue: name from `QUEUES`.
      makespan: whether to compute the makespan; else it is 0.
      peak: whether to compute the peak; else it is 0.
    """
    return in_parts(_decoder(queue, keys.device.shape[-1], makespan, peak), problem, keys)


@cache
def placing(num_devices: int) -> Callable[[Any, Any, Any], None]:
    """Return a function that writes the device of each op, without branches."""

    @njit
    def place(device_key: Any, allowed: Any, device: Any) -> None:
        for op in range(device.size):
            best, where = np.int32(-1), np.uint32(0)
            for d in range(num_devices):
                bits = max(device_key[op, d], np.int32(0)) if allowed[op, d] else np.int32(-1)
                where = np.uint32(d) if bits > best else where
                best = max(best, bits)
            device[op] = where

    return place


@cache
def _decoder(
    queue: str, num_devices: int, with_makespan: bool, with_peak: bool
) -> Callable[..., None]:
    """Return a function that costs candidates `low` to `high` of a population, in one thread.

    Numba takes the arguments of this function as constants and drops branches that they rule out.
    """
    create, push, pop = FUNCTIONS[queue]
    place = placing(num_devices)

    @njit(inline="always")
    def arrive(arrays: Any, use: Any, end: Any, state: Any) -> Any:
        """Record a tensor's arrival on a device: each reader there waits for one tensor less."""
        consumer, following, priority, waits, ready, queue = arrays
        while use >= 0:
            reader = consumer[use]
            use = following[use]
            if with_makespan:
                ready[reader] = max(ready[reader], end)
            waits[reader] -= 1
            if waits[reader] == 0:
                state = push(queue, state, priority[reader], reader)
        return state

    @njit(nogil=True, error_model="numpy")
    def run(
        problem: Any,
        device_keys: Any,
        priorities: Any,
        transfer_keys: Any,
        makespans: Any,
        peaks: Any,
        low: int,
        high: int,
    ) -> None:
        (op_ticks, transfer_ticks, channel, synchronous, allowed, is_input, made, dropped) = (
            problem[:8]
        )
        (workspace, degree, first_tensor, first_read, read, size, pinned, producer) = problem[8:16]
        tensor, consumer = problem[16], problem[17]
        num_ops, num_tensors, num_uses = degree.size, size.size, consumer.size
        rows = priorities.shape[1]  # the first transfer is item `rows`

        queue = create(rows + num_tensors * num_devices)
        device = np.empty(num_ops, np.uint32)
        waits = np.empty(num_ops, np.int32)  # number of tensors that an op still waits for
        ready = np.empty(num_ops, np.int32)  # latest arrival of the tensors so far
        done = np.empty(num_ops, np.int32)
        use_of = np.empty(num_tensors * num_devices, np.int32)  # a use of (tensor, device), or -1
        following = np.empty(num_uses, np.int32)  # the next use of the same
        # Remaining readers of (tensor, device).
        readers = np.zeros(num_tensors * num_devices, np.int32)
        free = np.empty(num_devices, np.int32)
        link = np.empty(num_devices * num_devices, np.int32)
        live = np.empty(num_devices, np.int32)
        peak = np.empty(num_devices, np.int32)

        for candidate in range(low, high):
            priority = priorities[candidate]
            transfer_key = transfer_keys[candidate].reshape(-1)
            arrivals = (consumer, following, priority, waits, ready, queue)
            free[:] = 0
            link[:] = 0
            live[:] = 0
            place(device_keys[candidate], allowed, device)
            waits[:] = degree
            ready[:] = 0
            use_of[:] = -1
            if with_peak:
                readers[:] = 0
            for use in range(num_uses):
                slot = tensor[use] * num_devices + device[consumer[use]]
                following[use] = use_of[slot]
                use_of[slot] = use
                if with_peak:
                    readers[slot] += 1
            if with_peak:
                for t in range(num_tensors):
                    home = device[producer[t]]
                    others = np.int32(pinned[t])  # pinned: a reader that never comes
                    for d in range(num_devices):
                        others += np.int32(d != home and readers[t * num_devices + d] > 0)
                    readers[t * num_devices + home] += others
                    if is_input[producer[t]]:
                        live[home] += size[t]
                peak[:] = live

            state = np.uint64(0)
            for op in range(num_ops):
                if waits[op] == 0:
                    state = push(queue, state, priority[op], op)
            last = np.int32(0)
            while state != 0:
                item, state = pop(queue, state)
                end = np.int32(0)
                if item < rows:
                    here = device[item]
                    if with_makespan:
                        if not is_input[item]:
                            end = max(free[here], ready[item]) + op_ticks[item, here]
                            free[here] = end
                            last = max(last, end)
                        done[item] = end
                    if with_peak:
                        now = live[here] + made[item]
                        peak[here] = max(peak[here], now + workspace[item])
                        now -= dropped[item]
                        for k in range(first_read[item], first_read[item + 1]):
                            t = read[k]
                            slot = t * num_devices + here
                            readers[slot] -= 1
                            now -= size[t] if readers[slot] == 0 else np.int32(0)
                        live[here] = now
                    for t in range(first_tensor[item], first_tensor[item + 1]):
                        for d in range(num_devices):
                            slot = t * num_devices + d
                            use = use_of[slot]
                            if d == here:
                                state = arrive(arrivals, use, end, state)
                            elif use >= 0:
                                state = push(queue, state, transfer_key[slot], rows + slot)
                else:
                    slot = item - rows
                    t = slot // num_devices
                    to = slot - t * num_devices
                    home = device[producer[t]]
                    if with_makespan:
                        through = channel[home, to]
                        begin = done[producer[t]]
                        if through >= 0:
                            begin = max(begin, link[through])
                        if synchronous:
                            begin = max(begin, max(free[home], free[to]))
                        end = begin + transfer_ticks[t, home, to]
                        if through >= 0:
                            link[through] = end
                        if synchronous:
                            free[home] = end
                            free[to] = end
                        last = max(last, end)
                    if with_peak:
                        live[to] += size[t]
                        peak[to] = max(peak[to], live[to])
                        source = t * num_devices + home
                        readers[source] -= 1
                        if readers[source] == 0:
                            live[home] -= size[t]
                    state = arrive(arrivals, use_of[slot], end, state)
            if with_makespan:
                makespans[candidate] = last
            if with_peak:
                peaks[candidate] = peak

    return run
