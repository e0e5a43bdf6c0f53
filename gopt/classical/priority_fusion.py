"""Priority fusion: what XLA does on GPUs, by the cost model of `gopt.cost.fusion`."""

import heapq
from itertools import pairwise

import numpy as np

from gopt.fusion_problem import MAX_TIMES, OVERLAP_BITS, FusionProblem
from gopt.fusion_rules import REPEATABLE

_Members = dict[int, int]  # ops of a kernel, and how often each is computed


def priority_fusion(problem: FusionProblem) -> np.ndarray:
    """Returns the configuration of XLA's priority fusion, bool `[N]`.

    Meant to be decoded by `gopt.cost.fusion.cloned`. At first each op is a kernel. The kernel whose
    fusion into all kernels that read it saves most time is fused, of equals the first op's, until
    any would cost more: a fusion that saves 0 ticks is done. After each its neighbours are scored
    anew. What may not be fused into all of its readers stays.

    Source: xla/service/gpu/transforms/priority_fusion.cc. Times are by our model, not by XLA's.
    An op that readers in a kernel use unequally often counts as often as the one that needs most.
    """
    state = _State(problem)
    fuse = np.zeros(len(problem.compute), bool)
    heap = [(-priority, op) for op in state.kernels if (priority := state.priority(op)) is not None]
    heapq.heapify(heap)
    newest = {op: priority for priority, op in heap}
    while heap:
        priority, op = heapq.heappop(heap)
        if newest.get(op) != priority:
            continue
        if priority > 0:
            break
        fuse[op] = True
        newest.pop(op)
        for changed in state.fuse(op):
            found = state.priority(changed)
            if found is None:
                newest.pop(changed, None)
            elif newest.get(changed) != -found:
                newest[changed] = -found
                heapq.heappush(heap, (-found, changed))
    return fuse


class _State:
    """The kernels so far, by the op that ends each."""

    def __init__(self, problem: FusionProblem):
        n, count = int(problem.num_ops), int(problem.num_accesses)
        self._compute, self._memory = problem.compute.tolist(), problem.memory.tolist()
        self._role, self._into = problem.role.tolist(), problem.into.tolist()
        self._configurable = problem.configurable.tolist()
        self._limit, self._launch = int(problem.limit), int(problem.launch)
        self._overlap = int(problem.overlap)
        tensor, op = problem.tensor[:count].tolist(), problem.access[:count].tolist()
        self._maker: dict[int, int] = {}
        self._reads: list[list[tuple[int, int]]] = [[] for _ in range(n)]  # tensors, ticks
        for t, i, ticks in zip(tensor, op, problem.read[:count].tolist(), strict=True):
            if t in self._maker:
                self._reads[i].append((t, ticks))
            else:
                self._maker[t] = i
        first, reader = problem.first_use.tolist(), problem.consumer.tolist()
        times = problem.times.tolist()
        self._uses = [
            list(zip(reader[a:b], times[a:b], strict=True)) for a, b in pairwise(first[: n + 1])
        ]
        self.kernels: dict[int, _Members] = {
            int(i): {int(i): 1} for i in np.flatnonzero(problem.is_kernel)
        }
        self._holders: list[set[int]] = [{i} for i in range(n)]  # kernels with each op
        self._time = {end: self._seconds(end, members) for end, members in self.kernels.items()}
        self._version = dict.fromkeys(self.kernels, 0)
        self._saved: dict[tuple[int, int], tuple[int, int, int | None]] = {}

    def priority(self, end: int) -> int | None:
        """Returns the ticks that fusing a kernel into its readers saves; None if it may not be."""
        if not self._configurable[end]:
            return None
        total = self._time[end]
        for reader, times in self._readers(end).items():
            saved = self._saving(end, reader, times)
            if saved is None:
                return None
            total += saved
        return total

    def fuse(self, end: int) -> set[int]:
        """Fuses a kernel into its readers, and returns the kernels with other neighbours now."""
        readers = self._readers(end)
        members = self.kernels[end]
        for reader, times in readers.items():
            self.kernels[reader] = self._merged(end, reader, times)
            self._time[reader] = self._seconds(reader, self.kernels[reader])
            self._version[reader] += 1
            for op in members:
                self._holders[op].add(reader)
        del self.kernels[end], self._time[end]
        for op in members:
            self._holders[op].discard(end)
        makers = {
            self._maker[tensor]
            for reader in readers
            for op in self.kernels[reader]
            for tensor, _ in self._reads[op]
        }
        return (makers | set(readers)) & self.kernels.keys()

    def _readers(self, end: int) -> _Members:
        """Returns the kernels that read what a kernel makes, and how often they use an element."""
        found: _Members = {}
        for op, again in self._uses[end]:
            for kernel in self._holders[op]:
                times = self.kernels[kernel][op] * again
                found[kernel] = max(found.get(kernel, 1), times)
        return found

    def _saving(self, end: int, reader: int, times: int) -> int | None:
        versions = self._version[end], self._version[reader]
        known = self._saved.get((end, reader))
        if known is None or known[:2] != versions:
            merged = self._merged(end, reader, times)
            may = len(merged) <= self._limit and all(
                self._into[op] & self._role[reader]
                and (merged[op] == 1 or self._into[op] & REPEATABLE)
                for op in self.kernels[end]
            )
            saved = self._time[reader] - self._seconds(reader, merged) if may else None
            known = self._saved[end, reader] = *versions, saved
        return known[2]

    def _merged(self, end: int, reader: int, times: int) -> _Members:
        merged = dict(self.kernels[reader])
        for op, own in self.kernels[end].items():
            merged[op] = max(merged.get(op, 1), min(own * times, MAX_TIMES))
        return merged

    def _seconds(self, end: int, members: _Members) -> int:
        """Returns ticks, as `gopt.cost.fusion_kernels.timed_kernels` does, but without an end.

        What takes `MAX_TICKS` is never fused: it costs more than all ops one by one.
        """
        compute = sum(self._compute[op] * times for op, times in members.items())
        read: dict[int, int] = {}
        for op in members:
            for tensor, ticks in self._reads[op]:
                if self._maker[tensor] not in members:
                    read[tensor] = max(read.get(tensor, 0), ticks)
        memory = self._memory[end] + sum(read.values())
        hidden = self._overlap * min(compute, memory) >> OVERLAP_BITS
        return compute + memory - hidden + self._launch
