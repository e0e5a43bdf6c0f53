"""Graphs of one shape: pad, bucket, stack, so that few programs serve many graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gopt.graph.graph import Graph, Shape
from gopt.graph.kinds import UNKNOWN


def bucket(graph: Graph) -> Shape:
    """Returns the shape that a graph is padded to, so that few programs are compiled.

    Ops and tensors share one size out of 16, 24, 32, 48, 64, 96…; uses get a power of two. So
    there are at most two op sizes for each doubling of a graph, and real rows are never less
    than 1/2 (uses) to 2/3 (ops) of the padded ones wherever ops and tensors are as many.
    """
    need, size = max(int(graph.num_ops), int(graph.num_tensors)) + 1, 16
    while size < need:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return Shape(size, size, max(16, 1 << int(graph.num_uses).bit_length()))


def pad(graph: Graph, shape: Shape | None = None) -> Graph:
    """Returns the graph padded to `shape`, by default its `bucket`; one padding row at least.

    Raises:
      ValueError: the shape has no room for the graph and one padding row of each kind.
    """
    shape = bucket(graph) if shape is None else shape
    real = Shape(int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses))
    for axis, have, padded in zip(Shape._fields, real, shape, strict=True):
        if padded <= have:
            raise ValueError(f"shape.{axis} is {padded}: expected more than the graph's {have}")

    def rows(values: Any, count: int, size: int, fill: Any) -> np.ndarray:
        values = np.asarray(values)[:count]
        out = np.full((size, *values.shape[1:]), fill, values.dtype)
        out[:count] = values
        return out

    def op(values: Any, fill: Any = 0) -> np.ndarray:
        return rows(values, real.ops, shape.ops, fill)

    def made(values: Any, fill: Any = 0) -> np.ndarray:
        return rows(values, real.tensors, shape.tensors, fill)

    return graph._replace(
        kind=op(graph.kind, UNKNOWN),
        flops=op(graph.flops),
        bytes=op(graph.bytes),
        workspace=op(graph.workspace),
        producer=made(graph.producer, shape.ops - 1),
        size=made(graph.size),
        shape=made(graph.shape, -1),
        rank=made(graph.rank),
        dtype=made(graph.dtype),
        pinned=made(graph.pinned, False),
        tensor=rows(graph.tensor, real.uses, shape.uses, shape.tensors - 1),
        consumer=rows(graph.consumer, real.uses, shape.uses, shape.ops - 1),
    )


def unpad(graph: Graph) -> Graph:
    """Returns the graph without its padding rows."""
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    counts = {**dict.fromkeys(Graph._fields[:4], n), **dict.fromkeys(Graph._fields[4:10], t)}
    counts |= {"tensor": e, "consumer": e}
    return graph._replace(
        **{field: np.asarray(getattr(graph, field))[:count] for field, count in counts.items()}
    )


def stack(graphs: Sequence[Graph], shape: Shape | None = None) -> Graph:
    """Returns graphs padded to one shape and stacked along a new first axis `G`.

    By default the shape is the largest of their buckets along each axis.

    Raises:
      ValueError: no graphs are given, or one does not fit the shape.
    """
    if not graphs:
        raise ValueError("graphs is empty: nothing to stack")
    if shape is None:
        shape = Shape(*(max(sizes) for sizes in zip(*map(bucket, graphs), strict=True)))
    padded = [pad(graph, shape) for graph in graphs]
    return Graph(*(np.stack(leaves) for leaves in zip(*padded, strict=True)))


def unstack(graph: Graph) -> list[Graph]:
    """Returns the graphs of a batch, without padding."""
    count = len(np.asarray(graph.num_ops))
    return [unpad(Graph(*(np.asarray(leaf)[i] for leaf in graph))) for i in range(count)]
