"""Programs at the grain that XLA executes: what it fuses, and the buffers that it shares."""

from gopt.kernels.buffers import kernel_graph
from gopt.kernels.chains import chains
from gopt.kernels.duplicates import merge_duplicates
from gopt.kernels.grouping import Group, group, groups, materialised
from gopt.kernels.simplification import simplify
from gopt.kernels.sums import squeeze_sums
from gopt.kernels.transposes import fold_transposes

__all__ = (
    "Group",
    "chains",
    "fold_transposes",
    "group",
    "groups",
    "kernel_graph",
    "materialised",
    "merge_duplicates",
    "simplify",
    "squeeze_sums",
)
