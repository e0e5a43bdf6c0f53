"""Simple orders that keep the peak memory low: depth first, breadth first, greedy release, XLA's.

Each one orders the ops of the graph. The order is then tried on every device alone, in
contiguous pieces of about equal bytes over 2, 3, … devices, and with every op on that of the
first 2, 3, … which holds least; the lowest peak is kept.
Transfers are issued just before their first reader. They run on the host.
"""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.encode import keys_from_items
from gopt.heuristics.schedule.orders.xla_orders import XLA_ORDERS
from gopt.heuristics.schedule.readiness import Waiting, reads_of


def depth_first(problem: Problem) -> Keys:
    """Returns the keys of the order that goes on with the op that became ready last."""
    return _lowest_peak(problem, depth_first_order(problem))


def breadth_first(problem: Problem) -> Keys:
    """Returns the keys of the order that goes on with the op that became ready first."""
    return _lowest_peak(problem, breadth_first_order(problem))


def greedy_release(problem: Problem) -> Keys:
    """Returns the keys of the order that releases most and makes least at each step."""
    return _lowest_peak(problem, greedy_release_order(problem))


def xla(problem: Problem) -> Keys:
    """Returns the keys of that of XLA's orders which peaks least on one device."""
    return _lowest_peak(problem, lowest_of(problem, XLA_ORDERS))


def program_order(problem: Problem) -> list[int]:
    """Returns the ops, but for inputs, in the order of the program."""
    return np.flatnonzero(~np.asarray(problem.is_input)[: int(problem.num_ops)]).tolist()


def depth_first_order(problem: Problem) -> list[int]:
    """Returns the ops, but for inputs, so that each is the one that became ready last."""
    waiting = Waiting(problem)
    stack, order = list(waiting.sources), []
    while stack:
        order.append(stack.pop())
        stack += waiting.issue(order[-1])
    return order


def breadth_first_order(problem: Problem) -> list[int]:
    """Returns the ops, but for inputs, so that each is the one that became ready first."""
    waiting = Waiting(problem)
    order = list(waiting.sources)
    for op in order:  # which grows meanwhile
        order += waiting.issue(op)
    return order


def greedy_release_order(problem: Problem) -> list[int]:
    """Returns the ops, but for inputs, so that each releases most and makes least.

    Of the ready ops, the one after which the least is held goes next, the lowest index on ties:
    what counts are the bytes that it makes less those that it is the last to read.
    """
    size, pinned = np.asarray(problem.size, np.int64), np.asarray(problem.pinned)
    readers = np.diff(problem.first_use)
    kept = _per_producer(problem, np.where((readers > 0) | pinned, size, 0)).tolist()
    first_use, consumer = problem.first_use.tolist(), problem.consumer.tolist()
    left, reads = readers.tolist(), reads_of(problem)
    waiting = Waiting(problem)
    issued = [False] * problem.shape.ops
    ready: list[tuple[int, int]] = []  # held after it, op; entries that are out of date stay
    is_ready = [False] * problem.shape.ops

    def add(op: int) -> None:
        is_ready[op] = True
        heapq.heappush(ready, (kept[op], op))

    def credit_last_reader(tensor: int) -> None:
        """Lets the only reader that a tensor still has release it."""
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


Order = Callable[[Problem], list[int]]  # of the ops, but for inputs

ORDERS: tuple[Order, ...] = (
    *(program_order, depth_first_order, breadth_first_order, greedy_release_order),
    *XLA_ORDERS,
)


def lowest_order(problem: Problem) -> np.ndarray:
    """Returns that of `ORDERS` which peaks least on one device, see `lowest_of`."""
    return np.array(lowest_of(problem, ORDERS), np.int64)


