"""An order of the kernels in which memory is freed early and taken late.

Training programs update all weights at the end. By then all gradients are in memory, which no
recomputation makes fewer. And they fill arrays for the backward pass long before it reads them.

Source: our own.
"""

from collections import deque
from functools import partial

import numpy as np

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute.uses import Uses, uses_of


def early(problem: Problem) -> list[int]:
    """Return the ops in order, inputs first.

    After each op, every op that can run and that leaves no more bytes in memory than before runs.
    Then what leaves more moves to just before its first reader, unless that holds more of what it
    reads, or the peak rises. All else is in the order of the program. Nothing comes between an op
    and the next one if that writes over its result: XLA would not let it.

    Args:
      problem: one problem.
    """
    uses = uses_of(problem)
    order = _freed_early(problem, uses)
    return min(_taken_late(problem, uses, order), order, key=partial(_peak, problem))


def _peak(problem: Problem, order: list[int]) -> int:
    _, peak = cost_of_runs(problem, order)
    return peak


def _freed_early(problem: Problem, uses: Uses) -> list[int]:
    left = {tensor: len(each) for tensor, each in uses.readers.items()}
    missing = np.zeros(problem.num_rows, np.int64)
    for each in uses.followers:
        missing[each] += 1

    def frees(op: int) -> bool:
        freed = sum(
            int(problem.size[t]) for t in uses.reads[op] if left[t] == 1 and not uses.stays[t]
        )
        return bool(missing[op] == 0 and uses.made[op] <= freed)

    order: list[int] = []
    has_run = np.zeros(problem.num_rows, bool)

    def run(op: int) -> list[int]:
        """Run an op; return the ops that may free memory from now on."""
        has_run[op] = True
        order.append(op)
        missing[uses.followers[op]] -= 1
        touched = list(uses.followers[op])
        for tensor in uses.reads[op]:
            left[tensor] -= 1
            if left[tensor] == 1:
                touched += [reader for reader in uses.readers[tensor] if not has_run[reader]]
        return touched

    n = int(problem.num_ops)
    for op in np.flatnonzero(problem.is_input[:n]).tolist():
        run(op)
    todo = deque[int]()
    last = -1
    for op in range(n):
        if has_run[op]:
            continue
        while todo and (last, op) not in uses.in_place:
            other = todo.popleft()
            if not has_run[other] and frees(other):
                todo.extend(run(other))
        if not has_run[op]:
            todo.extend(run(op))
            last = op
    return order


def _taken_late(problem: Problem, uses: Uses, order: list[int]) -> list[int]:
    after: list[int] = []  # from the first op on that is placed
    for op, last in zip(reversed(order), [*reversed(order[:-1]), -1], strict=True):
        followers = {*uses.followers[op]}
        place = next((k for k, other in enumerate(after) if other in followers), 0)
        while 0 < place < len(after) and (after[place - 1], after[place]) in uses.in_place:
            place -= 1
        behind = {*after[place:]} if place else set()
        longer = sum(
            int(problem.size[t])
            for t in uses.reads[op]
            if not uses.stays[t] and behind.isdisjoint(uses.readers[t])
        )
        is_later = uses.held[op] > longer and (last, op) not in uses.in_place
        after.insert(place if is_later and not problem.is_input[op] else 0, op)
    return after
