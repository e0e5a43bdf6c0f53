"""Track free device memory while a list heuristic places ops one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.readiness import operands_by_op


class DeviceMemory:
    """Free memory of each device, in units, after each committed op.

    Time is placement order. A tensor is held on its producer's device from placement on, and on
    another device from its first reader there on. All copies are freed once all readers are placed,
    on any device, because their devices are not known earlier. A pinned tensor stays on its
    producer's device. When a group is bound to a device, memory is reserved there for the group's
    inputs and for the pinned tensors that its ops produce.

    Args:
      problem: one problem of D devices, as NumPy arrays.
      schedule: partial schedule of this problem, with its groups.
      capacity: capacity of each device in units, `[D]`.

    Attributes:
      free_units: free units of each device, `[D]`.
      freed: devices on which the last `place` freed memory.
    """

    def __init__(self, problem: Problem, schedule: PartialSchedule[Any], capacity: Sequence[float]):
        self.free_units = list(capacity)
        self.freed: set[int] = set()
        self._schedule = schedule
        self._workspace: list[int] = np.asarray(problem.workspace).tolist()
        self._size: list[int] = np.asarray(problem.size).tolist()
        self._pinned: list[bool] = np.asarray(problem.pinned).tolist()
        self._producer: list[int] = np.asarray(problem.producer).tolist()
        self._first_tensor: list[int] = np.asarray(problem.first_tensor).tolist()
        self._reads = operands_by_op(problem)
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

    def units_needed(self, op: int, device: int) -> int:
        """Return the additional units that an op needs on a device while it runs there."""
        return self._workspace[op] + sum(self._size[tensor] for tensor in self._missing(op, device))

    def fits(self, op: int, device: int) -> bool:
        """Return whether an op fits the free memory of a device."""
        return self.units_needed(op, device) <= self.free_units[device]

    def place(self, op: int) -> list[int]:
        """Allocate the memory of a committed op; return ops that now need less on its device."""
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
            # An input that is not allowed on its reader's device.
            self._hold(tensor, self._home(tensor))
            self._left[tensor] -= 1
        for tensor in (*self._reads[op], *self._made(op)):
            if self._left[tensor] == 0:
                self._free(tensor)
        return helped

    def _missing(self, op: int, device: int) -> set[int]:
        """Return the tensors that an op lacks on a device, reservations included."""
        needed = {*self._reads[op], *self._made(op), *self._kept[self._schedule.group[op]]}
        return {tensor for tensor in needed if device not in self._where[tensor]}

    def _hold(self, tensor: int, device: int) -> None:
        if device not in self._where[tensor]:
            self._where[tensor].add(device)
            self.free_units[device] -= self._size[tensor]

    def _free(self, tensor: int) -> None:
        stays = {self._home(tensor)} if self._pinned[tensor] else set()
        for device in self._where[tensor] - stays:
            self.free_units[device] += self._size[tensor]
            self.freed.add(device)

    def _home(self, tensor: int) -> int:
        return self._schedule.device[self._producer[tensor]]

    def _made(self, op: int) -> range:
        return range(self._first_tensor[op], self._first_tensor[op + 1])

    def _readers(self, tensor: int) -> list[int]:
        return self._consumer[self._first_use[tensor] : self._first_use[tensor + 1]]
