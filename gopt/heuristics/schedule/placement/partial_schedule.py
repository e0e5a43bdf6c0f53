"""A schedule that list heuristics build op by op, with the transfers that each op needs."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.encode import keys_from_items
from gopt.heuristics.schedule.placement.timeline import Timeline
from gopt.heuristics.schedule.readiness import check_group, followed_ops, operands_by_op

Line = TypeVar("Line", bound=Timeline)


class Sent(NamedTuple):
    """A transfer that an op needs.

    Attributes:
      tensor: index of the tensor.
      lines: timelines that the transfer occupies.
      ticks: transfer time, in ticks.
    """

    tensor: int
    lines: list[Any]
    ticks: int


class PartialSchedule(Generic[Line]):
    """The ops placed so far, and the busy times of devices and links, in ticks.

    An item starts at the first time that fits all it occupies. An op occupies its device. A
    transfer occupies its link and, if transfers are synchronous, both devices. Each item therefore
    starts when its inputs arrive or when another item ends. Issuing the items by start time gives
    the same times under `gopt.cost.schedule.execution`, which never fills gaps.

    The caller does not place input ops. An input goes to the device of its first reader, or to the
    nearest one that it is allowed on.

    The first committed op of a group binds the group to its device. The others are then allowed
    only there. An op that is not allowed there keeps the first of its allowed devices. An input is
    in the group of its first reader by index.

    Args:
      problem: one problem of n real ops, as NumPy arrays.
      timeline: constructor of the timeline of a device or link.
      group: group of each op, int `[n]`; by default each op is its own group.

    Attributes:
      group: group of each real op, numbered from 0.
      members: ops of each group.
      device: device of each real op, -1 before it is placed.
      devices: timeline of each device.
      allowed: devices that each op may still be placed on.
      items: (start, end, item) of each placed item, in ticks.
      sent: transfers of the last `place`.

    Raises:
      ValueError: `group` does not have one entry per op.
    """

    def __init__(
        self, problem: Problem, timeline: Callable[[], Line], group: np.ndarray | None = None
    ):
        self._problem = problem
        self.group, self.members = _groups(problem, group)
        count = problem.num_devices
        ops = range(int(problem.num_ops))
        self.device = [-1 for _ in ops]
        self.devices = [timeline() for _ in range(count)]
        self._links: dict[int, Line] = {
            int(link): timeline() for link in np.unique(problem.channel) if link >= 0
        }
        self._channel: list[list[int]] = np.asarray(problem.channel).tolist()
        self._op_ticks: list[list[int]] = np.asarray(problem.op_ticks).tolist()
        self._transfer_ticks: list[list[list[int]]] = np.asarray(problem.transfer_ticks).tolist()
        self._producer: list[int] = np.asarray(problem.producer).tolist()
        self._is_input: list[bool] = np.asarray(problem.is_input).tolist()
        self._first_tensor: list[int] = np.asarray(problem.first_tensor).tolist()
        self._reads = operands_by_op(problem)
        self.allowed = [np.flatnonzero(problem.allowed[i]).tolist() for i in ops]
        self._end = [0 for _ in ops]
        self._bound = [False for _ in self.members]
        self._arrival: dict[int, int] = {}  # end of each transfer, by item
        self.items: list[tuple[int, int, int]] = []
        self.sent: list[Sent] = []
        self._undo_log: list[tuple[Callable[[Any], Any], Any]] = []

    def place(self, op: int, device: int) -> tuple[int, int]:
        """Place an op and the transfers that it needs; return its start and end, in ticks."""
        self.sent = []
        self._undo_log.clear()
        self._undo_log.append((self._shorten, len(self.items)))
        ready, missing = 0, []
        for tensor in self._reads[op]:
            maker = self._producer[tensor]
            if self._is_input[maker] and self.device[maker] < 0:
                self._settle(maker, self._nearest(maker, device))
            arrival = self._end[maker]
            if self.device[maker] != device:
                item = self._item(tensor, device)
                if item not in self._arrival:
                    missing.append((arrival, tensor))
                    continue
                arrival = self._arrival[item]
            ready = max(ready, arrival)
        for _, tensor in sorted(missing):
            ready = max(ready, self._send(tensor, device))
        ticks = self._op_ticks[op][device]
        start = self._occupy(op, [self.devices[device]], ready, ticks)
        self._end[op] = start + ticks
        self.device[op] = device
        self._undo_log.append((self._unplace, op))
        return start, start + ticks

    def commit(self, op: int, device: int) -> None:
        """Place an op permanently, and bind its group if it is not bound yet."""
        self.place(op, device)
        if self._bound[self.group[op]]:
            return
        self._bound[self.group[op]] = True
        for member in self.members[self.group[op]]:
            if not self._is_input[member]:
                there = device in self.allowed[member]
                self.allowed[member] = [device] if there else self.allowed[member][:1]
            elif self.device[member] < 0 and device in self.allowed[member]:
                self._settle(member, device)

    def undo(self) -> None:
        """Undo the last call of `place`. Each call can be undone once."""
        while self._undo_log:
            restore, before = self._undo_log.pop()
            restore(before)

    def trial(self, op: int, device: int) -> tuple[int, int]:
        """Return the start and end that `place` would give, without placing."""
        times = self.place(op, device)
        self.undo()
        return times

    def place_earliest(self, op: int) -> None:
        """Commit an op to the device where it ends first, the lowest index on ties."""
        choices = self.allowed[op]
        if len(choices) > 1:
            choices = [min(choices, key=lambda device: self.trial(op, device)[1])]
        self.commit(op, choices[0])

    def keys(self) -> Keys:
        """Return the keys that decode to this schedule; every non-input op must be placed."""
        for op, device in enumerate(self.device):
            if device < 0 and self._is_input[op]:
                self._settle(op, self.allowed[op][0])
        # Python's sort is stable: items with equal times stay in the order of their placement.
        items = [item for _, _, item in sorted(self.items, key=lambda times: times[:2])]
        return keys_from_items(self._problem, self.device, items)

    def lines_to(self, device: int) -> list[Line]:
        """Return the timelines that transfers to a device occupy, except the device's own."""
        sources = (source for source in range(len(self.devices)) if source != device)
        lines = [line for source in sources for line in self._lines(source, device)]
        return [line for line in dict.fromkeys(lines) if line is not self.devices[device]]

    def _lines(self, source: int, device: int) -> list[Line]:
        link = self._channel[source][device]
        lines = [self._links[link]] if link >= 0 else []
        if self._problem.synchronous:
            lines += [self.devices[source], self.devices[device]]
        return lines

    def _item(self, tensor: int, device: int) -> int:
        return len(self._op_ticks) + tensor * len(self.devices) + device

    def _nearest(self, maker: int, device: int) -> int:
        tensors = range(self._first_tensor[maker], self._first_tensor[maker + 1])

        def cost(home: int) -> int:
            return sum(self._transfer_ticks[t][home][device] for t in tensors if home != device)

        return min(self.allowed[maker], key=lambda home: (home != device, cost(home)))

    def _settle(self, maker: int, device: int) -> None:
        self.device[maker] = device
        self._undo_log.append((self._unplace, maker))
        self.items.append((0, 0, maker))

    def _send(self, tensor: int, device: int) -> int:
        maker = self._producer[tensor]
        source = self.device[maker]
        lines = self._lines(source, device)
        ticks = self._transfer_ticks[tensor][source][device]
        self.sent.append(Sent(tensor, lines, ticks))
        item = self._item(tensor, device)
        end = self._occupy(item, lines, self._end[maker], ticks) + ticks
        self._arrival[item] = end
        self._undo_log.append((self._arrival.pop, item))
        return end

    def _occupy(self, item: int, lines: list[Line], start: int, ticks: int) -> int:
        before = -1
        while before != start:  # until it fits all lines
            before = start
            for line in lines:
                start = line.earliest(start, ticks)
        for line in lines:
            self._undo_log.append((line.restore, line.occupy(start, start + ticks)))
        self.items.append((start, start + ticks, item))
        return start

    def _unplace(self, op: int) -> None:
        self.device[op] = -1

    def _shorten(self, count: int) -> None:
        del self.items[count:]


def _groups(problem: Problem, group: np.ndarray | None) -> tuple[list[int], list[list[int]]]:
    """Return the group of each op, numbered from 0, and the ops of each group."""
    group = np.arange(int(problem.num_ops)) if group is None else np.asarray(group)
    check_group(problem, group)
    numbers: list[int] = np.unique(group[followed_ops(problem)], return_inverse=True)[1].tolist()
    members: list[list[int]] = [[] for _ in range(max(numbers) + 1)]
    for op, number in enumerate(numbers):
        members[number].append(op)
    return numbers, members
