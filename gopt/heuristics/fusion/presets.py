"""Configurations of fusion that need no search: the extremes, and what XLA does."""

from collections.abc import Callable

import numpy as np

from gopt.cost.fusion.problem import FusionProblem
from gopt.heuristics.fusion.instruction_fusion import instruction_fusion
from gopt.heuristics.fusion.priority_fusion import priority_fusion


def nothing(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration in which each op is a kernel, bool `[N]`."""
    return np.zeros(len(problem.compute), bool)


def everything(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration in which whatever may be fused is, bool `[N]`."""
    return np.array(problem.configurable)


def within_devices(problem: FusionProblem, fused: np.ndarray, device: np.ndarray) -> np.ndarray:
    """Returns a configuration without what is fused into ops on other devices, bool `[N]`.

    Args:
      problem: one problem.
      fused: a configuration, bool `[N]`.
      device: int32 `[N]`, where ops run.
    """
    count = np.diff(problem.first_use)
    maker = np.repeat(np.arange(len(count)), count)
    reader = np.asarray(problem.consumer)[: len(maker)]
    away = np.bincount(maker, device[maker] != device[reader], minlength=len(count)) > 0
    return fused & ~away


FUSIONS: dict[str, Callable[[FusionProblem], np.ndarray]] = {
    "nothing": nothing,
    "everything": everything,
    "instruction fusion": instruction_fusion,
    "priority fusion": priority_fusion,
}
