"""Configurations of fusion as programs, the times of their kernels, and rates fitted to them."""

from gopt.fusion.fitting import CPU, Rates, features, fit
from gopt.fusion.programs import fused, groups_of, kernel_of, members, own_fusion
from gopt.fusion.timing import KernelTimes

__all__ = (
    "CPU",
    "KernelTimes",
    "Rates",
    "features",
    "fit",
    "fused",
    "groups_of",
    "kernel_of",
    "members",
    "own_fusion",
)
