"""Rules for what to run again: published ones and simple ones, without a search."""

from collections.abc import Callable

from gopt.cost.recompute.cost import runs_of
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute.all_again import all_again
from gopt.heuristics.recompute.dtr import dtr
from gopt.heuristics.recompute.greedy import greedy
from gopt.heuristics.recompute.min_cut import min_cut
from gopt.heuristics.recompute.segments import best_segments, segmented, square_root
from gopt.heuristics.recompute.superfluous import without_superfluous

# Runs for a budget in units. They may need more than that; `None` if a rule finds no runs.
RULES: dict[str, Callable[[Problem, int], list[int] | None]] = {
    "all again": lambda problem, budget: runs_of(problem, all_again(problem)),
    "square root": lambda problem, budget: runs_of(problem, square_root(problem)),
    "best segments": lambda problem, budget: runs_of(problem, best_segments(problem, budget)),
    "min cut": lambda problem, budget: runs_of(problem, min_cut(problem)),
    "greedy": lambda problem, budget: runs_of(problem, greedy(problem, budget)),
    "DTR": dtr,
}

__all__ = (
    "RULES",
    "all_again",
    "best_segments",
    "dtr",
    "greedy",
    "min_cut",
    "segmented",
    "square_root",
    "without_superfluous",
)
