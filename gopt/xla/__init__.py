"""Programs at the granularity of XLA's kernels: fusion, and shared buffers."""

from gopt.xla.buffers import kernel_graph
from gopt.xla.grouping import Group, chains, group, groups, materialised
from gopt.xla.passes.duplicates import merge_duplicates, simplify
from gopt.xla.passes.sums import squeeze_sums
from gopt.xla.passes.transposes import fold_transposes

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
