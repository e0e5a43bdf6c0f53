"""Fusion heuristics in plain Python: slow, everything recomputed at each step."""

from collections.abc import Iterator

import numpy as np

from gopt.cost.fusion.kernel_reach import Ops, compute_reach, pad_reach
from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.rules import REPEATABLE
from tests.reference.fusion import Graph, ReferenceKernels, kernels


def rebuilt(problem: FusionProblem) -> FusionProblem:
    """Return a problem whose arrays were changed, with recomputed `compute_reach`."""
    n, count = int(problem.num_ops), int(problem.num_accesses)
    graph = Graph(problem._replace(is_kernel=problem.is_kernel & False))
    often: dict[tuple[int, int], int] = {}
    for op in graph.ops:
        for reader, again in graph.of[op]:
            often[op, reader] = max(again, often.get((op, reader), 1))
    uses = sorted(graph.uses, key=lambda use: (use[0], -use[3], use[2]))
    assert len(uses) <= count
    tensor, maker, reader, read = np.array(uses, np.int64).reshape(-1, 4).T
    times = np.array([often[use[1], use[2]] for use in uses], np.int64)
    by_op = (
        problem.compute,
        problem.role,
        problem.fuses_into,
        problem.is_kernel,
        problem.configurable,
    )
    ops = Ops(*(x[:n] for x in by_op), tensor, maker, reader, times, read)
    found = compute_reach(
        ops,
        max_kernel_ops=int(problem.max_kernel_ops),
        allow_duplication=bool(problem.allow_duplication),
    )
    rows = len(problem.compute), len(problem.reach.kernel)
    return problem._replace(reach=pad_reach(found, *rows))


def priority_fusion(problem: FusionProblem) -> tuple[list[bool], int]:
    """Fuse the op that saves most into its consumers, until each further fusion costs more.

    Return the configuration, and the total time of its kernels, ticks.
    """
    graph = Graph(problem)

    def found(fused: set[int]) -> ReferenceKernels:
        return kernels(problem, [op in fused for op in range(len(problem.compute))], graph)

    def cost(fused: set[int]) -> int:
        return sum(found(fused).time.values())

    def may(fused: set[int], end: int) -> bool:
        members = found(fused).members
        return all(
            members[end] <= graph.allowed[kernel].keys()
            for kernel, inside in members.items()
            if any(reader in inside for reader, _ in graph.of[end])
        )

    fused: set[int] = set()
    while True:
        before = cost(fused)
        saved = {
            op: before - cost({*fused, op})
            for op in graph.ops
            if problem.configurable[op] and op not in fused and may(fused, op)
        }
        if not saved or max(saved.values()) < 0:
            return [op in fused for op in range(len(problem.compute))], before
        fused.add(max(saved, key=lambda op: (saved[op], -op)))


def kept_in_memory(problem: FusionProblem) -> set[int]:
    """Return ops whose result XLA's instruction fusion keeps in memory.

    Such an op reads more than it writes, and at least two operands element by element. Some path
    from it to one of its consumers has a use that is not fused, or a producer that is kept. Paths
    are followed one by one, until no more ops are found.
    """
    graph = Graph(problem)
    often: dict[tuple[int, int], int] = {}
    for op in graph.ops:
        for reader, again in graph.of[op]:
            often[op, reader] = max(again, often.get((op, reader), 1))
    makers = {op: [maker for maker, reader in often if reader == op] for op in graph.ops}
    readers = {op: [reader for maker, reader in often if maker == op] for op in graph.ops}
    moved = dict.fromkeys(graph.ops, 0)
    for _, _, reader, ticks in graph.uses:
        moved[reader] += ticks

    def ways(op: int) -> Iterator[list[tuple[int, int]]]:
        """Yield all paths from an op, as lists of uses."""
        for reader in readers[op]:
            yield [(op, reader)]
            for way in ways(reader):
                yield [(op, reader), *way]

    def is_fused(op: int, reader: int) -> bool:
        fuses_into = int(problem.fuses_into[op])
        is_once = often[op, reader] == 1 and len(graph.of[op]) == 1
        is_legal = bool(problem.configurable[op]) and fuses_into & int(problem.role[reader]) != 0
        return is_legal and (is_once or fuses_into & REPEATABLE != 0)

    wide = [
        op
        for op in graph.ops
        if sum(often[maker, op] == 1 for maker in makers[op]) > 1
        and moved[op] > int(problem.memory[op])
    ]
    kept: set[int] = set()
    while True:
        more = {
            op
            for op in wide
            for way in ways(op)
            if way[-1][1] in readers[op]
            and any(maker in kept or not is_fused(maker, reader) for maker, reader in way)
        }
        if more == kept:
            return kept
        kept = more


def instruction_fusion(problem: FusionProblem) -> list[bool]:
    """Return XLA's instruction fusion: cheap ops join all legal kernels, others their only one."""
    graph, kept = Graph(problem), kept_in_memory(problem)
    fuse = [False] * len(problem.compute)
    found: dict[int, set[int]] = {}  # ops of kernels, by the op that ends each
    for op in reversed(graph.ops):
        readers = [
            end
            for end, inside in found.items()
            if any(reader in inside for reader, _ in graph.of[op])
        ]
        fuses_into = [end for end in readers if op in graph.allowed.get(end, ())]
        is_cheap = int(problem.fuses_into[op]) & REPEATABLE != 0
        fuse[op] = op not in kept and len(fuses_into) > 0 and (is_cheap or len(readers) == 1)
        if fuse[op]:
            for end in fuses_into:
                found[end].add(op)
        if not fuse[op] or len(fuses_into) < len(readers):
            found[op] = {op}
    return fuse
