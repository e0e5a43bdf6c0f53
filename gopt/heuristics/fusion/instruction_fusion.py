"""Instruction fusion: what XLA does on CPUs."""

from itertools import pairwise

import numpy as np

from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.reachable import admitted
from gopt.cost.fusion.rules import REPEATABLE


def instruction_fusion(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration of XLA's instruction fusion on a CPU, bool `[N]`.

    From the last op to the first, an op is fused into each kernel that reads it and may have it;
    one that is dear to compute only if it is the only one. An op that reads more than it makes is
    in memory unless all on its ways to its readers may be fused. This is simpler than the source,
    which has rules for products with vectors, concatenations and the size of the code.

    Source: xla/service/cpu/cpu_instruction_fusion.cc, commit 0725a3a9, and
    xla/service/instruction_fusion.cc, commit 001918b7.
    """
    n = int(problem.num_ops)
    fuse = np.zeros(len(problem.compute), bool)
    uses = _Uses(problem)
    allowed, into = admitted(problem.reach, n), np.asarray(problem.into)
    kept = _kept(problem, uses)
    kernels: list[set[int]] = [set() for _ in range(n)]  # that have each op
    for op in reversed(range(n)):
        wanted = {kernel for reader, _ in uses.of[op] for kernel in kernels[reader]}
        may = {kernel for kernel in wanted if op in allowed[kernel]}
        is_free = bool(into[op] & REPEATABLE) or len(wanted) == 1
        fuse[op] = len(may) > 0 and not kept[op] and is_free
        if fuse[op]:
            kernels[op] |= may
        if not fuse[op] or may < wanted:
            kernels[op].add(op)
    return fuse


class _Uses:
    """Who reads what an op makes, and what an op reads."""

    def __init__(self, problem: FusionProblem):
        n, count = int(problem.num_ops), int(problem.num_accesses)
        first, consumer = np.asarray(problem.first_use).tolist(), np.asarray(problem.consumer)
        times = np.asarray(problem.times)
        self.of = [  # (reader, how often it uses an element)
            list(zip(consumer[a:b].tolist(), times[a:b].tolist(), strict=True))
            for a, b in pairwise(first[: n + 1])
        ]
        self.read: list[dict[int, int]] = [{} for _ in range(n)]  # makers, and how often
        for maker, readers in enumerate(self.of):
            for reader, again in readers:
                self.read[reader][maker] = max(again, self.read[reader].get(maker, 1))
        access = np.asarray(problem.access)[:count]
        self.ticks = np.bincount(access, np.asarray(problem.read)[:count], minlength=n)


def _kept(problem: FusionProblem, uses: _Uses) -> list[bool]:
    """Returns which ops are in memory, because to clone them would be to read more.

    Those that read more than they make, from two operands of full size at least, if on a path to
    one of their readers something may not be fused.
    """
    n = int(problem.num_ops)
    role, into = np.asarray(problem.role).tolist(), np.asarray(problem.into).tolist()
    made, is_choice = np.asarray(problem.memory).tolist(), np.asarray(problem.configurable)
    reads_more = [
        uses.ticks[op] > made[op] and sum(again == 1 for again in uses.read[op].values()) > 1
        for op in range(n)
    ]
    kept = [False] * n
    after = [1 << op for op in range(n)]  # ops with a path from each op, and itself, as bits
    parted = [0] * n  # those of them with a use on a path to them that may not be fused
    for op in reversed(range(n)):
        readers = 0
        for reader, _ in uses.of[op]:
            is_once = uses.read[reader][op] == 1 and len(uses.of[op]) == 1
            is_legal = is_choice[op] and into[op] & role[reader]
            may = is_legal and (is_once or into[op] & REPEATABLE)
            readers |= 1 << reader
            after[op] |= after[reader]
            parted[op] |= parted[reader] if may else after[reader]
        if reads_more[op] and parted[op] & readers:
            kept[op] = True
            parted[op] = after[op] ^ 1 << op
    return kept
