"""Configurations of fusion that need no search, in plain Python: slow, all anew each time."""

from typing import Any

from gopt.fusion_problem import MAX_TIMES, FusionProblem
from gopt.fusion_rules import REPEATABLE
from tests.reference.fusion import _Graph


def priority_fusion(problem: FusionProblem) -> list[bool]:
    """Fuses, as long as one does not cost more, the kernel into all its readers that saves most."""
    graph = _Graph(problem)
    kernels = {op: {op: 1} for op in graph.ops if problem.is_kernel[op]}
    fuse = [False] * len(problem.compute)

    def without(end: int) -> dict[int, dict[int, int]] | None:
        """The kernels when one of them is in all that read it."""
        found = {other: dict(members) for other, members in kernels.items() if other != end}
        for reader, members in kernels.items():
            times = [members[op] * again for op, again in graph.of[end] if op in members]
            if reader == end or not times:
                continue
            for op, own in kernels[end].items():
                repeated = min(own * min(max(times), MAX_TIMES), MAX_TIMES)
                found[reader][op] = max(found[reader].get(op, 1), repeated)
                if not graph.may(op, reader, found[reader][op]):
                    return None
            if len(found[reader]) > graph.limit:
                return None
        return found

    while True:
        cost = graph.kernels(kernels).cost
        best: tuple[int, int] | None = None
        for op in kernels:
            if problem.configurable[op]:
                found = without(op)
                if found is not None:
                    saved = cost - graph.kernels(found).cost
                    best = max(best or (saved, -op), (saved, -op))
        if best is None or best[0] < 0:
            return fuse
        end = -best[1]
        fused = without(end)
        assert fused is not None
        kernels, fuse[end] = fused, True


def kept_in_memory(problem: FusionProblem) -> set[int]:
    """Ops that read more than they make and with a use that may not be fused on a way to a reader.

    Ways are followed one by one.
    """
    graph = _Graph(problem)
    reads: dict[int, dict[int, int]] = {op: {} for op in graph.ops}
    for maker in graph.ops:
        for reader, again in graph.of[maker]:
            reads[reader][maker] = max(again, reads[reader].get(maker, 1))
    moved = dict.fromkeys(graph.ops, 0)
    for _, _, reader, ticks in graph.uses:
        moved[reader] += ticks
    kept: set[int] = set()

    def may(op: int, reader: int) -> bool:
        into = int(problem.into[op])
        once = reads[reader][op] == 1 and len(graph.of[op]) == 1
        legal = problem.configurable[op] and into & int(problem.role[reader])
        return bool(legal and op not in kept and (once or into & REPEATABLE))

    blocked: dict[tuple[int, int], bool] = {}  # use: how it was when its reader was looked at

    def ways(op: int, end: int) -> Any:
        """All paths from an op to another one, as lists of uses."""
        if op == end:
            yield []
        for maker in reads[end]:
            for way in ways(op, maker):
                yield [*way, (maker, end)]

    for reader in graph.ops:
        for op in reads[reader]:
            blocked[op, reader] = not may(op, reader)
        for op in reads[reader]:
            wide = sum(again == 1 for again in reads[op].values()) > 1
            if op in kept or not wide or moved[op] <= int(problem.memory[op]):
                continue
            if any(blocked[use] for way in ways(op, reader) for use in way):
                kept.add(op)
                blocked[op, reader] = True
    return kept
