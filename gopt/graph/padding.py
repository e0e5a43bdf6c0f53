"""Pad, bucket and stack graphs, so that one compiled program serves many of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gopt.graph.graph import Graph, Shape
from gopt.graph.kinds import UNKNOWN


def bucket(graph: Graph) -> Shape:
    """Return the padded shape of a graph, one of few, so that few programs are compiled.

    Ops and tensors share a size from 16, 24, 32, 48, 64, 96…: two sizes per doubling. Uses get a
    power of two, at least 16. Above the minimum, at least 1/2 of the use rows and 2/3 of the op
    or tensor rows, whichever are more, are real.
    """
    need, size = max(int(graph.num_ops), int(graph.num_tensors)) + 1, 16
    while size < need:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return Shape(size, size, max(16, 1 << int(graph.num_uses).bit_length()))


def pad(graph: Graph, shape: Shape | None = None) -> Graph:
    """Return the graph padded to `shape`, with at least one padding row per axis.

    Args:
      graph: graph, padded or not.
      shape: numbers of rows; by default `bucket(graph)`.

    Raises:
      ValueError: an axis of `shape` has no room for the graph and one padding row.
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
    """Return the graph without its padding rows."""
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    counts = {**dict.fromkeys(Graph._fields[:4], n), **dict.fromkeys(Graph._fields[4:10], t)}
    counts |= {"tensor": e, "consumer": e}
    return graph._replace(
        **{field: np.asarray(getattr(graph, field))[:count] for field, count in counts.items()}
    )


def stack(graphs: Sequence[Graph], shape: Shape | None = None) -> Graph:
    """Return graphs padded to one shape and stacked along a new first axis `G`.

    Args:
      graphs: graphs, padded or not.
      shape: numbers of rows; by default the largest bucket along each axis.

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
    """Return the graphs of a stacked batch, without padding."""
    count = len(np.asarray(graph.num_ops))
    return [unpad(Graph(*(np.asarray(leaf)[i] for leaf in graph))) for i in range(count)]
