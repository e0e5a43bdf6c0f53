"""A `Graph` as a jraph `GraphsTuple` with features."""

from typing import Any, NamedTuple, TypeAlias

import jraph
import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.graph import MAX_RANK, Graph, Shape, is_input, shape_of
from gopt.graph.padding import pad
from gopt.heuristics.schedule.orders.memory_orders import (
    held_at_peak,
    lowest_order,
    relative_positions,
)
from gopt.heuristics.schedule.placement.spectral import op_coordinates

GraphsTuple: TypeAlias = jraph.GraphsTuple

SPECTRAL = 3  # eigenvectors among the features

OP_FEATURES: tuple[str, ...] = (
    *("flops", "bytes", "workspace"),
    *("read", "made", "last_reader", "balance", "share"),
    *("reads", "readers", "outputs"),
    *("depth", "height", "slack", "index", "reach", "age"),
    *("turn", "is_late", "held", "side_x", "side_y"),
    *("is_input", "pinned"),
    *(f"spectral_{rank}" for rank in range(SPECTRAL)),
    *(f"dimension_{axis}" for axis in range(MAX_RANK)),
)


class Guide(NamedTuple):
    """A schedule that features describe.

    Attributes:
      order: int64, ops without inputs, in the order of issue.
      side: float64 `[N, 2]`, place of each op in a plane in which devices are directions (see
        `gopt.heuristics.schedule.placement.spectral.sides`). None: the first two spectral places.
    """

    order: np.ndarray
    side: np.ndarray | None = None


def to_graphs_tuple(graph: Graph, guide: Guide | None = None) -> GraphsTuple:
    """Return one graph as a `GraphsTuple` of two graphs: the real rows and the padding.

    One padding row is added if the graph has none, as in `gopt.cost.schedule.problem.prepare`. The
    default guide is the memory order with the lowest peak on one device (see
    `gopt.heuristics.schedule.orders.memory_orders.lowest_order`).

    Edges are uses, from producer to consumer. `nodes` is a dict of `kind` (int32 `[N]`) and
    `features` (float32 `[N, F]`), `edges` float32 `[E, 2]`. Features do not depend on the units
    of the graph: sizes and costs are log(1 + x / mean), counts log(1 + x), positions in 0..1.
    In the order of `OP_FEATURES`:

    - flops, bytes, workspace: cost of the op;
    - read, made: bytes of all inputs and outputs;
    - last_reader: bytes of inputs that nobody else reads;
    - balance: (made - last_reader) / (made + last_reader);
    - share: the larger of read and made, as a share of all bytes;
    - reads, readers, outputs: numbers of inputs, of uses of the outputs, of outputs;
    - depth, height: longest path from a source and to a sink, in ops;
    - slack: longest path of all minus the longest path through the op;
    - index: position in program order;
    - reach, age: distance to the last reader and to the first producer in program order;
    - turn: position in the order of the guide; an input has its first reader's position;
    - is_late: whether that is after the peak of this order on one device;
    - held: bytes of its outputs that are held at the peak;
    - side_x, side_y: the side of the guide;
    - is_input; pinned: whether one of its outputs is never freed;
    - spectral: places along eigenvectors of the graph, see
      `gopt.heuristics.schedule.placement.spectral`;
    - the dimensions of its largest output.

    The two features of a use are the size of the tensor and its number of readers.
    """
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    if min(np.subtract(shape_of(graph), (n, t, e))) < 1:
        graph = pad(graph, Shape(n + 1, t + 1, e + 1))
    rows = shape_of(graph)
    producer, size = np.asarray(graph.producer)[:t], np.asarray(graph.size)[:t]
    tensor, consumer = np.asarray(graph.tensor)[:e], np.asarray(graph.consumer)[:e]
    sender = producer[tensor]
    readers = np.bincount(tensor, minlength=t)

    def per_op(index: np.ndarray, weight: Any = None) -> np.ndarray:
        return np.bincount(index, weight, minlength=n).astype(np.float64)

    read, made = per_op(consumer, size[tensor]), per_op(producer, size)
    last_reader = per_op(consumer, size[tensor] * (readers[tensor] == 1))
    depth = _longest_path(sender, consumer, n)
    height = _longest_path(n - 1 - consumer, n - 1 - sender, n)[::-1]
    longest = max(1, int(depth.max()))
    index = np.arange(n)
    last, first = index.copy(), index.copy()
    np.maximum.at(last, sender, consumer)
    np.minimum.at(first, consumer, sender)
    problem = prepare(graph, unit_rate_devices(1))
    spectral = op_coordinates(problem, SPECTRAL)
    columns = [
        *(_relative(np.asarray(getattr(graph, field))[:n]) for field in OP_FEATURES[:2]),
        np.log1p(np.asarray(graph.workspace)[:n] / max(1.0, size.mean() if t else 1.0)),
        *(_relative(values) for values in (read, made, last_reader)),
        (made - last_reader) / np.maximum(made + last_reader, 1),
        np.maximum(read, made) / max(1, size.sum()),
        *(np.log1p(c) for c in (per_op(consumer), per_op(sender), per_op(producer))),
        *(depth / longest, height / longest, (depth.max() - depth - height) / longest),
        *(index / n, (last - index) / n, (index - first) / n),
        *_along_the_guide(problem, guide, spectral),
        np.asarray(is_input(graph))[:n],
        per_op(producer, np.asarray(graph.pinned)[:t]) > 0,
        *spectral,
    ]
    features = np.zeros((rows.ops, len(OP_FEATURES)), np.float32)
    features[:n] = np.concatenate([np.stack(columns, 1), np.log1p(largest_dimensions(graph))], 1)
    edges = np.zeros((rows.uses, 2), np.float32)
    edges[:e] = np.stack([_relative(size)[tensor], np.log1p(readers)[tensor]], 1)
    return GraphsTuple(
        nodes={"kind": np.asarray(graph.kind), "features": features},
        edges=edges,
        senders=np.asarray(graph.producer)[np.asarray(graph.tensor)],
        receivers=np.asarray(graph.consumer),
        globals=None,
        n_node=np.array([n, rows.ops - n], np.int32),
        n_edge=np.array([e, rows.uses - e], np.int32),
    )


