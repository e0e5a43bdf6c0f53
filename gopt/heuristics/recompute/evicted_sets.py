"""Disjoint sets of evicted ops, each with the sum of their times.

Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), h_DTR^eq. An op that runs
again takes its time out of its set, which is not split.
"""

from collections.abc import Iterable


class EvictedSets:
    """Evicted ops; neighbours are in one set.

    Args:
      ticks: time of each op.
      around: neighbours of each op.
    """

    def __init__(self, ticks: list[int], around: list[list[int]]):
        self._ticks, self._around = ticks, around
        self._set_of = [-1] * len(ticks)
        self._parent: list[int] = []
        self._time: list[int] = []

    def add(self, op: int) -> None:
        """Evict an op, and join the sets of its evicted neighbours."""
        new = self._set_of[op] = len(self._parent)
        self._parent.append(new)
        self._time.append(self._ticks[op])
        for other in self._sets_around(op) - {new}:
            self._parent[other] = new
            self._time[new] += self._time[other]

    def remove(self, op: int) -> None:
        """Take an op out, if it is evicted."""
        if self._set_of[op] >= 0:
            self._time[self._root(self._set_of[op])] -= self._ticks[op]
            self._set_of[op] = -1

    def time(self, op: int) -> int:
        """Return the time of an op and of the sets of its evicted neighbours, ticks."""
        return self._ticks[op] + sum(self._time[root] for root in self._sets_around(op))

    def _sets_around(self, op: int) -> set[int]:
        sets: Iterable[int] = (self._set_of[other] for other in self._around[op])
        return {self._root(found) for found in sets if found >= 0}

    def _root(self, found: int) -> int:
        while self._parent[found] != found:
            self._parent[found] = found = self._parent[self._parent[found]]
        return found
