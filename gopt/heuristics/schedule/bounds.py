"""Cheap lower bounds: no schedule under `gopt.cost.schedule.execution` costs less."""

import numpy as np

from gopt.cost.schedule.problem import Problem


def makespan_bound(problem: Problem) -> int:
    """Returns a lower bound on the makespan, in ticks.

    The longer of the critical path and of all work spread evenly over the devices, with the
    shortest time of each op among the devices that it is allowed on, and without transfers.
    """
    may, ticks = np.asarray(problem.allowed), np.asarray(problem.op_ticks, np.int64)
    shortest = np.where(may, ticks, np.iinfo(np.int64).max).min(1)
    real = int(problem.num_ops)
    work = -(-int(shortest[:real].sum()) // problem.num_devices)
    end = shortest[:real].tolist()
    read, first, producer = (
        np.asarray(leaf).tolist() for leaf in (problem.read, problem.first_read, problem.producer)
    )
    for op in range(real):
        end[op] += max((end[producer[t]] for t in read[first[op] : first[op + 1]]), default=0)
    return max(work, *end)


def peak_bound(problem: Problem) -> int:
    """Returns a lower bound on the largest peak over devices, in units.

    The largest of what one op needs on its device (what it reads and makes, and its workspace),
    of that and all that stays elsewhere (pinned inputs) spread evenly over the devices, and of
    the same for what is there at the start (all inputs) and at the end (all that is pinned).
    """
    t, e, devices = int(problem.num_tensors), int(problem.num_uses), problem.num_devices
    size, pinned = np.asarray(problem.size, np.int64)[:t], np.asarray(problem.pinned)[:t]
    producer = np.asarray(problem.producer)[:t]
    is_input = np.asarray(problem.is_input)
    given = is_input[producer]
    read, reader = np.asarray(problem.tensor)[:e], np.asarray(problem.consumer)[:e]

    needed = np.asarray(problem.workspace, np.int64).copy()
    np.add.at(needed, producer, size)
    np.add.at(needed, reader, size[read])
    needed[is_input] = 0
    elsewhere = np.full(needed.size, size[given & pinned].sum())
    np.subtract.at(elsewhere, reader, np.where((given & pinned)[read], size[read], 0))
    total = max((needed + elsewhere).max(), size[given].sum(), size[pinned].sum())  # type: ignore[call-overload]
    return max(int(needed.max()), -(-int(total) // devices))
