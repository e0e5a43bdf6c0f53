"""Cheap lower bounds on the cost of every schedule under `gopt.cost.schedule.execution`."""

import numpy as np

from gopt.cost.schedule.problem import Problem


def makespan_bound(problem: Problem) -> int:
    """Return a lower bound on the makespan, in ticks.

    The bound is the larger of the critical path and the total work divided by the number of
    devices. Each op takes its shortest time over its allowed devices; transfers take none.
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
    """Return a lower bound on the largest peak memory over devices, in units.

    The bound is the largest of three numbers:

    1. the need of one op on its device: its operands, results and workspace;
    2. that need plus all pinned inputs held elsewhere, divided by the number of devices;
    3. all inputs (the start), or all pinned tensors (the end), divided by the number of devices.
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
