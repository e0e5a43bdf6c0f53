"""The costs of fusions in numba, on all cores: what gopt's are compared with.

One candidate after another on each core, over the arrays of a `FusionProblem`. Only an op that is
in memory goes through its readers a second time, to count what they read.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from gopt.cost.fusion import CLONES
from gopt.fusion_problem import MAX_TICKS, MAX_TIMES, OVERLAP_BITS, FusionProblem
from gopt.fusion_rules import REPEATABLE


class Tables(NamedTuple):
    """A problem, with what is read of each use."""

    compute: Any
    memory: Any
    role: Any
    into: Any
    is_kernel: Any
    configurable: Any
    consumer: Any
    times: Any
    reader: Any  # of what is read, in another order than `consumer`
    tensor: Any
    read: Any
    first_use: Any
    limit: Any
    launch: Any
    overlap: Any
    num_ops: Any


def tables(problem: FusionProblem) -> Tables:
    """Returns what the compiled functions read."""
    tensor = np.asarray(problem.tensor)[: int(problem.num_accesses)]
    is_reader = np.zeros(len(tensor), bool)
    is_reader[1:] = tensor[1:] == tensor[:-1]
    accesses = {"reader": problem.access, "tensor": problem.tensor, "read": problem.read}
    found = {f: getattr(problem, f) for f in Tables._fields if f not in accesses}
    found |= {f: np.asarray(column)[: len(tensor)][is_reader] for f, column in accesses.items()}
    return Tables(**{k: np.asarray(v) if np.ndim(v) else int(v) for k, v in found.items()})


@njit(inline="always")
def _time(compute: int, memory: int, launch: int, overlap: int) -> int:
    hidden = min(compute, memory) * overlap >> OVERLAP_BITS
    return min(compute + memory - hidden + launch, MAX_TICKS)


@njit(parallel=True, nogil=True)
def joined(p: Tables, fuse: np.ndarray) -> np.ndarray:
    """Returns the costs of configurations `[P, N]`, int64 `[P]`."""
    count, n = len(fuse), p.num_ops
    costs = np.empty(count, np.int64)
    for candidate in prange(count):
        bits = fuse[candidate]
        end, times = np.empty(n, np.int32), np.empty(n, np.int32)
        size, seen = np.empty(n, np.int32), np.empty(n, np.int32)
        compute, memory = np.empty(n, np.int64), np.empty(n, np.int64)
        for op in range(n - 1, -1, -1):
            begin, stop = p.first_use[op], p.first_use[op + 1]
            kernel, most = -1, 1
            if bits[op] and p.configurable[op]:
                kernel = end[p.consumer[begin]]
                for use in range(begin, stop):
                    reader = p.consumer[use]
                    if end[reader] != kernel:
                        kernel = -1
                        break
                    most = max(most, min(times[reader] * p.times[use], MAX_TIMES))
                if kernel >= 0 and not (
                    p.into[op] & p.role[kernel]
                    and (most == 1 or p.into[op] & REPEATABLE)
                    and size[kernel] < p.limit
                ):
                    kernel = -1
            if kernel >= 0:
                end[op], times[op] = kernel, most
                size[kernel] += 1
                work = min(np.int64(p.compute[op]) * most, MAX_TICKS)
                compute[kernel] = min(compute[kernel] + work, MAX_TICKS)
                continue
            end[op], times[op], size[op], seen[op] = op, 1, 1, -1
            compute[op], memory[op] = p.compute[op], p.memory[op]
            for use in range(begin, stop):
                kernel = end[p.reader[use]]
                if seen[kernel] != p.tensor[use]:
                    seen[kernel] = p.tensor[use]
                    memory[kernel] += p.read[use]
        total = 0
        for op in range(n):
            if end[op] == op and p.is_kernel[op]:
                total += _time(compute[op], memory[op], p.launch, p.overlap)
        costs[candidate] = min(total, MAX_TICKS)
    return costs


@njit(parallel=True, nogil=True)
def cloned(p: Tables, fuse: np.ndarray) -> np.ndarray:
    """Returns the costs of configurations `[P, N]` with clones, int64 `[P]`."""
    count, n = len(fuse), p.num_ops
    costs = np.empty(count, np.int64)
    for candidate in prange(count):
        bits = fuse[candidate]
        ends, times = np.empty((CLONES + 1) * n, np.int32), np.empty((CLONES + 1) * n, np.int32)
        stop_of = np.zeros(n + 1, np.int32)
        newest, seen = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        size, own = np.ones(n, np.int32), np.zeros(n, np.bool_)
        compute, memory = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for op in range(n - 1, -1, -1):
            begin, stop = p.first_use[op], p.first_use[op + 1]
            start = fill = stop_of[op + 1]
            wants = bits[op] and p.configurable[op]
            outside = not wants
            if wants:
                for use in range(begin, stop):
                    reader = p.consumer[use]
                    for k in range(stop_of[reader + 1], stop_of[reader]):
                        kernel = ends[k]
                        repeated = min(times[k] * p.times[use], MAX_TIMES)
                        if newest[kernel] >= start:
                            continue
                        if (
                            p.into[op] & p.role[kernel]
                            and (repeated == 1 or p.into[op] & REPEATABLE)
                            and size[kernel] < p.limit
                            and fill < CLONES * n
                        ):
                            newest[kernel] = fill
                            ends[fill], times[fill] = kernel, repeated
                            size[kernel] += 1
                            fill += 1
                        else:
                            outside = True
            if outside:
                for use in range(begin, stop):
                    reader = p.reader[use]
                    for k in range(stop_of[reader + 1], stop_of[reader]):
                        kernel = ends[k]
                        if newest[kernel] < start and seen[kernel] != p.tensor[use]:
                            seen[kernel] = p.tensor[use]
                            memory[kernel] += p.read[use]
            for k in range(start, fill):
                work = min(np.int64(p.compute[op]) * times[k], MAX_TICKS)
                compute[ends[k]] = min(compute[ends[k]] + work, MAX_TICKS)
            if outside:
                ends[fill], times[fill], own[op] = op, 1, True
                compute[op] = min(compute[op] + p.compute[op], MAX_TICKS)
                memory[op] += p.memory[op]
                fill += 1
            stop_of[op] = fill
        total = 0
        for op in range(n):
            if own[op] and p.is_kernel[op]:
                total += _time(compute[op], memory[op], p.launch, p.overlap)
        costs[candidate] = min(total, MAX_TICKS)
    return costs


FUSIONS = {"joined": joined, "cloned": cloned}
