"""Simple orders with low peak memory: depth first, breadth first, greedy release and XLA's.

Orders are lists of the non-input ops. `gopt.heuristics.schedule.placement.order_splits` splits them
over devices. All of this runs on the host.
"""

import heapq
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.orders.xla_orders import XLA_ORDERS
from gopt.heuristics.schedule.readiness import ReadinessTracker, operands_by_op


def program_order(problem: Problem) -> list[int]:
    """Return the non-input ops in program order."""
    return np.flatnonzero(~np.asarray(problem.is_input)[: int(problem.num_ops)]).tolist()


def depth_first_order(problem: Problem) -> list[int]:
    """Return the non-input ops; the op that became ready last always goes next."""
    waiting = ReadinessTracker(problem)
    stack, order = list(waiting.sources), []
    while stack:
        order.append(stack.pop())
        stack += waiting.issue(order[-1])
    return order


def breadth_first_order(problem: Problem) -> list[int]:
    """Return the non-input ops; the op that became ready first always goes next."""
    waiting = ReadinessTracker(problem)
    order = list(waiting.sources)
    for op in order:  # the list grows during the loop
        order += waiting.issue(op)
    return order


def greedy_release_order(problem: Problem) -> list[int]:
    """Return the non-input ops; the op that leaves the least memory in use always goes next.

    The ready op with the smallest bytes produced minus bytes read for the last time goes next, the
    lowest index on ties.
    """
    size, pinned = np.asarray(problem.size, np.int64), np.asarray(problem.pinned)
    readers = np.diff(problem.first_use)
    kept = per_producer(problem, np.where((readers > 0) | pinned, size, 0)).tolist()
    first_use, consumer = problem.first_use.tolist(), problem.consumer.tolist()
    left, reads = readers.tolist(), operands_by_op(problem)
    waiting = ReadinessTracker(problem)
    issued = [False] * problem.shape.ops
    ready: list[tuple[int, int]] = []  # (change of memory, op); outdated entries stay
    is_ready = [False] * problem.shape.ops

    def add(op: int) -> None:
        is_ready[op] = True
        heapq.heappush(ready, (kept[op], op))

    def credit_last_reader(tensor: int) -> None:
        """Let the only remaining reader of a tensor release it."""
        if left[tensor] == 1 and not pinned[tensor]:
            readers = consumer[first_use[tensor] : first_use[tensor + 1]]
            last = next(op for op in readers if not issued[op])
            kept[last] -= int(size[tensor])
            if is_ready[last]:
                add(last)

    for tensor in range(int(problem.num_tensors)):
        credit_last_reader(tensor)
    for op in waiting.sources:
        add(op)
    order: list[int] = []
    while ready:
        _, op = heapq.heappop(ready)
        if issued[op]:
            continue
        order.append(op)
        issued[op] = True
        for tensor in reads[op]:
            left[tensor] -= 1
            credit_last_reader(tensor)
        for reader in waiting.issue(op):
            add(reader)
    return order


Order = Callable[[Problem], list[int]]  # to the non-input ops in order

ORDERS: tuple[Order, ...] = (
    *(program_order, depth_first_order, breadth_first_order, greedy_release_order),
    *XLA_ORDERS,
)


def lowest_order(problem: Problem) -> Int64[np.ndarray, " K"]:
    """Return the order of `ORDERS` with the lowest peak on one device, int64 `[K]`."""
    return np.array(lowest_peak_order(problem, ORDERS), np.int64)


def lowest_peak_order(problem: Problem, orders: Sequence[Order]) -> list[int]:
    """Return the order with the lowest peak on one device, the first on ties.

    Device constraints are ignored.

    Args:
      problem: one problem, as NumPy arrays.
      orders: functions from the problem to its non-input ops in order.
    """
    count = int(problem.num_ops)
    inputs = np.flatnonzero(np.asarray(problem.is_input)[:count]).tolist()
    alone = np.zeros(count, np.int64)
    found = [order(problem) for order in orders]
    lowest = [peak_memory_of(problem, alone, [*inputs, *order]).max() for order in found]
    return found[int(np.argmin(lowest))]


def relative_positions(
    problem: Problem, order: Int64[np.ndarray, " K"]
) -> Float64[np.ndarray, " N"]:
    """Return the relative position of each op in an order, float64 `[N]` in 0..1.

    An input has the position of its first reader. Unread inputs and padding have 1.

    Args:
      problem: one problem, as NumPy arrays.
      order: non-input ops, int64 `[K]`.
    """
    real, uses = int(problem.num_ops), int(problem.num_uses)
    place = np.full(problem.shape.ops, float(order.size))
    place[order] = np.arange(order.size)
    maker = np.asarray(problem.producer)[problem.tensor[:uses]]
    given = np.asarray(problem.is_input)[maker]
    np.minimum.at(place, maker[given], place[problem.consumer[:uses]][given])
    place[real:] = order.size
    return place / max(order.size, 1)


