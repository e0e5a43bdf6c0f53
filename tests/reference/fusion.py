"""Cost model of fusions in plain Python: slow, with sets and dictionaries.

It shares only constants and the arrays of a `FusionProblem` with `gopt.cost.fusion.cost`, and does
not read `FusionProblem.reach`.
"""

from collections import defaultdict
from typing import Any, NamedTuple

from gopt.cost.fusion.kernel_reach import MAX_REPETITIONS, MAX_TICKS
from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem
from gopt.cost.fusion.rules import REPEATABLE


class ReferenceKernels(NamedTuple):
    """The kernels of a configuration.

    Attributes:
      members: ops of each kernel, by the op that ends it.
      time: time of each kernel, by the op that ends it, ticks.
      cost: total time, ticks.
    """

    members: dict[int, set[int]]
    time: dict[int, int]
    cost: int


class Graph:
    """A problem as sets and dictionaries."""

    def __init__(self, problem: FusionProblem):
        self.ops = range(int(problem.num_ops))
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
        self.of = defaultdict(list)  # by producer: consumers, and how often each uses an element
        for op in self.ops:
            for use in range(int(problem.first_use[op]), int(problem.first_use[op + 1])):
                self.of[op].append((int(problem.consumer[use]), int(problem.repetitions[use])))
        self.problem = problem
        self.allowed = {end: self._allowed(end) for end in self.ops if problem.is_kernel[end]}

    def _allowed(self, end: int) -> dict[int, int]:
        """Return the ops that may be in the kernel of `end`, and how often it computes each."""
        problem, found = self.problem, {end: 1}
        for op in range(end - 1, -1, -1):
            inside = [(reader, again) for reader, again in self.of[op] if reader in found]
            if not inside or not problem.configurable[op]:
                continue
            times = min(max(found[reader] * again for reader, again in inside), MAX_REPETITIONS)
            fuses_into = int(problem.fuses_into[op])
            if (
                fuses_into & int(problem.role[end]) != 0
                and (times == 1 or fuses_into & REPEATABLE != 0)
                and len(found) < int(problem.max_kernel_ops)
                and (problem.allow_duplication or len(inside) == len(self.of[op]))
            ):
                found[op] = times
        return found

    def timed(self, members: dict[int, set[int]]) -> ReferenceKernels:
        """Return kernels with their times, given the ops of each."""
        problem = self.problem
        total, time = 0, {}
        for end, inside in members.items():
            if not problem.is_kernel[end]:
                continue
            compute = 0
            for op in inside:
                work = min(int(problem.compute[op]) * self.allowed[end][op], MAX_TICKS)
                compute = min(compute + work, MAX_TICKS)
            read: dict[int, int] = {}
            for tensor, maker, reader, ticks in self.uses:
                if reader in inside and maker not in inside:
                    read[tensor] = max(read.get(tensor, 0), ticks)
            memory = int(problem.memory[end]) + sum(read.values())
            hidden = int(problem.overlap) * min(compute, memory) // 2**OVERLAP_BITS
            time[end] = min(compute + memory - hidden + int(problem.launch), MAX_TICKS)
            total += time[end]
        found = {end: inside for end, inside in members.items() if end in time}
        return ReferenceKernels(found, time, min(total, MAX_TICKS))


def kernels(problem: FusionProblem, fuse: Any, graph: Graph | None = None) -> ReferenceKernels:
    """Return the kernels of a configuration; ops may be in several if the problem clones."""
    graph = graph or Graph(problem)
    members: dict[int, set[int]] = {}
    for op in reversed(graph.ops):
        readers = {
            end
            for end, inside in members.items()
            if any(reader in inside for reader, _ in graph.of[op])
        }
        may = {end for end in readers if op in graph.allowed.get(end, ())}
        if not problem.allow_duplication and len(readers) > 1:
            may = set()
        if not (fuse[op] and problem.configurable[op]):
            may = set()
        for end in may:
            members[end].add(op)
        if may < readers or not readers:
            members[op] = {op}
    return graph.timed(members)


def by_level(problem: FusionProblem, level: Any, graph: Graph | None = None) -> dict[int, set[int]]:
    """Return kernels, by the op that ends each, after legal fusions in order of falling level."""
    graph = graph or Graph(problem)
    members = {op: {op} for op in graph.ops}
    for op in sorted(graph.ops, key=lambda op: (-level[op], -op)):
        readers = {
            end
            for end, inside in members.items()
            if any(reader in inside for reader, _ in graph.of[op])
        }
        if level[op] <= 0 or not problem.configurable[op] or len(readers) != 1:
            continue
        (end,) = readers
        if members[op] <= graph.allowed[end].keys():
            members[end] |= members.pop(op)
    return members
