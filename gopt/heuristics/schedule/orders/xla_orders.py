"""The candidate orders of XLA's memory scheduler: list, depth first and post-order.

XLA simulates all three and keeps the one with the lowest peak. XLA's depth-first order is
`sized_post_order`. The functions run on the host.

Source: `hlo_memory_scheduler.cc` of OpenXLA. A graph has less information than a module. Inputs
exist from the start; operands and results come in program order. XLA's list takes scalars as soon
as they are ready; here they are treated like other tensors.
"""

import heapq
import itertools
from collections.abc import Callable

import numpy as np

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.readiness import ReadinessTracker, operands_by_op

END = -1  # stands for the end of the program, which reads its results


def list_order(problem: Problem) -> list[int]:
    """Return the non-input ops; the ready op that frees most always goes next.

    The first criterion is the bytes of non-input operands read for the last time minus the bytes
    produced, read or not. Ties go to the op with more readers, then to the one that became ready
    last.
    """
    size, made = problem.size.tolist(), _made(problem)
    given = np.asarray(problem.is_input)[problem.producer].tolist()
    left = (np.diff(problem.first_use) + np.asarray(problem.pinned)).tolist()
    reads, readers = operands_by_op(problem), _readers(problem)
    waiting = ReadinessTracker(problem)
    queue: list[tuple[int, int, int, int]] = []
    latest: dict[int, tuple[int, int]] = {}  # priority of ready ops; outdated queue entries stay

    def add(op: int) -> None:
        freed = sum(size[t] for t in reads[op] if left[t] == 1 and not given[t])
        priority = made[op] - freed, -len(readers[op])
        if latest.get(op) != priority:
            latest[op] = priority
            heapq.heappush(queue, (*priority, -next(age), op))

    age, order = itertools.count(), list[int]()
    for op in waiting.sources:
        add(op)
    while queue:
        *priority, _, op = heapq.heappop(queue)
        if latest.get(op) != tuple(priority):
            continue
        del latest[op]
        order.append(op)
        for tensor in reads[op]:
            left[tensor] -= 1
        for reader in waiting.issue(op):
            add(reader)
        for tensor in reads[op]:
            for reader in waiting.readers(tensor) if left[tensor] == 1 else ():
                if reader in latest:
                    add(reader)
    return order


def post_order(problem: Problem) -> list[int]:
    """Return the non-input ops, each right after its operands, in program order."""
    return _after_operands(problem, lambda operands: operands)


def sized_post_order(problem: Problem) -> list[int]:
    """Return the non-input ops, each right after its operands, widely shared operands first.

    Operands are sorted by the number of readers beyond the first, summed over the ops that lead to
    the operand. Ties go to the one whose ancestors produce more bytes. An ancestor on several paths
    counts once for each path.
    """
    real = int(problem.num_ops)
    is_input = np.asarray(problem.is_input)
    operands, readers, made = _operands(problem), _readers(problem), _made(problem)
    extra, total = [0] * real, [0] * real
    seen = 0
    for op in range(real):  # producers come before their readers
        if not is_input[op]:
            seen += made[op]
            above = operands[op]
            extra[op] = max(len(readers[op]) - 1, 0) + sum(extra[maker] for maker in above)
            total[op] = made[op] + sum(total[maker] for maker in above)
            extra[op], total[op] = min(extra[op], real), min(total[op], seen)
    return _after_operands(
        problem, lambda makers: sorted(makers, key=lambda op: (-extra[op], -total[op], op))
    )


XLA_ORDERS = (list_order, sized_post_order, post_order)


def _after_operands(problem: Problem, arrange: Callable[[list[int]], list[int]]) -> list[int]:
    """Return the non-input ops in post-order: each op follows the last of its visited operands.

    Unread ops are visited first, then the results of the program.
    """
    real = int(problem.num_ops)
    operands, readers = _operands(problem), _readers(problem)
    done = np.asarray(problem.is_input)[:real].tolist()
    dead = [op for op in range(real) if not readers[op]]
    results = arrange([op for op in range(real) if END in readers[op] and not done[op]])
    order: list[int] = []
    for root in (*dead, *results):
        stack = [] if done[root] else [(root, iter(arrange(operands[root])))]
        while stack:
            op, left = stack[-1]
            maker = next((maker for maker in left if not done[maker]), None)
            if maker is not None:
                stack.append((maker, iter(arrange(operands[maker]))))
            else:
                stack.pop()
                done[op] = True
                order.append(op)
    return order


def _operands(problem: Problem) -> list[list[int]]:
    """Return the producers of each op's operands, without duplicates, in program order."""
    producer = np.asarray(problem.producer).tolist()
    return [
        list(dict.fromkeys(producer[t] for t in tensors)) for tensors in operands_by_op(problem)
    ]


def _readers(problem: Problem) -> list[set[int]]:
    """Return the readers of each op's results; `END` stands for the end of the program."""
    readers = [set[int]() for _ in range(int(problem.num_ops))]
    for op, makers in enumerate(_operands(problem)):
        for maker in makers:
            readers[maker].add(op)
    for maker in np.asarray(problem.producer)[np.asarray(problem.pinned)].tolist():
        readers[maker].add(END)
    return readers


def _made(problem: Problem) -> list[int]:
    """Return the units of all tensors that each op produces."""
    made = np.zeros(problem.shape.ops, np.int64)
    np.add.at(made, problem.producer, np.asarray(problem.size, np.int64))
    return made.tolist()
