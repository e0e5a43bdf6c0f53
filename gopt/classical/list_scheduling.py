"""List scheduling heuristics for the makespan: HEFT, ETF and critical-path scheduling.

All of them know the communication model of `gopt.cost.execution`: latency, bandwidth, links
that are shared, synchronous transfers, one transfer of a tensor to a device. None looks at
memory. They run on the host and their keys decode to the very schedule that they built.
"""

import numpy as np

from gopt.classical.partial_schedule import PartialSchedule
from gopt.classical.readiness import Waiting
from gopt.classical.ready_pairs import ReadyPairs
from gopt.classical.timeline import Gaps, Tail
from gopt.cost.execution import Keys
from gopt.problem import Problem


def heft(problem: Problem) -> Keys:
    """Returns the keys of the schedule of HEFT.

    Ops are taken by falling upward rank (the longest path to the end, in mean op and transfer
    times) and placed where they end first, in gaps of devices and links where they fit.
    Source: Topcuoglu, Hariri, Wu 2002, "Heterogeneous Earliest Finish Time".
    """
    schedule = PartialSchedule(problem, Gaps)
    for op in _by_level(problem, levels(problem, mean_transfer_ticks(problem))):
        schedule.place_earliest(op)
    return schedule.keys()


def critical_path(problem: Problem) -> Keys:
    """Returns the keys of a critical-path list schedule.

    Ops are taken by falling static level (the longest path to the end, without transfers) and
    placed at the end of the device where they end first.
    Source: Adam, Chandy, Dickson 1974, "Highest Levels First with Estimated Times".
    """
    schedule = PartialSchedule(problem, Tail)
    for op in _by_level(problem, levels(problem, np.zeros(problem.shape.tensors))):
        schedule.place_earliest(op)
    return schedule.keys()


def etf(problem: Problem) -> Keys:
    """Returns the keys of the schedule of ETF.

    Of all ready ops on all devices the pair that can start first goes next; ties are broken by
    higher static level, then lower op, then lower device. Where transfers are synchronous, or
    an input may not be everywhere, what is placed can on rare occasions let another pair start
    earlier than before; such a pair may be noticed late.
    Source: Hwang, Chow, Anger, Lee 1989, "Earliest Task First".
    """
    level = levels(problem, np.zeros(problem.shape.tensors))
    schedule = PartialSchedule(problem, Tail)
    pairs = ReadyPairs(schedule, level)
    waiting = Waiting(problem)
    ready: set[int] = set()
    fresh = waiting.sources
    for _ in level:
        for op in fresh:
            pairs.add(op, schedule.allowed[op])
        ready.update(fresh)
        if not ready:
            break
        op, device = pairs.pop()
        schedule.place(op, device)
        ready.remove(op)
        for sent in schedule.sent:
            for reader in ready.intersection(waiting.readers(sent.tensor)):
                if device in schedule.allowed[reader]:
                    pairs.add(reader, (device,))
        fresh = waiting.issue(op)
    return schedule.keys()


def levels(problem: Problem, sent: np.ndarray) -> list[float]:
    """Returns the longest path from the start of each op to the end, in ticks.

    An op takes its mean time over the devices that it is allowed on; `sent` is the time of the
    transfer of each tensor, `[T]`.
    """
    level: list[float] = mean_ticks(problem).tolist()
    wait: list[float] = np.asarray(sent, np.float64).tolist()
    consumer = np.asarray(problem.consumer).tolist()
    first_use, first_tensor = problem.first_use.tolist(), problem.first_tensor.tolist()
    for op in reversed(range(int(problem.num_ops))):
        after = 0.0
        for tensor in range(first_tensor[op], first_tensor[op + 1]):
            for reader in consumer[first_use[tensor] : first_use[tensor + 1]]:
                after = max(after, wait[tensor] + level[reader])
        level[op] += after
    return level


def mean_ticks(problem: Problem) -> np.ndarray:
    """Returns the mean time of each op over the devices that it is allowed on. float64 `[N]`."""
    allowed = np.asarray(problem.allowed)
    return (np.asarray(problem.op_ticks) * allowed).sum(1) / np.maximum(allowed.sum(1), 1)


def mean_transfer_ticks(problem: Problem) -> np.ndarray:
    """Returns the mean time of a transfer of each tensor over pairs of devices. float64 `[T]`."""
    apart = ~np.eye(problem.num_devices, dtype=bool)
    total = (np.asarray(problem.transfer_ticks, np.float64) * apart).sum((1, 2))
    return total / max(apart.sum(), 1)


def _by_level(problem: Problem, level: list[float]) -> list[int]:
    """Real ops other than inputs by falling level: producers first, since no time is negative."""
    ops = [i for i in range(int(problem.num_ops)) if not problem.is_input[i]]
    return sorted(ops, key=lambda op: -level[op])
