"""Policies of HDP as files. None ships: a policy learns on the graph that it places."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.weights import Format
from gopt.systems.hdp.inputs import inputs
from gopt.systems.hdp.policy import init
from gopt.systems.hdp.settings import Settings

Tree = Any
VERSION = 1  # of the meaning of inputs and parameters


def _init(settings: Settings, params: Tree) -> Callable[[], Tree]:
    try:
        devices = len(params["params"]["before"]) - 1
    except (KeyError, IndexError, ValueError):
        devices = 1  # the shapes differ, whatever it is
    graph = from_ops([Op()])
    smallest = inputs(graph, prepare(graph, unit_rate_devices(devices)), settings=settings)
    return partial(init, jax.random.key(0), smallest, settings=settings)


FORMAT = Format(
    system="hdp",
    version=VERSION,
    settings=Settings,
    reads={"kinds": KINDS},
    init=_init,
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
    """Return the parameters and settings of a policy, for the devices that it was trained for.

    Args:
      path: a file of `save`. There is no default.

    Raises:
      ValueError: no path is given, or the file is truncated, foreign, or of another version of gopt
        or shape.
      FileNotFoundError: there is no such file.
    """
    params, settings = FORMAT.load(path)
    return params, settings
