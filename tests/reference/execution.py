"""Cost model of schedules in plain Python: slow, forwards in time, with reference counts.

It shares only the arrays of a `Problem` with `gopt.cost.schedule.execution`. So both can be
compared bit for bit.
"""

from typing import Any, NamedTuple

import numpy as np

from gopt.cost.schedule.problem import Problem


class ReferenceSchedule(NamedTuple):
    """The schedule of one candidate. Items are numbered as in `Problem`.

    Attributes:
      device: device of each real op.
      order: items in the order of issue.
      start: start by item, ticks.
      end: end by item, ticks.
      makespan: end of the last item, ticks.
      peak: peak memory of each device, units.
      usage: memory in use on the device of the k-th issued item while it runs, units.
    """

    device: list[int]
    order: list[int]
    start: dict[int, int]
    end: dict[int, int]
    makespan: int
    peak: list[int]
    usage: list[int]


class Plan:
    """Ops, tensors and transfers of a problem under one placement, as lists and sets."""

    def __init__(self, problem: Problem, keys: Any):
        self.rows, self.devices = np.shape(problem.op_ticks)
        self.device_key = np.asarray(keys.device).tolist()
        self.op_key = np.asarray(keys.priority).tolist()
        self.transfer_key = np.asarray(keys.transfer).tolist()
        self.ops = range(int(problem.num_ops))
        self.tensors = range(int(problem.num_tensors))
        self.producer = [int(i) for i in problem.producer]
        first_use = [int(i) for i in problem.first_use]
        consumer = [int(i) for i in problem.consumer]
        self.consumers = {t: consumer[first_use[t] : first_use[t + 1]] for t in self.tensors}
        self.outputs = {i: [t for t in self.tensors if self.producer[t] == i] for i in self.ops}
        self.inputs = {i: [t for t in self.tensors if i in self.consumers[t]] for i in self.ops}
        self.device = [self._place(i, problem.allowed[i]) for i in self.ops]
        self.home = {t: self.device[self.producer[t]] for t in self.tensors}
        # One transfer for each tensor and each device that uses but does not produce it.
        self.transfers = {
            self.rows + t * self.devices + d: (t, d)
            for t in self.tensors
            for d in range(self.devices)
            if d != self.home[t] and d in {self.device[i] for i in self.consumers[t]}
        }

    def _place(self, op: int, allowed: Any) -> int:
        candidates = [d for d in range(self.devices) if allowed[d]]
        highest = max(self.device_key[op][d] for d in candidates)
        return next(d for d in candidates if self.device_key[op][d] == highest)

    def needs(self, item: int) -> set[int]:
        """Return the items that must be issued before this one."""
        if item in self.transfers:
            return {self.producer[self.transfers[item][0]]}
        found = set()
        for t in self.inputs[item]:
            if self.home[t] == self.device[item]:
                found.add(self.producer[t])
            else:
                found.add(self.rows + t * self.devices + self.device[item])
        return found

    def key(self, item: int) -> float:
        if item in self.transfers:
            t, d = self.transfers[item]
            return self.transfer_key[t][d]
        return self.op_key[item]


def issue(problem: Problem, keys: Any) -> tuple[list[int], list[int]]:
    """Return the device of each real op, and the items in the order of issue."""
    plan = Plan(problem, keys)
    return plan.device, _issue(plan)


def _issue(plan: Plan) -> list[int]:
    waiting = {item: plan.needs(item) for item in [*plan.ops, *plan.transfers]}
    issued: set[int] = set()
    order = []
    while waiting:
        ready = [item for item, needs in waiting.items() if needs <= issued]
        item = min(ready, key=lambda item: (plan.key(item), item))
        del waiting[item]
        issued.add(item)
        order.append(item)
    return order


def run(problem: Problem, keys: Any) -> ReferenceSchedule:
    """Return the schedule of one candidate."""
    plan = Plan(problem, keys)
    order = _issue(plan)
    start, end = times(problem, plan, order)
    peak, usage = memory(problem, plan, order)
    return ReferenceSchedule(plan.device, order, start, end, max(end.values()), peak, usage)


def times(
    problem: Problem, plan: Plan, order: list[int], late: int = -1, by: int = 0, busy: int = 0
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the starts and ends of items that are issued in this order, by item, ticks.

    The end of the op `late` is delayed by `by` ticks. Its device stays busy for `busy` more ticks.
    """
    device_free = [0] * plan.devices
    channel_free: dict[int, int] = {}
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    for item in order:
        arrived = [end[needed] for needed in plan.needs(item)]
        if item in plan.transfers:
            t, to = plan.transfers[item]
            source = plan.home[t]
            link = int(problem.channel[source][to])
            start[item] = max(arrived)
            if link >= 0:
                start[item] = max(start[item], channel_free.get(link, 0))
            if problem.synchronous:
                start[item] = max(start[item], device_free[source], device_free[to])
            end[item] = start[item] + int(problem.transfer_ticks[t][source][to])
            if link >= 0:
                channel_free[link] = end[item]
            if problem.synchronous:
                device_free[source] = device_free[to] = end[item]
        elif problem.is_input[item]:
            start[item] = end[item] = 0
            if item == late:
                end[item] += by
        else:
            on = plan.device[item]
            start[item] = max([device_free[on], *arrived])
            end[item] = device_free[on] = start[item] + int(problem.op_ticks[item][on])
            if item == late:
                end[item] += by
                device_free[on] += busy
    return start, end


def memory(problem: Problem, plan: Plan, order: list[int]) -> tuple[list[int], list[int]]:
    """Return the peak of each device, and the usage on each item's device while it runs, units."""
    size = [int(s) for s in problem.size]
    # Remaining readers of a tensor on a device: consumers there; on its own device also transfers.
    readers = {(t, plan.home[t]): 0 for t in plan.tensors}
    readers |= {(t, d): 0 for t, d in plan.transfers.values()}
    for t in plan.tensors:
        for i in plan.consumers[t]:
            readers[t, plan.device[i]] += 1
    for t, _ in plan.transfers.values():
        readers[t, plan.home[t]] += 1

    used = [0] * plan.devices
    for t in plan.tensors:
        if problem.is_input[plan.producer[t]]:
            used[plan.home[t]] += size[t]
    peak = list(used)
    usage = []

    def release_if_dead(t: int, d: int) -> None:
        pinned = d == plan.home[t] and bool(problem.pinned[t])
        if readers[t, d] == 0 and not pinned:
            used[d] -= size[t]

    for item in order:
        if item in plan.transfers:
            t, on = plan.transfers[item]
            used[on] += size[t]
            peak[on] = max(peak[on], used[on])
            usage.append(used[on])
            readers[t, plan.home[t]] -= 1
            release_if_dead(t, plan.home[t])
            continue
        on = plan.device[item]
        workspace = 0
        if not problem.is_input[item]:  # inputs are resident from the start, and occupy no device
            workspace = int(problem.workspace[item])
            used[on] += sum(size[t] for t in plan.outputs[item]) + workspace
        peak[on] = max(peak[on], used[on])
        usage.append(used[on])
        used[on] -= workspace
        for t in plan.inputs[item]:
            readers[t, on] -= 1
            release_if_dead(t, on)
        for t in plan.outputs[item]:
            release_if_dead(t, on)  # without consumers
    return peak, usage
