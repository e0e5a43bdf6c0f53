"""Agents as files."""

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gopt.learning.checkpoints import check_shapes, check_weights, load_weights, save_weights
from gopt.rewriting.ir.terms import Terms
from gopt.systems.xrlflow.network import init_params
from gopt.systems.xrlflow.observation import NODE_KINDS, Observation, observe
from gopt.systems.xrlflow.settings import Settings

Tree = Any
VERSION = 1  # of what an agent sees and says

_SHIPPED = Path(__file__).parent / "agent.npz"


def save_agent(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    *,
    origin: dict[str, Any] | None = None,
) -> None:
    """Writes an agent to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: of the network.
      settings: its sizes and training.
      origin: how it was trained, as JSON values, for whoever reads the file.
    """
    values = _known() | {"settings": dataclasses.asdict(settings), "origin": origin or {}}
    save_weights(path, params, values)


def load_agent(path: str | os.PathLike[str] | None = None) -> tuple[Tree, Settings]:
    """Returns the parameters and settings of an agent.

    Args:
      path: a file of `save_agent`; by default the agent that ships, which whole programs of ten
        small models have trained, see `experiments.xrlflow.pretraining`.

    Raises:
      ValueError: the file is truncated, foreign, or of another version of gopt.
      FileNotFoundError: there is no such file.
    """
    path = _SHIPPED if path is None else path
    params, values = load_weights(path)
    check_weights(path, "an agent", values, _known())
    try:
        found = values["settings"]
        settings = Settings(**found | {"hidden": tuple(found["hidden"])})  # JSON has no tuples
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no settings of an agent: {error}") from error
    check_shapes(
        path, params, partial(init_params, jax.random.key(0), smallest(), settings=settings)
    )
    return params, settings


def smallest() -> Observation:
    """Returns what there is to see of a program without ops, which gives shapes to a network."""
    terms = Terms()
    root = terms.argument(0, jax.ShapeDtypeStruct((), np.float32), constant=False)
    return observe(terms, [root], [root], [], lambda number: 0.0, reach=1)


def _known() -> dict[str, Any]:
    """Returns what an agent must agree with."""
    return {"system": "xrlflow", "version": VERSION, "kinds": NODE_KINDS}
