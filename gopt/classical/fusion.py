"""Configurations of fusion that need no search: the extremes, and what XLA does on a CPU."""

from collections.abc import Callable

import numpy as np

from gopt.fusion_problem import MAX_TIMES, FusionProblem
from gopt.fusion_rules import REPEATABLE


def nothing(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration in which each op is a kernel, bool `[N]`."""
    return np.zeros(len(problem.compute), bool)


def everything(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration in which whatever may be fused is, bool `[N]`."""
    return np.array(problem.configurable)


def instruction_fusion(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration of XLA's instruction fusion on a CPU, bool `[N]`.

    Meant to be decoded by `gopt.cost.fusion.cloned`. From the last op to the first, an op is fused
    into each kernel that reads it and may have it; one that is dear to compute only if all may.
    This is simpler than the source, which forbids to clone what reads more than it makes, dear or
    not, and has rules for products with vectors, concatenations and the size of the code.

    Source: xla/service/cpu/cpu_instruction_fusion.cc, commit 0725a3a9, and
    xla/service/instruction_fusion.cc, commit 001918b7.
    """
    n = int(problem.num_ops)
    fuse = np.zeros(len(problem.compute), bool)
    first, consumer = np.asarray(problem.first_use).tolist(), np.asarray(problem.consumer).tolist()
    again = np.asarray(problem.times).tolist()
    role, into = np.asarray(problem.role).tolist(), np.asarray(problem.into).tolist()
    times: list[dict[int, int]] = [{} for _ in range(n)]  # of each op, in its kernels
    size = [1] * n
    for op in reversed(range(n)):
        wanted: dict[int, int] = {}
        for use in range(first[op], first[op + 1]):
            for kernel, repeated in times[consumer[use]].items():
                wanted.setdefault(kernel, min(repeated * again[use], MAX_TIMES))
        is_cheap = into[op] & REPEATABLE
        may = {
            kernel: repeated
            for kernel, repeated in wanted.items()
            if into[op] & role[kernel]
            and (repeated == 1 or is_cheap)
            and size[kernel] < problem.limit
        }
        fuse[op] = may and problem.configurable[op] and (is_cheap or len(wanted) == len(may))
        if fuse[op]:
            times[op] |= may
            for kernel in may:
                size[kernel] += 1
        if not fuse[op] or len(may) < len(wanted):
            times[op][op] = 1
    return fuse


FUSIONS: dict[str, Callable[[FusionProblem], np.ndarray]] = {
    "nothing": nothing,
    "everything": everything,
    "instruction fusion": instruction_fusion,
}
