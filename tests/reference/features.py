"""Features of a graph in plain Python, straight from their definitions."""

import math

import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.graph import MAX_RANK, Graph
from gopt.graph.kinds import KINDS
from gopt.heuristics.schedule.orders.memory_orders import ORDERS
from tests.reference.execution import run


def _relative(values: list[float]) -> list[float]:
    mean = sum(values) / len(values) if values else 0
    return [math.log(1 + v / mean) if mean > 0 else 0.0 for v in values]


def _longest(neighbours: list[set[int]], order: list[int]) -> list[int]:
    length = [0] * len(neighbours)
    for op in order:
        length[op] = max((length[other] + 1 for other in neighbours[op]), default=0)
    return length


def peak_of_order(problem: Problem, order: list[int]) -> tuple[int, int, list[int]]:
    """Return an order's peak on one device, its first position, and each op's held units there."""
    n, t = problem.shape.ops, problem.shape.tensors
    if not order:
        return 0, 0, [0] * n
    priority = np.zeros(n, np.float32)
    priority[order] = np.arange(1, len(order) + 1) / (len(order) + 1)
    found = run(problem, Keys(np.zeros((n, 1)), priority, np.zeros((t, 1))))
    issued = [(op, used) for op, used in zip(found.order, found.usage, strict=True) if op in order]
    assert [op for op, _ in issued] == list(order)
    peak = max(used for _, used in issued)
    place = next(k for k, (_, used) in enumerate(issued) if used == peak)
    before = set(order[:place])  # issued before that op
    held = [0] * n
    for tensor in range(int(problem.num_tensors)):
        uses = slice(problem.first_use[tensor], problem.first_use[tensor + 1])
        readers = {int(op) for op in problem.consumer[uses]}
        maker = int(problem.producer[tensor])
        is_made = bool(problem.is_input[maker]) or maker in set(order[: place + 1])
        is_left = bool(problem.pinned[tensor]) or bool(readers - before) or maker == order[place]
        if is_made and is_left:
            held[maker] += int(problem.size[tensor])
    return peak, place, held


def lowest_order(graph: Graph) -> list[int]:
    """Return the memory order with the lowest peak on one device."""
    problem = prepare(graph, unit_rate_devices(1))
    orders = [list(order(problem)) for order in ORDERS]
    return min(orders, key=lambda order: peak_of_order(problem, order)[0])


def along(graph: Graph, order: list[int]) -> dict[str, list[float]]:
    """Return features of ops in an order: position, whether after the peak, held memory there."""
    _, place, held = peak_of_order(prepare(graph, unit_rate_devices(1)), order)
    ops = range(int(graph.num_ops))

    def turn(op: int) -> float:
        if op in order:
            return order.index(op)
        reads = [
            order.index(int(consumer))
            for tensor, consumer in zip(graph.tensor, graph.consumer, strict=True)
            if graph.producer[tensor] == op
        ]
        return min(reads, default=len(order))

    count = max(1, len(order))
    return {
        "turn": [turn(op) / count for op in ops],
        "is_late": [float(turn(op) > place) for op in ops],
        "held": _relative([float(held[op]) for op in ops]),
    }


def op_features(graph: Graph, order: list[int] | None = None) -> dict[str, list[float]]:
    """Return features of the real ops of an unpadded graph by name, without plane coordinates.

    The order is the guide's; by default `lowest_order`.
    """
    n = int(graph.num_ops)
    ops = range(n)
    size = [float(s) for s in graph.size]
    made_by = [[t for t, producer in enumerate(graph.producer) if producer == i] for i in ops]
    read_by: list[list[int]] = [[] for _ in ops]
    readers: list[list[int]] = [[] for _ in size]
    for tensor, consumer in zip(graph.tensor, graph.consumer, strict=True):
        read_by[consumer].append(int(tensor))
        readers[tensor].append(int(consumer))
    before = [{int(graph.producer[t]) for t in read_by[i]} for i in ops]
    after = [{j for t in made_by[i] for j in readers[t]} for i in ops]
    depth = _longest(before, list(ops))
    height = _longest(after, list(reversed(ops)))
    longest = max(depth)

    read = [sum(size[t] for t in read_by[i]) for i in ops]
    made = [sum(size[t] for t in made_by[i]) for i in ops]
    last = [sum(size[t] for t in read_by[i] if len(readers[t]) == 1) for i in ops]
    mean_size = max(1.0, sum(size) / len(size)) if size else 1.0
    largest = [max(made_by[i], key=lambda t: (size[t], t), default=None) for i in ops]

    def dimension(tensor: int | None, axis: int) -> float:
        value = -1 if tensor is None else int(graph.shape[tensor][axis])
        return math.log(1 + value) if value > 0 else 0.0

    return {
        "flops": _relative([float(x) for x in graph.flops]),
        "bytes": _relative([float(x) for x in graph.bytes]),
        "workspace": [math.log(1 + float(w) / mean_size) for w in graph.workspace],
        "read": _relative(read),
        "made": _relative(made),
        "last_reader": _relative(last),
        "balance": [
            (m - f) / (m + f) if m + f > 0 else 0.0 for m, f in zip(made, last, strict=True)
        ],
        "share": [max(r, m) / max(1, sum(size)) for r, m in zip(read, made, strict=True)],
        "reads": [math.log(1 + len(read_by[i])) for i in ops],
        "readers": [math.log(1 + sum(len(readers[t]) for t in made_by[i])) for i in ops],
        "outputs": [math.log(1 + len(made_by[i])) for i in ops],
        "depth": [d / max(1, longest) for d in depth],
        "height": [h / max(1, longest) for h in height],
        "slack": [(longest - depth[i] - height[i]) / max(1, longest) for i in ops],
        "index": [i / n for i in ops],
        "reach": [(max(after[i], default=i) - i) / n for i in ops],
        "age": [(i - min(before[i], default=i)) / n for i in ops],
        **along(graph, lowest_order(graph) if order is None else order),
        "is_input": [float(KINDS[k] == "input") for k in graph.kind],
        "pinned": [float(any(graph.pinned[t] for t in made_by[i])) for i in ops],
        **{f"dimension_{axis}": [dimension(t, axis) for t in largest] for axis in range(MAX_RANK)},
    }


def use_features(graph: Graph) -> list[tuple[float, float]]:
    """Return features of the real uses of an unpadded graph."""
    size = _relative([float(s) for s in graph.size])
    readers = [int(np.sum(graph.tensor == t)) for t in range(len(size))]
    return [(size[t], math.log(1 + readers[t])) for t in graph.tensor]
