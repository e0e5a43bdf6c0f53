"""Configurations of fusion as programs, the times of their kernels, and rates fitted to them."""

from gopt.cost.fusion.rates import CPU, Rates, count_work, fit_rates
from gopt.fusion.plan import Fusion
from gopt.fusion.programs import groups_of, members, own_fusion
from gopt.fusion.search import FusionSearch, FusionSearchResult
from gopt.measure.kernel_times import KernelTimes
from gopt.xla.fused import fused, kernel_of

__all__ = (
    "CPU",
    "Fusion",
    "FusionSearch",
    "FusionSearchResult",
    "KernelTimes",
    "Rates",
    "count_work",
    "fit_rates",
    "fused",
    "groups_of",
    "kernel_of",
    "members",
    "own_fusion",
)
