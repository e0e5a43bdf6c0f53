"""Figures of schedules and searches. Every function returns a new matplotlib `Figure`.

Figures are made without pyplot: nothing is shown, and no global state is kept. They have the width
of a paper column (3.5 in).
"""

from gopt.plots.comparison import memory_front, time_ratios
from gopt.plots.schedules import confirmed_memory, gantt, memory_profile, overview
from gopt.plots.searches import convergence, tradeoff

__all__ = [
    "confirmed_memory",
    "convergence",
    "gantt",
    "memory_front",
    "memory_profile",
    "overview",
    "time_ratios",
    "tradeoff",
]