def lowest_of(problem: Problem, orders: Sequence[Order]) -> list[int]:
    """Returns that of some orders which peaks least on one device, the first on ties.

    Where ops may run does not count.
    """
    count = int(problem.num_ops)
    inputs = np.flatnonzero(np.asarray(problem.is_input)[:count]).tolist()
    alone = np.zeros(count, np.int64)
    found = [order(problem) for order in orders]
    lowest = [peaks(problem, alone, [*inputs, *order]).max() for order in found]
    return found[int(np.argmin(lowest))]


def turns(problem: Problem, order: np.ndarray) -> np.ndarray:
    """Returns when each op has its turn in an order of the ops that are no inputs, in 0..1.

    A float64 `[N]`. Inputs have the turn of their first reader; those that nobody reads, and
    padding, have 1.
    """
    real, uses = int(problem.num_ops), int(problem.num_uses)
    place = np.full(problem.shape.ops, float(order.size))
    place[order] = np.arange(order.size)
    maker = np.asarray(problem.producer)[problem.tensor[:uses]]
    given = np.asarray(problem.is_input)[maker]
    np.minimum.at(place, maker[given], place[problem.consumer[:uses]][given])
    place[real:] = order.size
    return place / max(order.size, 1)


def held_at_peak(problem: Problem, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns what is held when an order peaks on one device, and where that is.

    What is held is that of the tensors of each op, int64 `[N]`, units; the place in the order is
    that of the first op during which most is in use, 0 if there is none. The accounting is that of
    `peaks`, the order one of the ops that are no inputs.
    """
    real, uses = int(problem.num_tensors), int(problem.num_uses)
    time = np.zeros(problem.shape.ops, np.int64)  # inputs are there before the first op
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


def _per_producer(problem: Problem, units: np.ndarray) -> np.ndarray:
    """Sums units of tensors over the ops that make them; inputs make nothing when they run."""
    real = int(problem.num_tensors)
    total = np.zeros(problem.shape.ops, np.int64)
    np.add.at(total, problem.producer[:real], units[:real])
    return np.where(problem.is_input, 0, total)


def lowest_placement(problem: Problem, order: np.ndarray, wanted: Sequence[np.ndarray]) -> Keys:
    """Returns the keys of an order with that of some placements which peaks least.

    Args:
      problem: one problem, on the host.
      order: the ops, but for inputs, int64 `[K]`.
      wanted: devices of the ops of the order, `[K]` each, see `serial`.
    """
    schedules = [serial(problem, order, devices) for devices in wanted]
    device, items = min(schedules, key=lambda schedule: peaks(problem, *schedule).max())
    return keys_from_items(problem, device, items)


def _lowest_peak(problem: Problem, order: Sequence[int]) -> Keys:
    """Returns the keys of the best way to split an order over devices."""
    ops, devices = np.asarray(order, np.int64), problem.num_devices
    whole = [np.full(ops.size, device) for device in range(devices)]
    counts = range(2, devices + 1)
    split = [way(problem, ops, count) for way in SPLITS for count in counts]
    return lowest_placement(problem, ops, whole + split)


def _pieces(problem: Problem, ops: np.ndarray, count: int) -> np.ndarray:
    """Returns a device for each op of an order, pieces of about equal bytes made or first read."""
    size = np.asarray(problem.size, np.int64)
    made = _per_producer(problem, size)
    seen = np.zeros(problem.shape.tensors, bool)
    bytes = np.zeros(ops.size, np.int64)
    for k, op in enumerate(ops):
        tensors = problem.read[problem.first_read[op] : problem.first_read[op + 1]]
        fresh = tensors[~seen[tensors] & problem.is_input[problem.producer[tensors]]]
        seen[fresh] = True
        bytes[k] = made[op] + size[fresh].sum()
    middle = np.cumsum(bytes) - bytes / 2
    return np.minimum(count * middle / max(bytes.sum(), 1), count - 1).astype(np.int64)  # type: ignore[operator]


def _balanced(problem: Problem, ops: np.ndarray, count: int) -> np.ndarray:
    """Returns a device for each op of an order: of the first ones, that which will hold least.

    What it would hold are the tensors that it has, those that it lacks and what the op makes.
    """
    reads = reads_of(problem)
    size, pinned = problem.size.tolist(), problem.pinned.tolist()
    made = _per_producer(problem, np.asarray(problem.size, np.int64)).tolist()
    left = np.diff(problem.first_use).tolist()
    holders: list[set[int]] = [set() for _ in left]
    held = [0] * problem.num_devices
    wanted = []
    for op in ops.tolist():

        def after(device: int, op: int = op) -> int:
            lacks = sum(size[t] for t in reads[op] if device not in holders[t])
            return held[device] + lacks + made[op]

        choices = np.flatnonzero(problem.allowed[op]).tolist()
        device = min([d for d in choices if d < count] or choices, key=after)
        wanted.append(device)
        held[device] = after(device)
        for tensor in range(problem.first_tensor[op], problem.first_tensor[op + 1]):
            holders[tensor].add(device)
        for tensor in reads[op]:
            holders[tensor].add(device)
            left[tensor] -= 1
            if left[tensor] == 0 and not pinned[tensor]:
                for holder in holders[tensor]:
                    held[holder] -= size[tensor]
    return np.array(wanted, np.int64)


SPLITS = (_pieces, _balanced)  # ways to split an order over several devices


def serial(problem: Problem, ops: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Returns devices and items of an order, each op on the device nearest to the wanted one.

    Inputs are where they are read first, and transfers are issued just before their first reader.
    """
    n, devices = problem.shape.ops, problem.num_devices
    may = np.asarray(problem.allowed).tolist()
    producer, is_input = problem.producer.tolist(), np.asarray(problem.is_input)
    device = [-1] * int(problem.num_ops)

    def place(op: int, near: int) -> int:
        if not may[op][near]:
            choices = (other for other in range(devices) if may[op][other])
            near = min(choices, key=lambda other: abs(other - near))
        device[op] = near
        return near

    reads = reads_of(problem)
    items: list[int] = []
    sent: set[int] = set()
    for op, near in zip(ops.tolist(), wanted.tolist(), strict=True):
        to = place(op, near)
        for tensor in reads[op]:
            maker = producer[tensor]
            home = device[maker] if device[maker] >= 0 else place(maker, to)
            transfer = n + tensor * devices + to
            if home != to and transfer not in sent:
                sent.add(transfer)
                items.append(transfer)
        items.append(op)
    inputs = np.flatnonzero(is_input[: len(device)]).tolist()
    for op in inputs:
        if device[op] < 0:  # nobody reads it
            place(op, 0)
    return np.array(device), [*inputs, *items]


def peaks(problem: Problem, device: np.ndarray, items: Sequence[int]) -> np.ndarray:
    """Returns the peak memory of each device when items are issued in turn, int64 `[D]`, units.

    The accounting of `gopt.cost.schedule.execution`, for one complete issue order, on the host.

    Args:
      problem: one problem, on the host.
      device: device of each real op, `[N]`.
      items: every op and every transfer that the placement needs, in order of issue.
    """
    n, devices = problem.shape.ops, problem.num_devices
    order = np.asarray(items, np.int64)
    time = np.zeros(n + problem.shape.tensors * devices, np.int64)
    time[order] = np.arange(1, order.size + 1)  # 0 is the time before the first item
    tensors = np.arange(int(problem.num_tensors))
    maker = np.asarray(problem.producer)[tensors]
    home, size = np.asarray(device)[maker], np.asarray(problem.size, np.int64)

    transfers = order[order >= n] - n
    sent, to = transfers // devices, transfers % devices
    uses = slice(0, int(problem.num_uses))
    read, reader = problem.tensor[uses], problem.consumer[uses]

    def slot(tensor: np.ndarray, at: np.ndarray) -> np.ndarray:
        return tensor * devices + at

    last = np.zeros(problem.shape.tensors * devices, np.int64)  # time of the last reader there
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
