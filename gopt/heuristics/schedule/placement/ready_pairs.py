"""A queue of pairs of ready op and device, ordered by earliest start."""

import heapq
from collections.abc import Iterable

from gopt.heuristics.schedule.placement.device_memory import DeviceMemory
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.placement.timeline import Tail


class ReadyPairs:
    """Pairs of a ready op and a device, by earliest start; starts are updated lazily.

    The start of an op on a device depends on the ends of a few timelines: the device's own, and
    those that its missing tensors are sent over. The op starts no earlier than the end of any of
    these plus the transfers that must be appended to it first. Each pair therefore waits in the
    queue of the timeline that delays it most, keyed by that constant offset. When a timeline
    advances, its pairs need no update. A pair is only checked again at the front, and may then move
    to another timeline.

    A pair at the front that does not fit the device's memory is set aside, keyed by the units that
    it needs.

    Args:
      schedule: partial schedule on `Tail` timelines.
      level: static level of each op, in ticks.
      memory: free memory of the devices.
    """

    def __init__(self, schedule: PartialSchedule[Tail], level: list[float], memory: DeviceMemory):
        self._schedule, self._level, self._memory = schedule, level, memory
        self._beginning = Tail()  # pairs wait here, keyed by start, if nothing else delays them
        self._bounds: dict[tuple[int, int], list[tuple[Tail, int]]] = {}
        self._queues: dict[tuple[int, Tail], list[tuple[int, float, int]]] = {
            (device, line): []
            for device, own in enumerate(schedule.devices)
            for line in (own, *schedule.lines_to(device), self._beginning)
        }
        # (units needed, op) per device.
        self._aside: list[list[tuple[int, int]]] = [[] for _ in schedule.devices]

    def add(self, op: int, devices: Iterable[int]) -> None:
        """Add pairs of an op; call again if it needs less on a device."""
        for device in devices:
            start, _ = self._schedule.place(op, device)
            sent = self._schedule.sent
            self._schedule.undo()
            load = {self._schedule.devices[device]: 0}
            for transfer in sent:
                for line in transfer.lines:
                    load[line] = load.get(line, 0) + transfer.ticks
            bounds = self._bounds[op, device] = [*load.items(), (self._beginning, start)]
            self._push(op, device, *max(bounds, key=_time))

    def retry(self, device: int) -> None:
        """Add the pairs again that were set aside and now fit a device."""
        aside = self._aside[device]
        while aside and aside[0][0] <= self._memory.free_units[device]:
            _, op = heapq.heappop(aside)
            if self._is_open(op, device):
                self.add(op, (device,))

    def pop(self) -> tuple[int, int]:
        """Remove and return the op and device of the pair that fits and can start first.

        Ties go to the higher level, then the lower op, then the lower device. If no pair fits,
        return the one with the smallest excess over the device's free memory, the lower op and
        device on ties.
        """
        while True:
            self._tidy()
            fronts = [
                (line.end + queue[0][0], *queue[0][1:], device, queue)
                for (device, line), queue in self._queues.items()
                if queue
            ]
            if not fronts:
                return self._nearest_to_fit()
            start, _, op, device, queue = min(fronts, key=lambda front: front[:4])
            heapq.heappop(queue)
            if self._schedule.trial(op, device)[0] != start:
                self.add(op, (device,))
            elif self._memory.fits(op, device):
                return op, device
            else:
                heapq.heappush(self._aside[device], (self._memory.units_needed(op, device), op))

    def _nearest_to_fit(self) -> tuple[int, int]:
        for device, aside in enumerate(self._aside):
            while aside and not self._is_open(aside[0][1], device):
                heapq.heappop(aside)
        fronts = [
            (aside[0][0] - self._memory.free_units[device], aside[0][1], device)
            for device, aside in enumerate(self._aside)
            if aside
        ]
        return min(fronts)[1:]

    def _tidy(self) -> None:
        """Drop settled pairs from the fronts, and move pairs that another timeline delays more."""
        for (device, line), queue in self._queues.items():
            while queue:
                ticks, _, op = queue[0]
                if self._is_open(op, device):
                    bound = max(self._bounds[op, device], key=_time)
                    if _time(bound) <= line.end + ticks:
                        break
                    self._push(op, device, *bound)
                heapq.heappop(queue)

    def _is_open(self, op: int, device: int) -> bool:
        """Return whether an op is unplaced and its group is not bound to another device."""
        return self._schedule.device[op] < 0 and device in self._schedule.allowed[op]

    def _push(self, op: int, device: int, line: Tail, ticks: int) -> None:
        heapq.heappush(self._queues[device, line], (ticks, -self._level[op], op))


def _time(bound: tuple[Tail, int]) -> int:
    line, ticks = bound
    return line.end + ticks
