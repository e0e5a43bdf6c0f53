"""Equality saturation: apply all rules at once in an e-graph, then extract the cheapest program.

After Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (Tensat),
with other limits. Tensat applies two-pattern rules in some rounds only, and filters out cycles.
Here they join selected sets of terms (`joining`), sums are made in selected orders (`regrouping`),
and the integer program excludes cycles (`extraction`). Needs the extra `rewriting`.
"""

from gopt.rewriting.search.saturation.saturating import Limits, Saturation, saturate, saturation

__all__ = ["Limits", "Saturation", "saturate", "saturation"]
