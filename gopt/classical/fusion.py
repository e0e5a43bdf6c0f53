"""Configurations of fusion that need no search: the extremes, and what XLA does."""

from collections.abc import Callable

import numpy as np

from gopt.classical.instruction_fusion import instruction_fusion
from gopt.classical.priority_fusion import priority_fusion
from gopt.fusion_problem import FusionProblem


def nothing(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration in which each op is a kernel, bool `[N]`."""
    return np.zeros(len(problem.compute), bool)


def everything(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration in which whatever may be fused is, bool `[N]`."""
    return np.array(problem.configurable)


FUSIONS: dict[str, Callable[[FusionProblem], np.ndarray]] = {
    "nothing": nothing,
    "everything": everything,
    "instruction fusion": instruction_fusion,
    "priority fusion": priority_fusion,
}
