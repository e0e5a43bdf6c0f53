"""Segments of the first half of a program, each computed again when the second half reaches it.

Only values that later segments read are held. The last segment is held too: the second half begins
with it.

Source: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016,
arXiv 1604.06174). There layers of a network make the segments, and √n segments of n equal layers
need O(√n) bytes. Cuts at narrow places of any program, and the number of segments by their bytes,
are our choices.
"""

import math

import numpy as np
from jaxtyping import Bool

from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices
from gopt.heuristics.recompute.residuals import Halves, again_after, halves, live_bytes

REACH = 0.25  # a cut lies at most this share of a segment before or behind equal shares


def segmented(problem: Problem, count: int) -> Choices:
    """Return the candidate with a number of segments; with one of them nothing runs again.

    Args:
      problem: one problem.
      count: number of segments; fewer if the first half has fewer places.

    Raises:
      ValueError: `count` is less than one.
    """
    if count < 1:
        raise ValueError(f"count is {count}: expected 1 at least")
    half = halves(problem)
    places = cuts(problem, half, count)
    before = np.arange(problem.num_rows) < max(places, default=0)
    again = half.droppable & before & ~crosses(problem, half, places)
    return again_after(problem, half.turn, again)


def square_root(problem: Problem, *, inside: float = 1.0, near: float = 1.0) -> Choices:
    """Return the candidate with the number of segments that should need the fewest bytes.

    These are the bytes that cross the cuts, and the residuals of the largest segment. For n equal
    layers, and `inside` of 1, the best number is √n.

    Args:
      problem: one problem.
      inside: share of the residuals of a segment that counts.
      near: of all numbers of segments that need at most `near` times the fewest bytes, the smallest
        is taken. Its last segment is larger, and does not run again.
    """
    half = halves(problem)

    def estimate(count: int) -> float:
        places = cuts(problem, half, count)
        held = crosses(problem, half, places)[problem.producer]
        residuals = np.where(half.residual & ~held, problem.size, 0)
        segment = np.searchsorted(places, problem.producer, "right")
        largest = np.max(np.bincount(segment, residuals))
        return float(problem.size[held].sum(dtype=np.int64) + inside * largest)

    needs = {count: estimate(count) for count in _counts(half)}
    most = near * min(needs.values())
    return segmented(problem, next(count for count, need in needs.items() if need <= most))


def best_segments(problem: Problem, budget: int) -> Choices:
    """Return the fastest candidate of segments that fits, or the one that needs the fewest bytes.

    It tries up to twice as many segments as the square root of the ops with residuals.

    Args:
      problem: one problem.
      budget: memory that a candidate may need, units.
    """

    def badness(choices: Choices) -> tuple[int, int]:
        ticks, peak = cost_of_runs(problem, runs_of(problem, choices))
        return max(peak - budget, 0), ticks

    return min((segmented(problem, count) for count in _counts(halves(problem))), key=badness)


def cuts(problem: Problem, half: Halves, count: int) -> list[int]:
    """Return rising places that cut the first half into segments.

    Each segment has roughly equal bytes of residuals; each cut is the narrowest place near.

    Args:
      problem: one problem.
      half: its halves.
      count: number of segments.
    """
    droppable = half.droppable[problem.producer]
    width = live_bytes(problem, half.until, droppable)[: half.turn]
    made = np.bincount(problem.producer, np.where(half.residual, problem.size, 0))
    done = np.append(0, np.cumsum(made))[: half.turn]
    share = made.sum() / count
    found: list[int] = []
    for k in range(1, count):
        after = found[-1] + 1 if found else 1
        away = np.abs(done - k * share)[after:]
        if not len(away):
            break
        near = away <= max(REACH * share, away.min())
        narrow = np.where(near, width[after:], np.inf)
        found.append(after + int(np.lexsort((away, narrow))[0]))
    return found


def crosses(problem: Problem, half: Halves, places: list[int]) -> Bool[np.ndarray, " N"]:
    """Return the ops that an op of the first half reads behind a later cut, bool `[N]`."""
    at = np.asarray(places, int)
    of_tensor = np.searchsorted(at, problem.producer, "right")
    of_reader = np.searchsorted(at, half.until, "right")
    found = np.zeros(problem.num_rows, bool)
    found[problem.producer[of_tensor < of_reader]] = True
    return found


def _counts(half: Halves) -> range:
    return range(1, 2 + 2 * math.isqrt(max(int(half.residual.sum()), 1)))
