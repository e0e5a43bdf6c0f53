"""Fusion configurations that need no search: the two extremes, and XLA's two passes."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int32

from gopt.cost.fusion.problem import FusionProblem
from gopt.heuristics.fusion.instruction_fusion import instruction_fusion
from gopt.heuristics.fusion.priority_fusion import priority_fusion


def fuse_nothing(problem: FusionProblem) -> Bool[np.ndarray, " N"]:
    """Return the configuration with one kernel per op, bool `[N]`."""
    return np.zeros(len(problem.compute), bool)


def fuse_everything(problem: FusionProblem) -> Bool[np.ndarray, " N"]:
    """Return the configuration that fuses every op that may be fused, bool `[N]`."""
    return np.array(problem.configurable)


def within_devices(
    problem: FusionProblem, fused: Bool[np.ndarray, " N"], device: Int32[np.ndarray, " N"]
) -> Bool[np.ndarray, " N"]:
    """Return a configuration without fusions across devices, bool `[N]`.

    Args:
      problem: one fusion problem.
      fused: configuration, bool `[N]`.
      device: device of each op, int32 `[N]`.
    """
    count = np.diff(problem.first_use)
    maker = np.repeat(np.arange(len(count)), count)
    reader = np.asarray(problem.consumer)[: len(maker)]
    away = np.bincount(maker, device[maker] != device[reader], minlength=len(count)) > 0
    return fused & ~away


FUSIONS: dict[str, Callable[[FusionProblem], np.ndarray]] = {
    "nothing": fuse_nothing,
    "everything": fuse_everything,
    "instruction fusion": instruction_fusion,
    "priority fusion": priority_fusion,
}
