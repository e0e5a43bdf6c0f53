"""Orders with low peak memory, split over devices.

Each heuristic orders the ops of the graph, then splits the order over devices in three ways:

1. the whole order on each single device;
2. contiguous pieces of about equal bytes over the first 2, 3, … devices;
3. each op on the least full of the first 2, 3, … devices.

The schedule with the lowest peak is kept. Each transfer is issued just before its first reader. All
of this runs on the host.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Int64

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.encode import keys_from_items
from gopt.heuristics.schedule.orders.memory_orders import (
    breadth_first_order,
    depth_first_order,
    greedy_release_order,
    lowest_peak_order,
    peak_memory_of,
    per_producer,
)
from gopt.heuristics.schedule.orders.xla_orders import XLA_ORDERS
from gopt.heuristics.schedule.readiness import operands_by_op


def depth_first(problem: Problem) -> Keys:
    """Return the keys of the order that always runs the op that became ready last."""
    return _lowest_peak(problem, depth_first_order(problem))


def breadth_first(problem: Problem) -> Keys:
    """Return the keys of the order that always runs the op that became ready first."""
    return _lowest_peak(problem, breadth_first_order(problem))


def greedy_release(problem: Problem) -> Keys:
    """Return the keys of the order that greedily minimises allocated minus released bytes."""
    return _lowest_peak(problem, greedy_release_order(problem))


def xla(problem: Problem) -> Keys:
    """Return the keys of the XLA order with the lowest peak on one device."""
    return _lowest_peak(problem, lowest_peak_order(problem, XLA_ORDERS))


def lowest_peak_placement(
    problem: Problem, order: Int64[np.ndarray, " K"], placements: Sequence[np.ndarray]
) -> Keys:
    """Return the keys of an order with the placement that has the lowest peak.

    Args:
      problem: one problem, as NumPy arrays.
      order: non-input ops, int64 `[K]`.
      placements: placements to try, each with a preferred device per op of the order, `[K]`.
    """
    schedules = [serial_schedule(problem, order, devices) for devices in placements]
    device, items = min(schedules, key=lambda schedule: peak_memory_of(problem, *schedule).max())
    return keys_from_items(problem, device, items)


def _lowest_peak(problem: Problem, order: Sequence[int]) -> Keys:
    """Return the keys of the best split of an order over devices."""
    ops, devices = np.asarray(order, np.int64), problem.num_devices
    whole = [np.full(ops.size, device) for device in range(devices)]
    counts = range(2, devices + 1)
    split = [way(problem, ops, count) for way in SPLIT_METHODS for count in counts]
    return lowest_peak_placement(problem, ops, whole + split)


def _pieces(problem: Problem, ops: np.ndarray, count: int) -> np.ndarray:
    """Return a device per op of an order: contiguous pieces of about equal bytes.

    The bytes of an op are those that it produces and the inputs that it is the first to read.
    """
    size = np.asarray(problem.size, np.int64)
    made = per_producer(problem, size)
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
    """Return a device per op of an order: of the first `count`, the one that would hold least.

    A device would hold its current tensors, the operands that it lacks and the op's results.
    """
    reads = operands_by_op(problem)
    size, pinned = problem.size.tolist(), problem.pinned.tolist()
    made = per_producer(problem, np.asarray(problem.size, np.int64)).tolist()
    left = np.diff(problem.first_use).tolist()
    holders: list[set[int]] = [set() for _ in left]
    held = [0] * problem.num_devices
    devices = []
    for op in ops.tolist():

        def after(device: int, op: int = op) -> int:
            lacks = sum(size[t] for t in reads[op] if device not in holders[t])
            return held[device] + lacks + made[op]

        choices = np.flatnonzero(problem.allowed[op]).tolist()
        device = min([d for d in choices if d < count] or choices, key=after)
        devices.append(device)
        held[device] = after(device)
        for tensor in range(problem.first_tensor[op], problem.first_tensor[op + 1]):
            holders[tensor].add(device)
        for tensor in reads[op]:
            holders[tensor].add(device)
            left[tensor] -= 1
            if left[tensor] == 0 and not pinned[tensor]:
                for holder in holders[tensor]:
                    held[holder] -= size[tensor]
    return np.array(devices, np.int64)


SPLIT_METHODS = (_pieces, _balanced)  # ways to split an order over several devices


def serial_schedule(
    problem: Problem, ops: Int64[np.ndarray, " K"], preferred_devices: Int[np.ndarray, " K"]
) -> tuple[np.ndarray, list[int]]:
    """Return the devices and items of an order, each op on the allowed device nearest to its own.

    Inputs are placed where they are first read. Each transfer is issued just before its first
    reader.

    Args:
      problem: one problem, as NumPy arrays.
      ops: non-input ops in order, int64 `[K]`.
      preferred_devices: preferred device of each op of the order, int `[K]`; the nearest has the
        nearest index.

    Returns:
      The device of each real op, `[n]`, and all items in issue order, inputs first.
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

    reads = operands_by_op(problem)
    items: list[int] = []
    sent: set[int] = set()
    for op, near in zip(ops.tolist(), preferred_devices.tolist(), strict=True):
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
        if device[op] < 0:  # unread input
            place(op, 0)
    return np.array(device), [*inputs, *items]
