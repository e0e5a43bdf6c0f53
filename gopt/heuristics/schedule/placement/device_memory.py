"""What devices hold while a list heuristic places ops one after another."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.readiness import reads_of


class DeviceMemory:
    """The room that is left on each device, in units, after each op that is placed for good.

    Time is that of placing: a tensor is held where it is made from then on, and where it is sent
    to from its first reader there on. Both are freed when all of its readers are placed, on
    whatever device, since it is not known before where they run; a pinned tensor stays where it
    was made. When a group is bound to a device, room is reserved there for what the group keeps:
    its inputs, and the pinned tensors that its ops make.

    Args:
      problem: one problem of D devices, on the host.
      schedule: of this problem, with its groups.
      capacity: of each device, units, `[D]`.
    """

    def __init__(self, problem: Problem, schedule: PartialSchedule[Any], capacity: Sequence[float]):
        self.room = list(capacity)
        self.freed: set[int] = set()  # devices of which the last `place` freed something
        self._schedule = schedule
        self._workspace: list[int] = np.asarray(problem.workspace).tolist()
        self._size: list[int] = np.asarray(problem.size).tolist()
        self._pinned: list[bool] = np.asarray(problem.pinned).tolist()
        self._producer: list[int] = np.asarray(problem.producer).tolist()
        self._first_tensor: list[int] = np.asarray(problem.first_tensor).tolist()
        self._reads = reads_of(problem)
        self._consumer: list[int] = np.asarray(problem.consumer).tolist()
        self._first_use: list[int] = np.asarray(problem.first_use).tolist()
        self._left: list[int] = np.diff(problem.first_use).tolist()
        self._where: list[set[int]] = [set() for _ in range(int(problem.num_tensors))]
        is_input: list[bool] = np.asarray(problem.is_input).tolist()
        self._kept = [
            [
                tensor
                for op in ops
                for tensor in self._made(op)
                if self._pinned[tensor] or (is_input[op] and self._left[tensor])
            ]
            for ops in schedule.members
        ]

    def need(self, op: int, device: int) -> int:
        """Returns how much more an op would need on a device while it runs there, in units."""
        return self._workspace[op] + sum(self._size[tensor] for tensor in self._missing(op, device))

    def fits(self, op: int, device: int) -> bool:
        """Returns whether there is room for an op on a device."""
        return self.need(op, device) <= self.room[device]

    def place(self, op: int) -> list[int]:
        """Holds what an op needs that was committed; returns ops that need less there by now."""
        device, group = self._schedule.device[op], self._schedule.group[op]
        missing = self._missing(op, device)
        for tensor in missing:
            self._hold(tensor, device)
        helped = [reader for tensor in missing for reader in self._readers(tensor)]
        if self._kept[group]:
            helped += self._schedule.members[group]
            self._kept[group] = []
        self.freed = set()
        for tensor in self._reads[op]:
            self._hold(tensor, self._home(tensor))  # an input that may not be where it is read
            self._left[tensor] -= 1
        for tensor in (*self._reads[op], *self._made(op)):
            if self._left[tensor] == 0:
                self._free(tensor)
        return helped

    def _missing(self, op: int, device: int) -> set[int]:
        """Returns the tensors that an op needs on a device, and those reserved with it."""
        wanted = {*self._reads[op], *self._made(op), *self._kept[self._schedule.group[op]]}
        return {tensor for tensor in wanted if device not in self._where[tensor]}

    def _hold(self, tensor: int, device: int) -> None:
        if device not in self._where[tensor]:
            self._where[tensor].add(device)
            self.room[device] -= self._size[tensor]

    def _free(self, tensor: int) -> None:
        stays = {self._home(tensor)} if self._pinned[tensor] else set()
        for device in self._where[tensor] - stays:
            self.room[device] += self._size[tensor]
            self.freed.add(device)

    def _home(self, tensor: int) -> int:
        return self._schedule.device[self._producer[tensor]]

    def _made(self, op: int) -> range:
        return range(self._first_tensor[op], self._first_tensor[op + 1])

    def _readers(self, tensor: int) -> list[int]:
        return self._consumer[self._first_use[tensor] : self._first_use[tensor + 1]]
