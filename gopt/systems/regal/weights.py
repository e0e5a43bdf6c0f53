"""Files of REGAL policies. One policy ships for each objective of two devices."""

import os
from pathlib import Path
from typing import Any

from gopt.graph.graph import Op, from_ops
from gopt.graph.kinds import KINDS
from gopt.learning.graphs import OP_FEATURES, to_graphs_tuple
from gopt.learning.weights import Format
from gopt.systems.regal.inputs import Inputs
from gopt.systems.regal.policy import VERSION, init
from gopt.systems.regal.settings import Settings

Tree = Any

FORMAT = Format(
    system="regal",
    version=VERSION,
    settings=Settings,
    reads={"features": OP_FEATURES, "kinds": KINDS},
    init=init,
    smallest=lambda settings, params: Inputs(to_graphs_tuple(from_ops([Op()])), None),
    shipped={path.stem: path for path in sorted(Path(__file__).parent.glob("[!.]*.npz"))},
)


def save(
    path: str | os.PathLike[str],
    params: Tree,
    settings: Settings,
    origin: dict[str, Any] | None = None,
    *,
    objective: str,
    devices: int,
) -> None:
    """Write a policy to one `.npz`, whole or not at all.

    Args:
      path: the file.
      params: parameters of the policy.
      settings: settings of the policy.
      origin: record of the training, as JSON values, for readers of the file.
      objective: objective that it was trained for.
      devices: number of devices that it was trained for.
    """
    labels = {"objective": objective, "devices": devices}
    FORMAT.save_labelled(path, params, settings, origin, labels)


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    objective: str = "makespan",
    devices: int = 2,
) -> tuple[Tree, Settings]:
    """Return the parameters and settings of a policy.

    Args:
      path: file written by `save`; by default the policy that ships for the objective.
      objective: objective that the policy must have been trained for.
      devices: number of devices that it must have been trained for.

    Raises:
      ValueError: no policy ships for the objective, or the file is truncated, foreign, or of
        another objective, number of devices, version of gopt, or shape.
      FileNotFoundError: the file does not exist.
    """
    labels = {"objective": objective, "devices": devices}
    return FORMAT.load_labelled(_find(path, objective), labels)


def load_origin(path: str | os.PathLike[str] | None = None, *, objective: str) -> dict[str, Any]:
    """Return how a policy was trained, as `save` recorded it.

    Args:
      path: file written by `save`; by default the policy that ships for the objective.
      objective: objective of the policy that ships.

    Raises:
      ValueError: no policy ships for the objective, or the file is truncated or foreign.
      FileNotFoundError: the file does not exist.
    """
    return FORMAT.origin(_find(path, objective))


def _find(path: str | os.PathLike[str] | None, objective: str) -> str | os.PathLike[str]:
    if path is None and objective not in FORMAT.shipped:
        ship = ", ".join(FORMAT.shipped)
        raise ValueError(
            f"objective is {objective!r}: gopt ships a policy for {ship}; train one for this"
        )
    return objective if path is None else path