def largest_dimensions(graph: Graph) -> np.ndarray:
    """Return the dimensions of the largest output of each real op, 0 if missing, `[n, RANK]`."""
    n, t = int(graph.num_ops), int(graph.num_tensors)
    producer, size = np.asarray(graph.producer)[:t], np.asarray(graph.size)[:t]
    by_size = np.argsort(size, kind="stable")
    dimensions = np.zeros((n, MAX_RANK))
    dimensions[producer[by_size]] = np.maximum(np.asarray(graph.shape)[by_size], 0)
    return dimensions


def _along_the_guide(
    problem: Problem, guide: Guide | None, spectral: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return turn, is_late, held, side_x and side_y of each op."""
    count = spectral.shape[1]
    order, side = guide or Guide(lowest_order(problem))
    turn = relative_positions(problem, order)
    held, peak = held_at_peak(problem, order)
    is_late = turn[:count] > peak / max(order.size, 1)
    x, y = spectral[:2] if side is None else side[:count].T
    return turn[:count], is_late, _relative(held[:count]), x, y


def _relative(values: np.ndarray) -> np.ndarray:
    mean = values.mean() if values.size else 0.0
    return np.log1p(values / mean) if mean > 0 else np.zeros(values.shape)


def _longest_path(sender: np.ndarray, receiver: np.ndarray, count: int) -> np.ndarray:
    """Return the length in edges of the longest path to each op, in topological order."""
    length = [0] * count
    order = np.argsort(sender, kind="stable")
    for i, j in zip(sender[order].tolist(), receiver[order].tolist(), strict=True):
        length[j] = max(length[j], length[i] + 1)
    return np.array(length)
