"""Instruction fusion: the fusion pass of XLA on CPUs."""

from itertools import pairwise

import numpy as np
from jaxtyping import Bool

from gopt.cost.fusion.kernel_reach import members_by_kernel
from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.rules import REPEATABLE


def instruction_fusion(problem: FusionProblem) -> Bool[np.ndarray, " N"]:
    """Return the configuration of XLA's instruction fusion on a CPU, bool `[N]`.

    Ops are visited from last to first. An op is fused into each kernel that reads it and may
    contain it. An op that is expensive to compute is fused only if exactly one kernel reads it. An
    op that reads more than it writes stays in memory, unless all ops on its paths to its readers
    may be fused. XLA has further rules, for matrix-vector products, concatenations and code size;
    they are left out.

    Args:
      problem: one fusion problem of N rows of ops.

    Source: xla/service/cpu/cpu_instruction_fusion.cc, commit 0725a3a9, and
    xla/service/instruction_fusion.cc, commit 001918b7.
    """
    n = int(problem.num_ops)
    fuse = np.zeros(len(problem.compute), bool)
    uses = _Uses(problem)
    allowed, fuses_into = members_by_kernel(problem.reach, n), np.asarray(problem.fuses_into)
    kept = _kept(problem, uses)
    kernels: list[set[int]] = [set() for _ in range(n)]  # kernels that contain each op
    for op in reversed(range(n)):
        wanted = {kernel for reader, _ in uses.of[op] for kernel in kernels[reader]}
        may = {kernel for kernel in wanted if op in allowed[kernel]}
        is_free = bool(fuses_into[op] & REPEATABLE) or len(wanted) == 1
        fuse[op] = len(may) > 0 and not kept[op] and is_free
        if fuse[op]:
            kernels[op] |= may
        if not fuse[op] or may < wanted:
            kernels[op].add(op)
    return fuse


class _Uses:
    """Readers of each op's results, and the producers that each op reads."""

    def __init__(self, problem: FusionProblem):
        n, count = int(problem.num_ops), int(problem.num_accesses)
        first, consumer = np.asarray(problem.first_use).tolist(), np.asarray(problem.consumer)
        times = np.asarray(problem.repetitions)
        self.of = [  # (reader, uses per element)
            list(zip(consumer[a:b].tolist(), times[a:b].tolist(), strict=True))
            for a, b in pairwise(first[: n + 1])
        ]
        self.read: list[dict[int, int]] = [{} for _ in range(n)]  # producer to uses per element
        for maker, readers in enumerate(self.of):
            for reader, again in readers:
                self.read[reader][maker] = max(again, self.read[reader].get(maker, 1))
        access = np.asarray(problem.access)[:count]
        self.ticks = np.bincount(access, np.asarray(problem.read)[:count], minlength=n)


def _kept(problem: FusionProblem, uses: _Uses) -> list[bool]:
    """Return True for each op that stays in memory because duplicating it would read more.

    Such an op reads more than it writes, from at least two operands of full size. A path to one of
    its readers has a use that may not be fused.
    """
    n = int(problem.num_ops)
    role, fuses_into = np.asarray(problem.role).tolist(), np.asarray(problem.fuses_into).tolist()
    made, is_choice = np.asarray(problem.memory).tolist(), np.asarray(problem.configurable)
    reads_more = [
        uses.ticks[op] > made[op] and sum(again == 1 for again in uses.read[op].values()) > 1
        for op in range(n)
    ]
    kept = [False] * n
    after = [1 << op for op in range(n)]  # bit sets: each op and all ops reachable from it
    parted = [0] * n  # bit sets: those reached through a use that may not be fused
    for op in reversed(range(n)):
        readers = 0
        for reader, _ in uses.of[op]:
            is_once = uses.read[reader][op] == 1 and len(uses.of[op]) == 1
            is_legal = is_choice[op] and fuses_into[op] & role[reader]
            may = is_legal and (is_once or fuses_into[op] & REPEATABLE)
            readers |= 1 << reader
            after[op] |= after[reader]
            parted[op] |= parted[reader] if may else after[reader]
        if reads_more[op] and parted[op] & readers:
            kept[op] = True
            parted[op] = after[op] ^ 1 << op
    return kept
