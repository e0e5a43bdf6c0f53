"""The order of a program, but that what frees memory runs as soon as it can.

Training programs update all weights at the end. By then all gradients are in memory, which no
recomputation makes fewer.

Source: our own.
"""

from collections import deque

import numpy as np

from gopt.cost.recompute.problem import Problem


def early(problem: Problem) -> list[int]:
    """Return the ops in order, inputs first.

    After each op, every op that can run and that leaves no more bytes in memory than before runs.
    All others are in the order of the program. Nothing comes between an op and the next one if that
    writes over its result: XLA would not let it.

    Args:
      problem: one problem.
    """
    n, uses, links = int(problem.num_ops), int(problem.num_uses), int(problem.num_links)
    made = np.bincount(problem.producer, problem.size, minlength=problem.num_rows)
    stays = problem.pinned | problem.is_input[problem.producer]
    reads: list[list[int]] = [[] for _ in range(problem.num_rows)]
    readers: dict[int, list[int]] = {}  # of a tensor
    pairs = zip(problem.tensor[:uses].tolist(), problem.consumer[:uses].tolist(), strict=True)
    for tensor, op in dict.fromkeys(pairs):
        readers.setdefault(tensor, []).append(op)
        reads[op].append(tensor)
    over = problem.in_place[:uses] > 0
    makers = problem.producer[problem.tensor[:uses]]
    in_place = {*zip(makers[over].tolist(), problem.consumer[:uses][over].tolist(), strict=True)}
    left = {tensor: len(each) for tensor, each in readers.items()}
    followers: list[list[int]] = [[] for _ in range(problem.num_rows)]
    missing = np.zeros(problem.num_rows, np.int64)
    for maker, op in zip(
        problem.maker[:links].tolist(), problem.reader[:links].tolist(), strict=True
    ):
        followers[maker].append(op)
        missing[op] += 1

    def frees(op: int) -> bool:
        freed = sum(int(problem.size[t]) for t in reads[op] if left[t] == 1 and not stays[t])
        return bool(missing[op] == 0 and made[op] <= freed)

    order: list[int] = []
    has_run = np.zeros(problem.num_rows, bool)

    def run(op: int) -> list[int]:
        """Run an op; return the ops that may free memory from now on."""
        has_run[op] = True
        order.append(op)
        for follower in followers[op]:
            missing[follower] -= 1
        touched = list(followers[op])
        for tensor in reads[op]:
            left[tensor] -= 1
            if left[tensor] == 1:
                touched += [reader for reader in readers[tensor] if not has_run[reader]]
        return touched

    for op in np.flatnonzero(problem.is_input[:n]).tolist():
        run(op)
    todo = deque[int]()
    last = -1
    for op in range(n):
        if has_run[op]:
            continue
        while todo and (last, op) not in in_place:
            other = todo.popleft()
            if not has_run[other] and frees(other):
                todo.extend(run(other))
        if not has_run[op]:
            todo.extend(run(op))
            last = op
    return order
