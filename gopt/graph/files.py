"""Save graphs to files and load them."""

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from gopt.files import write_whole
from gopt.graph.graph import Graph, check
from gopt.graph.padding import unstack

# Errors that a damaged archive raises when it is read.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)


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
      ValueError: the file is truncated, or `save` did not write it.
    """
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("no archive of arrays")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                if "gopt.Graph" not in archive:
                    raise ValueError("no graph in it")
                graph = Graph(*(archive[field] for field in Graph._fields))
    except FileNotFoundError:
        raise
    except (*_DAMAGE, KeyError, ValueError) as error:
        raise ValueError(f"{path} is truncated, or not a file that gopt saved: {error}") from error
    for one in [graph] if np.ndim(graph.num_ops) == 0 else unstack(graph):
        check(one)
    return graph
