"""Spread candidates over threads, for compiled functions that release the GIL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from gopt.measure.timing import cores

_PARTS = 4  # calls for each thread, so that threads that finish early take more


def in_parts(run: Callable[[int, int], Any], count: int, threads: int | None = None) -> None:
    """Call `run(low, high)` for parts of `range(count)` and wait for all.

    Args:
      run: function that costs candidates `low` to `high` of a population.
      count: number of candidates.
      threads: number of threads, by default one for each core of this process.
    """
    threads = threads or cores()
    parts = min(count, _PARTS * threads) if threads > 1 else 1
    if parts == 1:
        run(0, count)
        return
    ends = np.linspace(0, count, parts + 1).astype(int).tolist()
    for call in [_pool(threads).submit(run, *part) for part in pairwise(ends)]:
        call.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
