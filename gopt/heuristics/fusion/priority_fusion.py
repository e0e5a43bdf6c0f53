"""Priority fusion, XLA's fusion pass on GPUs, under the cost model of `gopt.cost.fusion.cost`."""

import heapq
from itertools import pairwise

import numpy as np
from jaxtyping import Bool

from gopt.cost.fusion.kernel_reach import members_by_kernel
from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem


def priority_fusion(problem: FusionProblem) -> Bool[np.ndarray, " N"]:
    """Return the configuration of XLA's priority fusion, bool `[N]`.

    At first each op is a kernel. Each step fuses the kernel that saves most time when fused into
    all kernels that read it; the first op wins ties. A step that saves 0 ticks is taken; the pass
    ends when every fusion would cost time. After each step the neighbours are scored again. A
    kernel that may not be fused into all of its readers stays.

    Args:
      problem: one fusion problem of N rows of ops.

    Source: xla/service/gpu/transforms/priority_fusion.cc. Times are by our model, not XLA's.
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
    """The current kernels, keyed by their last op."""

    def __init__(self, problem: FusionProblem):
        n, count = int(problem.num_ops), int(problem.num_accesses)
        self._compute, self._memory = problem.compute.tolist(), problem.memory.tolist()
        self._work = members_by_kernel(problem.reach, n)
        self._configurable = problem.configurable.tolist()
        self._launch, self._overlap = int(problem.launch), int(problem.overlap)
        tensor, op = problem.tensor[:count].tolist(), problem.access[:count].tolist()
        self._maker: dict[int, int] = {}
        self._reads: list[list[tuple[int, int]]] = [[] for _ in range(n)]  # (tensor, ticks) per op
        for t, i, ticks in zip(tensor, op, problem.read[:count].tolist(), strict=True):
            if t in self._maker:
                self._reads[i].append((t, ticks))
            else:
                self._maker[t] = i
        first, reader = problem.first_use.tolist(), problem.consumer.tolist()
        self._uses = [reader[a:b] for a, b in pairwise(first[: n + 1])]
        self.kernels = {int(i): {int(i)} for i in np.flatnonzero(problem.is_kernel)}
        self._holders: list[set[int]] = [{i} for i in range(n)]  # kernels that contain each op
        self._time = {end: self._seconds(end, members) for end, members in self.kernels.items()}
        self._version = dict.fromkeys(self.kernels, 0)
        self._saved: dict[tuple[int, int], tuple[int, int, int | None]] = {}

    def priority(self, end: int) -> int | None:
        """Return the ticks saved by fusing a kernel into its readers; None if not allowed."""
        if not self._configurable[end]:
            return None
        total = self._time[end]
        for reader in self._readers(end):
            saved = self._saving(end, reader)
            if saved is None:
                return None
            total += saved
        return total

    def fuse(self, end: int) -> set[int]:
        """Fuse a kernel into its readers; return the kernels whose neighbours have changed."""
        readers = self._readers(end)
        members = self.kernels[end]
        for reader in readers:
            self.kernels[reader] |= members
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
        return (makers | readers) & self.kernels.keys()

    def _readers(self, end: int) -> set[int]:
        """Return the kernels that read a kernel's result."""
        return {kernel for op in self._uses[end] for kernel in self._holders[op]}

    def _saving(self, end: int, reader: int) -> int | None:
        versions = self._version[end], self._version[reader]
        known = self._saved.get((end, reader))
        if known is None or known[:2] != versions:
            members, saved = self.kernels[end], None
            if members <= self._work[reader].keys():
                merged = self.kernels[reader] | members
                saved = self._time[reader] - self._seconds(reader, merged)
            known = self._saved[end, reader] = *versions, saved
        return known[2]

    def _seconds(self, end: int, members: set[int]) -> int:
        """Return the ticks of a kernel, as `gopt.cost.fusion.kernels.time_kernels`, but uncapped.

        A kernel of `MAX_TICKS` is never fused: it costs more than all ops one by one.
        """
        compute = self._compute[end] + sum(self._work[end][op] for op in members - {end})
        read: dict[int, int] = {}
        for op in members:
            for tensor, ticks in self._reads[op]:
                if self._maker[tensor] not in members:
                    read[tensor] = max(read.get(tensor, 0), ticks)
        memory = self._memory[end] + sum(read.values())
        hidden = self._overlap * min(compute, memory) >> OVERLAP_BITS
        return compute + memory - hidden + self._launch