def held_at_peak(problem: Problem, order: Int64[np.ndarray, " K"]) -> tuple[np.ndarray, int]:
    """Return the memory held per op when an order peaks on one device, and the peak's position.

    The accounting is the same as in `peak_memory_of`. The peak is at the first op with the highest
    usage; its position is 0 for an empty order.

    Args:
      problem: one problem, as NumPy arrays.
      order: non-input ops, int64 `[K]`.

    Returns:
      Units held at the peak in the results of each op, int64 `[N]`, and the position in the order.
    """
    real, uses = int(problem.num_tensors), int(problem.num_uses)
    time = np.zeros(problem.shape.ops, np.int64)  # inputs exist before the first op
    time[order] = np.arange(1, order.size + 1)
    maker = np.asarray(problem.producer)[:real]
    size = np.asarray(problem.size, np.int64)[:real]
    last = time[maker]
    np.maximum.at(last, problem.tensor[:uses], time[problem.consumer[:uses]])
    last[np.asarray(problem.pinned)[:real]] = order.size
    change = np.zeros(order.size + 2, np.int64)
    np.add.at(change, time[maker], size)
    np.subtract.at(change, last + 1, size)
    usage = np.cumsum(change)[1:-1] + np.asarray(problem.workspace)[order]
    peak = int(np.argmax(usage)) if order.size else 0
    held = np.zeros(problem.shape.ops, np.int64)
    np.add.at(held, maker, np.where((time[maker] <= peak + 1) & (peak < last), size, 0))
    return held, peak


def peak_memory_of(
    problem: Problem, device: Shaped[np.ndarray, " n"], items: Sequence[int]
) -> Int64[np.ndarray, " D"]:
    """Return the peak memory of each device for one issue order, int64 `[D]`, in units.

    The accounting is the same as in `gopt.cost.schedule.execution`, for one complete order, in
    NumPy.

    Args:
      problem: one problem, as NumPy arrays.
      device: device of each real op, `[n]`.
      items: every op and every transfer that the placement needs, in issue order.
    """
    n, devices = problem.shape.ops, problem.num_devices
    order = np.asarray(items, np.int64)
    time = np.zeros(n + problem.shape.tensors * devices, np.int64)
    time[order] = np.arange(1, order.size + 1)  # 0 is before the first item
    tensors = np.arange(int(problem.num_tensors))
    maker = np.asarray(problem.producer)[tensors]
    home, size = np.asarray(device)[maker], np.asarray(problem.size, np.int64)

    transfers = order[order >= n] - n
    sent, to = transfers // devices, transfers % devices
    uses = slice(0, int(problem.num_uses))
    read, reader = problem.tensor[uses], problem.consumer[uses]

    def slot(tensor: np.ndarray, at: np.ndarray) -> np.ndarray:
        return tensor * devices + at

    last = np.zeros(problem.shape.tensors * devices, np.int64)  # last read of a tensor on a device
    np.maximum.at(last, slot(tensors, home), time[maker])
    np.maximum.at(last, slot(read, device[reader]), time[reader])
    np.maximum.at(last, slot(sent, home[sent]), time[n + transfers])

    change = np.zeros((order.size + 2, devices), np.int64)
    made_at = np.where(problem.is_input[maker], 0, time[maker])
    np.add.at(change, (made_at, home), size[tensors])
    np.add.at(change, (time[n + transfers], to), size[sent])
    freed = ~np.asarray(problem.pinned)[tensors]
    np.subtract.at(
        change,
        (last[slot(tensors, home)][freed] + 1, home[freed]),
        size[tensors][freed],
    )
    np.subtract.at(change, (last[transfers] + 1, to), size[sent])
    usage = np.cumsum(change, 0)
    ops = order[order < n]
    usage[time[ops], device[ops]] += np.asarray(problem.workspace)[ops]
    return usage.max(0)


def per_producer(problem: Problem, units: np.ndarray) -> Int64[np.ndarray, " N"]:
    """Sum tensor sizes per producer, int64 `[N]`; inputs count 0, since they allocate nothing."""
    real = int(problem.num_tensors)
    total = np.zeros(problem.shape.ops, np.int64)
    np.add.at(total, problem.producer[:real], units[:real])
    return np.where(problem.is_input, 0, total)
