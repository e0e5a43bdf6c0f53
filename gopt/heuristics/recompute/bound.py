"""Lower bounds on the memory and the time of every sequence of runs.

Consider the first run of an op k. Ops that come before k in every sequence have run, and ops that
come after k in every sequence have not. A tensor of the former that the latter read is in memory
while k runs, or its op runs again after k. So every op runs once; and the cheapest ops, whose
tensors do not fit beside what k needs, run again (a fractional knapsack). The operands of these ops
are not counted, so the bound may be low.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute.uses import uses_of


class _Moments(NamedTuple):
    """Memory in use while each op k runs for the first time.

    Attributes:
      held: memory that every sequence needs, units, `[N]` for k; 0 for inputs.
      wanted: memory that op p made before k and that is read after k, units, `[N, N]` for k and p;
        0 where p may not run again, and for what k reads.
    """

    held: Int64[np.ndarray, " N"]
    wanted: Int32[np.ndarray, "N N"]


class LowerBounds:
    """Bounds that hold for every sequence of runs of one problem.

    The first use takes time and bytes that grow with the square of the number of ops: 1.5 s and
    0.5 GB for 5 000 ops.
    """

    def __init__(self, problem: Problem):
        self._problem = problem

    @property
    def peak(self) -> int:
        """Memory that every sequence needs, units."""
        return int(self._moments.held.max(initial=0))

    def ticks(self, budget: int) -> int | None:
        """Return a lower bound on the time of sequences within a budget; `None` if none fits.

        Args:
          budget: memory that a sequence may need, units.

        Returns:
          Time in ticks.
        """
        if self.peak > budget:
            return None
        ticks = self._problem.ticks[: int(self._problem.num_ops)].astype(np.int64)
        most = 0.0
        for free, wanted in zip(budget - self._moments.held, self._moments.wanted, strict=True):
            (ops,) = np.nonzero(wanted)
            rate = ticks[ops] / wanted[ops]
            order = ops[np.argsort(-rate, kind="stable")]  # the dearest are held
            size = wanted[order].astype(np.int64)
            fitting = np.clip((free - (np.cumsum(size) - size)) / size, 0.0, 1.0)
            most = max(most, float(ticks[order] @ (1.0 - fitting)))
        return int(ticks.sum()) + int(most * (1 - 1e-9))

    @cached_property
    def _moments(self) -> _Moments:
        problem = self._problem
        n, lists, before = int(problem.num_ops), uses_of(problem), _before(problem)
        uses = slice(int(problem.num_uses))
        held = lists.made[:n].copy()
        np.subtract.at(held, problem.consumer[uses], problem.in_place[uses].astype(np.int64))
        held = np.maximum(held, 0) + problem.workspace[:n]
        wanted = np.zeros((n, n), np.int32)
        for t, op in enumerate(problem.producer.tolist()):
            if op >= n:
                continue
            readers = lists.readers.get(t, [])
            is_made = before[:, op] | problem.is_input[op]
            is_later = before[readers].any(axis=0) | problem.pinned[t]
            is_operand = np.isin(np.arange(n), readers)
            passes = problem.size[t] * (is_made & is_later & ~is_operand)
            held += problem.size[t] * is_operand
            if problem.may_repeat[op]:
                wanted[:, op] += passes
            else:
                held += passes
        held[problem.is_input[:n]] = wanted[problem.is_input[:n]] = 0
        return _Moments(held, wanted)


def _before(problem: Problem) -> Bool[np.ndarray, "N N"]:
    """Return whether an op comes before op k in every sequence, bool `[N, N]` for k and the op."""
    n, links = int(problem.num_ops), int(problem.num_links)
    found = np.zeros((n, n), bool)
    pairs = zip(problem.maker[:links].tolist(), problem.reader[:links].tolist(), strict=True)
    for maker, reader in sorted(pairs, key=lambda pair: pair[1]):
        found[reader] |= found[maker]
        found[reader, maker] = True
    return found
