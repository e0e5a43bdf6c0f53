"""Save graphs to files and load them."""

import os
from typing import Any

import numpy as np

from gopt.graph.graph import Graph, Op, check, from_ops
from gopt.host.files import read_arrays, write_whole


def save(path: str | os.PathLike[str], graph: Graph) -> None:
    """Write a graph to an `.npz` file: the whole file or nothing.

    Args:
      path: path of the file.
      graph: graph, or stacked batch of graphs.
    """
    arrays: dict[str, Any] = {"gopt.Graph": np.int32(1), **graph._asdict()}
    with write_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: str | os.PathLike[str]) -> Graph:
    """Return the graph, or stacked batch, that `save` wrote.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file is truncated, `save` did not write it, or the graph is not valid.
    """
    try:
        arrays = read_arrays(path)
        if arrays.keys() != {"gopt.Graph", *Graph._fields}:
            raise ValueError("no graph, or of another version")
        del arrays["gopt.Graph"]
        graph = Graph(**arrays)
        _check_types(graph)
    except ValueError as error:
        raise ValueError(f"{path} is truncated, or not a file that gopt saved: {error}") from error
    batch = (
        [graph] if graph.num_ops.ndim == 0 else (Graph(*row) for row in zip(*graph, strict=True))
    )
    for one in batch:
        check(one)
    return graph


def _check_types(graph: Graph) -> None:
    """Check the dtypes of the arrays, and their axes, of which batches have one more."""
    axes = graph.num_ops.ndim
    if axes > 1 or graph.num_ops.size == 0:
        raise ValueError(
            f"num_ops has shape {graph.num_ops.shape}: expected (), or one row a graph"
        )
    for field, have, like in zip(Graph._fields, graph, from_ops([Op()]), strict=True):
        if have.dtype != like.dtype or have.ndim != like.ndim + axes:
            raise ValueError(
                f"{field} has dtype {have.dtype} and shape {have.shape}: expected {like.dtype}, "
                f"and {like.ndim + axes} axes"
            )
        if axes and have.shape[0] != graph.num_ops.size:
            raise ValueError(f"{field} has {have.shape[0]} graphs: expected {graph.num_ops.size}")
