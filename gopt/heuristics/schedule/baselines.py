"""Keys of all heuristics, and the number of schedules that they try."""

import jax
import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics import HEURISTICS, schedules_tried


def heuristic_keys(problem: Problem) -> Keys:
    """Return the keys of all heuristics, and last of the program's own order on the first device.

    Args:
      problem: one problem.

    Returns:
      Keys with leading axis `P`: one row for each entry of `HEURISTICS`, in order, and one more.
    """
    (n, t, _), d = problem.shape, problem.num_devices
    order = np.arange(n, dtype=np.float32) / n
    first = np.zeros((n, d), np.float32)
    first[:, 0] = 1
    program = Keys(first, order, np.zeros((t, d), np.float32))
    found = [heuristic(problem) for heuristic in HEURISTICS.values()]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found, program)


def tried(problem: Problem) -> int:
    """Return the number of schedules that all heuristics evaluate, beyond those they return.

    Schedules that REGAL compares for an action are not counted; see `regal.schedules_compared`.

    Args:
      problem: one problem.
    """
    return sum(schedules_tried(name, problem.num_devices) - 1 for name in HEURISTICS)
