"""Networks as files, and the one that ships with gopt."""

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.checkpoints import check_shapes, check_weights, load_weights, save_weights
from gopt.systems.local_advantage.graphs import OP_FEATURES, USE_FEATURES, to_graphs_tuple
from gopt.systems.local_advantage.network import init_params
from gopt.systems.local_advantage.settings import Settings

Tree = Any
VERSION = 1  # of the meaning of features and parameters
_SHIPPED = Path(__file__).with_name("network.npz")


def save_network(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    *,
    origin: dict[str, Any] | None = None,
) -> None:
    """Writes a network to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: of the network.
      settings: its sizes and training.
      origin: how it was trained, as JSON values, for whoever reads the file.
    """
    values = {
        "version": VERSION,
        "settings": dataclasses.asdict(settings),
        "features": [OP_FEATURES, USE_FEATURES],
        "kinds": KINDS,
        "origin": origin or {},
    }
    save_weights(path, params, values)


def load_network(path: str | os.PathLike[str] | None = None) -> tuple[Tree, Settings]:
    """Returns the parameters and settings of a network.

    Args:
      path: a file of `save_network`; by default the network that ships with gopt.

    Raises:
      ValueError: the file is truncated, foreign, or of another version of gopt.
      FileNotFoundError: there is no such file.
    """
    path = path or _SHIPPED
    params, values = load_weights(path)
    known = {"version": VERSION, "features": [OP_FEATURES, USE_FEATURES], "kinds": KINDS}
    check_weights(path, "a network", values, known)
    try:
        settings = Settings(**values["settings"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no settings of a network: {error}") from error
    graph = from_ops([Op()])
    graphs = to_graphs_tuple(graph, prepare_fusion(graph, unit_rate_devices(1)))
    check_shapes(path, params, partial(init_params, jax.random.key(0), graphs, settings=settings))
    return params, settings
