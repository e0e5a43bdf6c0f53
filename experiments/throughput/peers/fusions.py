"""Compute fusion costs in numba, on all cores, by gopt's own algorithm: 64 candidates in a word."""

from collections import namedtuple
from typing import Any

import numpy as np
from numba import njit, prange

from gopt.cost.fusion.kernel_reach import MAX_TICKS
from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem

# A problem in the format of the compiled functions; fields as in `FusionProblem` and its `reach`.
Tables = namedtuple(
    "Tables",
    "compute memory configurable end begin last_visit_of_end consumer_place producer place "
    "may_contain_mask is_last_mask last_visit_of_producer read work saved_ticks num_kernels "
    "allow_duplication launch overlap",
)


def tables(problem: FusionProblem) -> Tables:
    """Return the tables that the compiled functions read."""
    found = problem._asdict() | problem.reach._asdict()
    columns = {field: np.asarray(found[field]) for field in Tables._fields}
    return Tables(**{k: v if v.ndim else v.item() for k, v in columns.items()})


@njit(inline="always")
def _time(compute: Any, memory: Any, launch: int, overlap: int) -> Any:
    hidden = min(compute, memory) * overlap >> OVERLAP_BITS
    return min(compute + memory - hidden + launch, MAX_TICKS)


@njit(parallel=True, nogil=True)
def evaluate(p: Tables, fuse: np.ndarray) -> np.ndarray:
    """Return the costs of configurations `[P, N]`, int64 `[P]`, 64 in a word."""
    count, n = fuse.shape
    costs = np.zeros(count, np.int64)
    none, all_ = np.uint64(0), ~np.uint64(0)
    for block in prange((count + 63) // 64):
        first = block * 64
        lanes = min(64, count - first)
        bits, written = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        for lane in range(lanes):
            one = np.uint64(1) << np.uint64(lane)
            for op in range(n):
                if fuse[first + lane, op] and p.configurable[op]:
                    bits[op] |= one
                else:
                    written[op] |= one
        inside = np.zeros(n, np.uint64)
        compute, memory = np.empty(64, np.int64), np.empty(64, np.int64)
        allow_duplication = all_ if p.allow_duplication else none
        for index in range(p.num_kernels):
            end = p.end[index]
            own = written[end]
            if own == none:
                continue
            compute[:], memory[:] = p.compute[end], p.memory[end]
            visit, until = p.begin[index], p.last_visit_of_end[index]
            inside[0] = own
            some, every = none, all_
            while visit <= until:
                reader, maker = inside[p.consumer_place[visit]], p.producer[visit]
                wants = bits[maker] if p.may_contain_mask[visit] else none
                reads = reader & ~some & ~(wants & allow_duplication)
                some |= reader
                every &= reader
                if reads != none:
                    ticks = np.int64(p.read[visit])
                    for lane in range(64):
                        memory[lane] += ticks * np.int64((reads >> np.uint64(lane)) & np.uint64(1))
                if p.is_last_mask[visit]:
                    joins = wants & (every | (some & allow_duplication))
                    written[maker] |= some & ~joins
                    inside[p.place[visit]] = joins
                    if joins != none:
                        until = max(until, p.last_visit_of_producer[visit])
                        ticks, saved = np.int64(p.work[visit]), np.int64(p.saved_ticks[visit])
                        for lane in range(64):
                            is_in = np.int64((joins >> np.uint64(lane)) & np.uint64(1))
                            compute[lane] += ticks * is_in
                            memory[lane] -= saved * is_in
                    some, every = none, all_
                visit += 1
            for lane in range(lanes):
                if (own >> np.uint64(lane)) & np.uint64(1):
                    done = min(compute[lane], MAX_TICKS)
                    costs[first + lane] += _time(done, memory[lane], p.launch, p.overlap)
        for lane in range(lanes):
            costs[first + lane] = min(costs[first + lane], MAX_TICKS)
    return costs
