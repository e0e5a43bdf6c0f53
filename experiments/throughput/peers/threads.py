"""Cost a population on all cores, by compiled functions that release the GIL."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

from gopt.cost.schedule.decoding import Cost
from gopt.measure.timing import cores

_PARTS = 4  # calls for each thread, so that threads that finish early take more


def in_parts(run: Callable[..., None], tables: Any, keys: Sequence[Any]) -> Cost:
    """Return the costs of a population: makespans int32 `[P]` and peaks int32 `[P, D]`.

    Args:
      run: function of tables, keys as int32, makespans, peaks, and the first and last candidate.
      tables: problem in the format of `run`.
      keys: NumPy arrays, float32 `[P, ...]`, keys of devices first.
    """
    arrays = [np.ascontiguousarray(leaf, np.float32).view(np.int32) for leaf in keys]
    count, _, devices = arrays[0].shape
    cost = Cost(np.zeros(count, np.int32), np.zeros((count, devices), np.int32))
    part = partial(run, tables, *arrays, *cost)
    if count == 1:
        part(0, 1)
    else:
        ends = np.linspace(0, count, min(count, _PARTS * cores()) + 1).astype(int).tolist()
        list(_pool().map(part, ends[:-1], ends[1:]))
    return cost


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores())
