"""What a fusion costs, in plain Python: slow, with sets and dictionaries.

It shares nothing with `gopt.cost.fusion` but the arrays of a `FusionProblem` and its constants.
"""

from collections import defaultdict
from typing import Any, NamedTuple

from gopt.cost.fusion import CLONES
from gopt.fusion_problem import MAX_TICKS, MAX_TIMES, OVERLAP_BITS, FusionProblem
from gopt.fusion_rules import REPEATABLE


class ReferenceKernels(NamedTuple):
    """The kernels of a configuration."""

    members: dict[int, list[int]]  # by the op that ends the kernel, as they came
    time: dict[int, int]  # ticks
    cost: int


class _Graph:
    def __init__(self, problem: FusionProblem):
        self.ops = range(int(problem.num_ops))
        self.limit = int(problem.limit)
        accesses = zip(
            *(map(int, x) for x in (problem.tensor, problem.access, problem.read)), strict=True
        )
        rows = list(accesses)[: int(problem.num_accesses)]
        self.uses = []
        for k, (tensor, op, ticks) in enumerate(rows):
            if k == 0 or rows[k - 1][0] != tensor:
                maker = op
            else:
                self.uses.append((tensor, maker, op, ticks))
        self.of = defaultdict(list)  # by the maker: readers, and how often they use each element
        for op in self.ops:
            for use in range(int(problem.first_use[op]), int(problem.first_use[op + 1])):
                self.of[op].append((int(problem.consumer[use]), int(problem.times[use])))
        self.problem = problem

    def may(self, op: int, end: int, times: int) -> bool:
        into = int(self.problem.into[op])
        return into & int(self.problem.role[end]) != 0 and (times == 1 or into & REPEATABLE != 0)

    def kernels(self, times: dict[int, dict[int, int]]) -> ReferenceKernels:
        """Costs of kernels, given for each the ops in it, and how often each is computed."""
        problem = self.problem
        total, time = 0, {}
        for end, members in times.items():
            if not problem.is_kernel[end]:
                continue
            compute = 0
            for op, repeated in members.items():
                compute = min(
                    compute + min(int(problem.compute[op]) * repeated, MAX_TICKS), MAX_TICKS
                )
            read: dict[int, int] = {}
            for tensor, maker, reader, ticks in self.uses:
                if reader in members and maker not in members:
                    read[tensor] = max(read.get(tensor, 0), ticks)
            memory = int(problem.memory[end]) + sum(read.values())
            hidden = int(problem.overlap) * min(compute, memory) // 2**OVERLAP_BITS
            time[end] = min(compute + memory - hidden + int(problem.launch), MAX_TICKS)
            total += time[end]
        return ReferenceKernels({k: list(v) for k, v in times.items()}, time, min(total, MAX_TICKS))


def joined(problem: FusionProblem, fuse: Any) -> ReferenceKernels:
    """Each op in one kernel."""
    graph = _Graph(problem)
    end_of: dict[int, int] = {}
    times: dict[int, dict[int, int]] = {}
    for op in reversed(graph.ops):
        ends = {end_of[reader] for reader, _ in graph.of[op]}
        end = op
        if fuse[op] and problem.configurable[op] and len(ends) == 1:
            (kernel,) = ends
            repeated = min(max(times[kernel][r] * t for r, t in graph.of[op]), MAX_TIMES)
            if graph.may(op, kernel, repeated) and len(times[kernel]) < graph.limit:
                end = kernel
        end_of[op] = end
        times.setdefault(end, {})[op] = repeated if end != op else 1
    return graph.kernels(times)


def cloned(problem: FusionProblem, fuse: Any) -> ReferenceKernels:
    """An op in each kernel that reads it and may have it."""
    graph = _Graph(problem)
    ends_of: dict[int, list[int]] = {}
    times: dict[int, dict[int, int]] = {}
    for op in reversed(graph.ops):
        total = sum(map(len, ends_of.values()))
        mine, outside = [], False
        for reader, again in graph.of[op]:
            for kernel in ends_of[reader]:
                repeated = min(times[kernel][reader] * again, MAX_TIMES)
                if kernel in mine:
                    continue
                if (
                    fuse[op]
                    and problem.configurable[op]
                    and graph.may(op, kernel, repeated)
                    and len(times[kernel]) < graph.limit
                    and total + len(mine) < CLONES * len(graph.ops)
                ):
                    mine.append(kernel)
                    times[kernel][op] = repeated
                else:
                    outside = True
        if outside or not mine:
            mine.append(op)
            times[op] = {op: 1}
        ends_of[op] = mine
    return graph.kernels(times)
