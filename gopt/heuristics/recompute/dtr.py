"""Dynamic Tensor Rematerialization: evict what is cheap, large and stale; recompute on demand.

Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), with the heuristic
h_DTR^eq and eager eviction: the time of an op counts the evicted ops around it, which are kept as
disjoint sets. The tensors of an op are evicted together, and are forgotten once nothing can need
them again.
"""

from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute.evicted_sets import EvictedSets


def dtr(problem: Problem, budget: int, *, most_runs: int = 100) -> list[int] | None:
    """Return the runs of a program that keeps to a budget as it goes, or `None` if it fails.

    The program runs in its order. When memory is short, it evicts tensors of the op with the least
    `(time + time of evicted ops around) / (bytes * time since last use)`.

    Args:
      problem: one problem.
      budget: memory that the runs may need, units.
      most_runs: runs for each op at which it gives up.

    Returns:
      The ops in the order in which they run, some of them often.
    """
    run = _Simulation(problem, int(budget))
    ops = range(int(problem.num_ops))
    limit = most_runs * len(ops)
    in_order = sorted(ops, key=lambda op: not problem.is_input[op])
    fits = run.used <= budget and all(run.first(op, limit) for op in in_order)
    return run.runs if fits else None


class _Simulation:
    """Memory of a program as it runs.

    Attributes:
      runs: ops that have run, in order.
      used: bytes in memory, units.
    """

    def __init__(self, problem: Problem, budget: int):
        n, links, uses = int(problem.num_ops), int(problem.num_links), int(problem.num_uses)
        self.budget = budget
        self.ticks = problem.ticks.tolist()
        self.workspace = problem.workspace.tolist()
        self.may_repeat = problem.may_repeat.tolist()
        self.reads: list[list[int]] = [[] for _ in range(n)]
        self.readers: list[list[int]] = [[] for _ in range(n)]
        rows = zip(problem.maker[:links], problem.reader[:links], problem.is_read, strict=False)
        for maker, reader, is_read in rows:
            if is_read:
                self.reads[reader].append(int(maker))
                self.readers[maker].append(int(reader))
        self.made, self.held = [0] * n, [0] * n  # bytes during a run, and after it
        self.is_pinned = [False] * n
        read = set(problem.tensor[:uses].tolist())
        for tensor, op in enumerate(problem.producer.tolist()):
            if op < n:
                is_pinned, size = bool(problem.pinned[tensor]), int(problem.size[tensor])
                self.made[op] += size
                self.held[op] += size if is_pinned or tensor in read else 0
                self.is_pinned[op] |= is_pinned
        self.resident = problem.is_input[:n].tolist()
        self.used = sum(self.made[op] for op in range(n) if self.resident[op])
        self.unread = [len(found) for found in self.readers]  # readers still to run first
        self.needs = list(self.unread)  # readers still to run first or perhaps again
        self.locks = [0] * n
        self.seen = [0] * n  # time of last use
        self.clock = 0
        self.runs: list[int] = []
        around = [a + b for a, b in zip(self.reads, self.readers, strict=True)]
        self.evicted = EvictedSets(self.ticks, around)

    def first(self, op: int, limit: int) -> bool:
        """Run an op for the first time, after what it needs; return whether that fits."""
        stack = [op]
        self._lock(op, 1)
        while stack:
            top = stack[-1]
            missing = next((maker for maker in self.reads[top] if not self.resident[maker]), None)
            if missing is not None:
                self._lock(missing, 1)
                stack.append(missing)
            elif len(self.runs) < limit and self._run(stack.pop()):
                self._lock(top, -1)
            else:
                return False
        for maker in self.reads[op]:
            self.unread[maker] -= 1
            if not self.unread[maker] and self.may_repeat[maker] and self.resident[maker]:
                self._evict(maker)
        if not self.may_repeat[op] or not self.needs[op]:
            self._release(op)
        return True

    def _run(self, op: int) -> bool:
        is_given = self.resident[op]
        more = self.workspace[op] + (0 if is_given else self.made[op])
        while self.used + more > self.budget:
            free = [x for x, is_resident in enumerate(self.resident) if is_resident]
            free = [x for x in free if self.may_repeat[x] and not self.locks[x] and self.held[x]]
            if not free:
                return False
            self._evict(min(free, key=self._score))
        self.used += self.held[op] - (self.made[op] if is_given else 0)
        self.resident[op] = True
        self.evicted.remove(op)
        self.runs.append(op)
        self.clock += self.ticks[op]
        for x in (op, *self.reads[op]):
            self.seen[x] = self.clock
        return True

    def _lock(self, op: int, count: int) -> None:
        for maker in self.reads[op]:
            self.locks[maker] += count

    def _score(self, op: int) -> float:
        return self.evicted.time(op) / (self.held[op] * (self.clock - self.seen[op] + 1))

    def _evict(self, op: int) -> None:
        self._free(op)
        self.evicted.add(op)

    def _free(self, op: int) -> None:
        self.resident[op] = False
        self.used -= self.held[op]

    def _release(self, op: int) -> None:
        """Forget what only runs of an op that will not happen could need."""
        gone = [op]
        while gone:
            for maker in self.reads[gone.pop()]:
                self.needs[maker] -= 1
                if not self.needs[maker]:
                    self.evicted.remove(maker)
                    if self.resident[maker] and not self.is_pinned[maker]:
                        self._free(maker)
                    if self.may_repeat[maker]:
                        gone.append(maker)
