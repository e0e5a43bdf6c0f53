"""Networks of local advantages as files. One ships."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.weights import Format
from gopt.systems.local_advantage.inputs import OP_FEATURES, USE_FEATURES, inputs
from gopt.systems.local_advantage.network import init
from gopt.systems.local_advantage.settings import Settings

Tree = Any
VERSION = 1  # of the meaning of features and parameters


def _init(settings: Settings, _: Tree) -> Callable[[], Tree]:
    graph = from_ops([Op()])
    smallest = inputs(graph, prepare_fusion(graph, unit_rate_devices(1)), settings=settings)
    return partial(init, jax.random.key(0), smallest, settings=settings)


FORMAT = Format(
    system="local_advantage",
    version=VERSION,
    settings=Settings,
    reads={"features": [OP_FEATURES, USE_FEATURES], "kinds": KINDS},
    init=_init,
    shipped={"network": Path(__file__).parent / "network.npz"},
)


def save(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    origin: dict[str, Any] | None = None,
) -> None:
    """Write a network to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: parameters of the network.
      settings: settings of the network.
      origin: how it was trained, as JSON values, for readers of the file.
    """
    FORMAT.save(path, params, settings, origin)


def load(path: str | os.PathLike[str] | None = None) -> tuple[Tree, Settings]:
    """Return the parameters and settings of a network.

    Args:
      path: a file of `save`; by default the network that ships.

    Raises:
      ValueError: the file is truncated, foreign, or of another version of gopt or shape.
      FileNotFoundError: there is no such file.
    """
    params, settings = FORMAT.load(path)
    return params, settings
