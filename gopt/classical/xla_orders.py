"""The orders that XLA's memory scheduler chooses from: list, depth first and post-order.

XLA simulates all three and keeps the lowest peak. It orders one device; over several, the order
that it keeps is split like the others (see `gopt.classical.memory_orders`). They run on the host.

Source: `hlo_memory_scheduler.cc` of OpenXLA. Its list is the greedy release of `memory_orders`, but
for ties, and for scalars, which it computes as soon as they are ready.
"""

from collections.abc import Callable

import numpy as np

from gopt.classical.memory_orders import greedy_release_order, lowest_of, lowest_peak
from gopt.classical.readiness import reads_of
from gopt.cost.execution import Keys
from gopt.problem import Problem


def xla(problem: Problem) -> Keys:
    """Returns the keys of that of XLA's orders which peaks least on one device."""
    return lowest_peak(problem, lowest_of(problem, XLA_ORDERS))


def post_order(problem: Problem) -> list[int]:
    """Returns the ops, but for inputs, each just after what it reads, in program order."""
    return _after_operands(problem, lambda operands: operands)


def sized_post_order(problem: Problem) -> list[int]:
    """Returns the ops, but for inputs, each just after what it reads, much shared things first.

    An operand comes the earlier, the more readers beyond the first the ops have that lead to it,
    and then the more bytes they make; what leads to it on several paths counts several times.
    """
    real = int(problem.num_ops)
    is_input = np.asarray(problem.is_input)
    operands = _operands(problem)
    readers = [set[int]() for _ in range(real)]
    for op, makers in enumerate(operands):
        for maker in makers:
            readers[maker].add(op)
    made = np.zeros(problem.shape.ops, np.int64)
    np.add.at(made, problem.producer, np.asarray(problem.size, np.int64))
    extra, total = [0] * real, [0] * real
    seen = 0
    for op in range(real):  # a program makes things before it reads them
        if not is_input[op]:
            seen += int(made[op])
            above = operands[op]
            extra[op] = max(len(readers[op]) - 1, 0) + sum(extra[maker] for maker in above)
            total[op] = int(made[op]) + sum(total[maker] for maker in above)
            extra[op], total[op] = min(extra[op], real), min(total[op], seen)
    return _after_operands(
        problem, lambda makers: sorted(makers, key=lambda op: (-extra[op], -total[op], op))
    )


def _after_operands(problem: Problem, arrange: Callable[[list[int]], list[int]]) -> list[int]:
    """Returns ops so that each comes when the last of its operands, visited in turn, has come."""
    real = int(problem.num_ops)
    operands = _operands(problem)
    is_read = np.zeros(problem.shape.ops, bool)
    is_read[[maker for makers in operands for maker in makers]] = True
    pinned = np.asarray(problem.pinned)
    is_read[np.asarray(problem.producer)[pinned]] = False  # what stays is a result
    done = np.asarray(problem.is_input)[:real].tolist()
    order: list[int] = []
    for root in np.flatnonzero(~is_read[:real]).tolist():
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
    """Returns the ops that make what each op reads, once each, in program order."""
    producer = np.asarray(problem.producer).tolist()
    return [list(dict.fromkeys(producer[t] for t in tensors)) for tensors in reads_of(problem)]


XLA_ORDERS = (greedy_release_order, sized_post_order, post_order)
