"""List scheduling heuristics for the makespan: HEFT, ETF, m-ETF and critical-path scheduling.

All of them know the communication model of `gopt.cost.schedule.execution`: latency, bandwidth,
links that are shared, synchronous transfers, one transfer of a tensor to a device. Only m-ETF looks
at memory. They run on the host, and keys decode to the very schedule that was built.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.dispatch import settled
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.device_memory import DeviceMemory
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.placement.ready_pairs import ReadyPairs
from gopt.heuristics.schedule.placement.timeline import Gaps, Tail
from gopt.heuristics.schedule.readiness import Waiting


def heft(problem: Problem, group: np.ndarray | None = None) -> Keys:
    """Returns the keys of the schedule of HEFT.

    Ops are taken by falling upward rank (the longest path to the end, in mean op and transfer
    times) and placed where they end first, in gaps of devices and links where they fit.
    Source: Topcuoglu, Hariri, Wu 2002, "Heterogeneous Earliest Finish Time".

    Args:
      problem: one problem of n real ops.
      group: of each op, int `[n]`; ops of a group follow the first of them that is placed. By
        default each op is alone.

    Raises:
      ValueError: there is not one group for each op.
    """
    schedule = PartialSchedule(problem, Gaps, group)
    for op in _by_level(problem, levels(problem, mean_transfer_ticks(problem))):
        schedule.place_earliest(op)
    return schedule.keys()


def critical_path(problem: Problem, group: np.ndarray | None = None) -> Keys:
    """Returns the keys of a critical-path list schedule.

    Ops are taken by falling static level (the longest path to the end, without transfers) and
    placed at the end of the device where they end first. Arguments and errors are those of `heft`.
    Source: Adam, Chandy, Dickson 1974, "Highest Levels First with Estimated Times".
    """
    schedule = PartialSchedule(problem, Tail, group)
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
    return _earliest_first(problem, None, [np.inf] * problem.num_devices).keys()


def memory_etf(problem: Problem, group: np.ndarray) -> np.ndarray:
    """Returns the placement of m-ETF, as of `gopt.cost.schedule.dispatch.settled`, int32 `[N]`.

    As `etf`, but of the pairs for which the device has room, see `DeviceMemory`; and the first op
    of a group that is placed binds the group to its device. Where nothing fits, the pair that needs
    least beyond the room there goes next, so that the placement may not fit. How long outputs
    are held, and what groups reserve, is our choice.

    Args:
      problem: one problem of n real ops.
      group: of each op, int `[n]`.

    Raises:
      ValueError: there is not one group for each op.

    Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020.
    """
    capacity = np.asarray(problem.capacity, np.float64).tolist()
    placed = _earliest_first(problem, group, capacity).device
    device = np.zeros(problem.shape.ops, np.int32)
    device[: len(placed)] = np.maximum(placed, 0)  # inputs that nobody reads have no place
    return np.asarray(settled(problem, jnp.asarray(device)))


def _earliest_first(
    problem: Problem, group: np.ndarray | None, capacity: Sequence[float]
) -> PartialSchedule[Tail]:
    """Returns the schedule in which that of all ready pairs goes next which can start first."""
    level = levels(problem, np.zeros(problem.shape.tensors))
    schedule = PartialSchedule(problem, Tail, group)
    memory = DeviceMemory(problem, schedule, capacity)
    pairs, waiting = ReadyPairs(schedule, level, memory), Waiting(problem)
    ready: set[int] = set()
    fresh = waiting.sources
    while fresh or ready:
        for op in fresh:
            pairs.add(op, schedule.allowed[op])
        ready.update(fresh)
        op, device = pairs.pop()
        schedule.commit(op, device)
        ready.remove(op)
        for other in ready.intersection(memory.place(op)):
            if device in schedule.allowed[other]:
                pairs.add(other, (device,))
        for freed in memory.freed:
            pairs.retry(freed)
        fresh = waiting.issue(op)
    return schedule


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
