"""Policies of GO as files, and the one that ships with gopt."""

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.checkpoints import check_shapes, check_weights, load_weights, save_weights
from gopt.learning.graphs import OP_FEATURES
from gopt.systems.go.decisions import FUSIONS, SHIFTS
from gopt.systems.go.inputs import read
from gopt.systems.go.policy import init_params
from gopt.systems.go.settings import Settings

Tree = Any
_SHIPPED = Path(__file__).parent / "policy.npz"
VERSION = 5  # of what a policy reads and says


def save_policy(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    *,
    origin: dict[str, Any] | None = None,
) -> None:
    """Writes a policy to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: of the policy.
      settings: its sizes.
      origin: how it was trained, as JSON values, for whoever reads the file.
    """
    values = _known() | {"settings": dataclasses.asdict(settings), "origin": origin or {}}
    save_weights(path, params, values)


def load_policy(path: str | os.PathLike[str] | None = None) -> tuple[Tree, Settings]:
    """Returns the parameters and settings of a policy; it decides for any number of devices.

    Args:
      path: a file of `save_policy`; by default the policy that ships.

    Raises:
      ValueError: the file is truncated, foreign, or of another version of gopt or shape.
      FileNotFoundError: there is no such file.
    """
    path = path or _SHIPPED
    params, values = load_weights(path)
    check_weights(path, "a policy", values, _known())
    try:
        found = values["settings"]
        tuples = {name: tuple(found[name]) for name in ("tasks", "levels")}  # JSON has none
        settings = Settings(**found | tuples)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no settings of a policy of GO: {error}") from error
    graph = from_ops([Op()])
    inputs = read(graph, prepare(graph, unit_rate_devices(1)), settings)
    check_shapes(path, params, partial(init_params, jax.random.key(0), inputs, settings=settings))
    return params, settings


def _known() -> dict[str, Any]:
    """Returns what a policy must agree with."""
    values = {"shifts": SHIFTS, "fusions": FUSIONS}  # that a policy decides
    return {"system": "go", "version": VERSION, "features": OP_FEATURES, "kinds": KINDS} | values
