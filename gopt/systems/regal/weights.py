"""Policies as files, and the ones that ship with gopt."""

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import jax

from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.checkpoints import check_shapes, check_weights, load_weights, save_weights
from gopt.learning.graphs import OP_FEATURES, to_graphs_tuple
from gopt.systems.regal.policy import VERSION, init_params
from gopt.systems.regal.settings import Settings

Tree = Any
_SHIPPED = Path(__file__).parent


def save_policy(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    *,
    objective: str,
    devices: int,
    origin: dict[str, Any] | None = None,
) -> None:
    """Writes a policy to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: of the policy.
      settings: its sizes.
      objective: what it was trained for.
      devices: how many devices it was trained for.
      origin: how it was trained, as JSON values, for whoever reads the file.
    """
    values = {
        "version": VERSION,
        "objective": objective,
        "devices": devices,
        "settings": dataclasses.asdict(settings),
        "features": OP_FEATURES,
        "kinds": KINDS,
        "origin": origin or {},
    }
    save_weights(path, params, values)


def load_policy(
    path: str | os.PathLike[str] | None = None, *, objective: str, devices: int
) -> tuple[Tree, Settings]:
    """Returns the parameters and settings of a policy.

    Args:
      path: a file of `save_policy`; by default the policy that ships for the objective.
      objective: what the policy must have been trained for.
      devices: how many devices it must have been trained for.

    Raises:
      ValueError: none ships for the objective, or the file is truncated, foreign, or of another
        objective, number of devices, version of gopt, or shape.
      FileNotFoundError: there is no such file.
    """
    path = path or _shipped(objective)
    params, values = load_weights(path)
    for name, value in (("objective", objective), ("devices", devices), ("version", VERSION)):
        if values.get(name) != value:
            raise ValueError(
                f"{path} holds a policy with {name} {values.get(name)!r}: expected {value!r}"
            )
    check_weights(path, "a policy", values, {"features": OP_FEATURES, "kinds": KINDS})
    try:
        found = values["settings"]
        settings = Settings(**found | {"parts": tuple(found["parts"])})  # JSON has no tuples
        missing = {field.name for field in dataclasses.fields(settings)} - set(found)
        if missing:
            raise KeyError(*missing)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no settings of a policy of REGAL: {error}") from error
    graphs = to_graphs_tuple(from_ops([Op()]))
    check_shapes(path, params, partial(init_params, jax.random.key(0), graphs, settings=settings))
    return params, settings


def load_origin(path: str | os.PathLike[str] | None = None, *, objective: str) -> dict[str, Any]:
    """Returns how a policy was trained, as `save_policy` was told.

    Args:
      path: a file of `save_policy`; by default the policy that ships for the objective.
      objective: what that one was trained for.

    Raises:
      ValueError: none ships for the objective, or the file is truncated or foreign.
      FileNotFoundError: there is no such file.
    """
    _, values = load_weights(path or _shipped(objective))
    return dict(values.get("origin", {}))


def _shipped(objective: str) -> Path:
    """Returns the file of the policy that ships for an objective."""
    path = _SHIPPED / f"{objective}.npz"
    if not path.exists():
        ship = ", ".join(sorted(file.stem for file in _SHIPPED.glob("*.npz"))) or "none"
        raise ValueError(
            f"objective is {objective!r}: gopt ships a policy for {ship}; train one for this"
        )
    return path
