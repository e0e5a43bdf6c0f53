"""List scheduling for the makespan: HEFT, ETF, m-ETF and critical-path scheduling.

All of them use the communication model of `gopt.cost.schedule.execution`: latency, bandwidth,
shared links, synchronous transfers, one transfer per tensor and device. Only m-ETF respects memory.
They run on the host. The keys decode to exactly the schedule that was built.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Int, Int32, Shaped

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.dispatch import legalize_placement
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.device_memory import DeviceMemory
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.placement.ready_pairs import ReadyPairs
from gopt.heuristics.schedule.placement.timeline import Gaps, Tail
from gopt.heuristics.schedule.readiness import ReadinessTracker


def heft(problem: Problem, group: np.ndarray | None = None) -> Keys:
    """Return the keys of the HEFT schedule.

    Ops are taken in order of falling upward rank: the longest path to the end, in mean op and
    transfer times. Each is placed on the device where it ends first; gaps of devices and links are
    used.

    Args:
      problem: one problem of n real ops.
      group: group of each op, int `[n]`; a group stays on the device of its first placed op. By
        default each op is its own group.

    Raises:
      ValueError: `group` does not have one entry per op.

    Source: Topcuoglu, Hariri, Wu 2002, "Heterogeneous Earliest Finish Time".
    """
    schedule = PartialSchedule(problem, Gaps, group)
    for op in _by_level(problem, levels(problem, mean_transfer_ticks(problem))):
        schedule.place_earliest(op)
    return schedule.keys()


def critical_path(problem: Problem, group: np.ndarray | None = None) -> Keys:
    """Return the keys of a critical-path list schedule.

    Ops are taken in order of falling static level: the longest path to the end, without transfers.
    Each is appended to the device where it ends first.

    Args:
      problem: one problem of n real ops.
      group: group of each op, int `[n]`, see `heft`.

    Raises:
      ValueError: `group` does not have one entry per op.

    Source: Adam, Chandy, Dickson 1974, "Highest Levels First with Estimated Times".
    """
    schedule = PartialSchedule(problem, Tail, group)
    for op in _by_level(problem, levels(problem, np.zeros(problem.shape.tensors))):
        schedule.place_earliest(op)
    return schedule.keys()


def etf(problem: Problem) -> Keys:
    """Return the keys of the ETF schedule.

    The pair of ready op and device that can start first goes next. Ties go to the higher static
    level, then the lower op, then the lower device. If transfers are synchronous, or an input is
    not allowed everywhere, placing one pair can rarely make another start earlier; such a pair may
    be noticed late.

    Source: Hwang, Chow, Anger, Lee 1989, "Earliest Task First".
    """
    return _earliest_first(problem, None, [np.inf] * problem.num_devices).keys()


def memory_etf(problem: Problem, group: Int[np.ndarray, " n"]) -> Int32[np.ndarray, " N"]:
    """Return the placement of m-ETF, int32 `[N]`.

    The placement is settled by `gopt.cost.schedule.dispatch.legalize_placement`. The algorithm
    works like `etf`, but only considers pairs that fit the device's free memory, see
    `DeviceMemory`. The first placed op of a group binds the group to its device. If no pair fits,
    the pair with the smallest excess goes next, so the placement may not fit. The lifetime of
    outputs and the reservations of groups are our choice.

    Args:
      problem: one problem of n real ops.
      group: group of each op, int `[n]`.

    Raises:
      ValueError: `group` does not have one entry per op.

    Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020.
    """
    capacity = np.asarray(problem.capacity, np.float64).tolist()
    placed = _earliest_first(problem, group, capacity).device
    device = np.zeros(problem.shape.ops, np.int32)
    device[: len(placed)] = np.maximum(placed, 0)  # unread inputs have no device yet
    return np.asarray(legalize_placement(problem, jnp.asarray(device)))


def _earliest_first(
    problem: Problem, group: np.ndarray | None, capacity: Sequence[float]
) -> PartialSchedule[Tail]:
    """Build the schedule that always takes the ready pair that can start first."""
    level = levels(problem, np.zeros(problem.shape.tensors))
    schedule = PartialSchedule(problem, Tail, group)
    memory = DeviceMemory(problem, schedule, capacity)
    pairs, waiting = ReadyPairs(schedule, level, memory), ReadinessTracker(problem)
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


def levels(problem: Problem, sent: Shaped[np.ndarray, " T"]) -> list[float]:
    """Return the longest path from the start of each op to the end, in ticks.

    Args:
      problem: one problem.
      sent: transfer time of each tensor in ticks, `[T]`. The time of an op is its mean over its
        allowed devices.
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


def mean_ticks(problem: Problem) -> Float64[np.ndarray, " N"]:
    """Return the mean time of each op over its allowed devices, in ticks, float64 `[N]`."""
    allowed = np.asarray(problem.allowed)
    return (np.asarray(problem.op_ticks) * allowed).sum(1) / np.maximum(allowed.sum(1), 1)


def mean_transfer_ticks(problem: Problem) -> Float64[np.ndarray, " T"]:
    """Return the mean transfer time of each tensor over device pairs, in ticks, float64 `[T]`."""
    apart = ~np.eye(problem.num_devices, dtype=bool)
    total = (np.asarray(problem.transfer_ticks, np.float64) * apart).sum((1, 2))
    return total / max(apart.sum(), 1)


def _by_level(problem: Problem, level: list[float]) -> list[int]:
    """Return the real non-input ops by falling level; producers precede their readers."""
    ops = [i for i in range(int(problem.num_ops)) if not problem.is_input[i]]
    return sorted(ops, key=lambda op: -level[op])
