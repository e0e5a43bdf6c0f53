"""Policies of GO as files. One ships, for any number of devices."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.graphs import OP_FEATURES
from gopt.learning.weights import Format
from gopt.systems.go.decisions import FUSIONS, SHIFTS
from gopt.systems.go.inputs import inputs
from gopt.systems.go.policy import init
from gopt.systems.go.settings import Settings

Tree = Any
VERSION = 5  # of the meaning of inputs and parameters


def _init(settings: Settings, _: Tree) -> Callable[[], Tree]:
    graph = from_ops([Op()])
    smallest = inputs(graph, prepare(graph, unit_rate_devices(1)), settings=settings)
    return partial(init, jax.random.key(0), smallest, settings=settings)


FORMAT = Format(
    system="go",
    version=VERSION,
    settings=Settings,
    reads={"features": OP_FEATURES, "kinds": KINDS, "shifts": SHIFTS, "fusions": FUSIONS},
    init=_init,
    shipped={"policy": Path(__file__).parent / "policy.npz"},
)


def save(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    origin: dict[str, Any] | None = None,
) -> None:
    """Write a policy to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: parameters of the policy.
      settings: settings of the policy.
      origin: how it was trained, as JSON values, for readers of the file.
    """
    FORMAT.save(path, params, settings, origin)


def load(path: str | os.PathLike[str] | None = None) -> tuple[Tree, Settings]:
    """Return the parameters and settings of a policy. It decides for any number of devices.

    Args:
      path: a file of `save`; by default the policy that ships.

    Raises:
      ValueError: the file is truncated, foreign, or of another version of gopt or shape.
      FileNotFoundError: there is no such file.
    """
    params, settings = FORMAT.load(path)
    return params, settings
