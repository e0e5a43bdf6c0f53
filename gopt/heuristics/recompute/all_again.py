"""Nothing is held for the second half of a program, except arguments."""

import numpy as np

from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices
from gopt.heuristics.recompute.residuals import again_after, halves


def all_again(problem: Problem) -> Choices:
    """Return the candidate that computes every residual again, from the arguments.

    Only what may not run again is held, and what has no reader before the second half. The whole
    first half runs again just before the second one, as if the loss were under `jax.checkpoint`. So
    this shows the largest time of a rule, and saves few bytes.

    Args:
      problem: one problem.
    """
    half = halves(problem)
    first = np.arange(problem.num_rows) < half.turn
    return again_after(problem, half.turn, half.droppable & first)
