"""Graphs in files: save, load."""

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from gopt.files import write_whole
from gopt.graph.graph import Graph, check
from gopt.graph.padding import unstack

# What reading a damaged archive raises.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)


def save(path: str | os.PathLike[str], graph: Graph) -> None:
    """Writes a graph, or a stacked batch, to an `.npz` file, whole or not at all."""
    arrays: dict[str, Any] = {"gopt.Graph": np.int32(1), **graph._asdict()}
    with write_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: str | os.PathLike[str]) -> Graph:
    """Returns the graph that `save` wrote.

    Raises:
      ValueError: the file is truncated, or is not a graph of gopt.
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
