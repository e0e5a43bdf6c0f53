"""All heuristics of an objective: their keys, and the number of schedules they try."""

import jax
import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics import HEURISTICS, schedules_tried


def heuristic_keys(problem: Problem) -> Keys:
    """Returns the keys of all heuristics, then of the program's own order on the first device."""
    (n, t, _), d = problem.shape, problem.num_devices
    order = np.arange(n, dtype=np.float32) / n
    first = np.zeros((n, d), np.float32)
    first[:, 0] = 1
    program = Keys(first, order, np.zeros((t, d), np.float32))
    found = [heuristic(problem) for heuristic in HEURISTICS.values()]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found, program)


def tried(problem: Problem) -> int:
    """Returns how many schedules the heuristics try besides those that they return.

    Those that are compared for an action are not among them, see `regal.schedules_compared`.
    """
    return sum(schedules_tried(name, problem.num_devices) - 1 for name in HEURISTICS)
