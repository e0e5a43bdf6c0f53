"""Ready ops on devices, the pair that can start first at the front."""

import heapq
from collections.abc import Iterable

from gopt.heuristics.schedule.placement.device_memory import DeviceMemory
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.placement.timeline import Tail


class ReadyPairs:
    """Pairs of a ready op and a device, by earliest start; starts are brought up to date lazily.

    When an op can start on a device depends on how far a few timelines have got: those of the
    device and of what its missing tensors are sent over. It cannot start before the end of any
    of these, plus the transfers that have to go there first. So each pair waits at the timeline
    that holds it up, by that constant: where the timeline moves on, the pairs at it need no
    change. A pair is looked at again only at the front, and may then move to another timeline.

    Pairs for which a device has no room are set aside at the front, by what they need.
    """

    def __init__(self, schedule: PartialSchedule[Tail], level: list[float], memory: DeviceMemory):
        self._schedule, self._level, self._memory = schedule, level, memory
        self._beginning = Tail()  # pairs that nothing else holds up wait here, by their start
        self._bounds: dict[tuple[int, int], list[tuple[Tail, int]]] = {}
        self._queues: dict[tuple[int, Tail], list[tuple[int, float, int]]] = {
            (device, line): []
            for device, own in enumerate(schedule.devices)
            for line in (own, *schedule.lines_to(device), self._beginning)
        }
        self._aside: list[list[tuple[int, int]]] = [[] for _ in schedule.devices]  # need, op

    def add(self, op: int, devices: Iterable[int]) -> None:
        """Adds pairs of an op; again if it needs less on a device than before."""
        for device in devices:
            start, _ = self._schedule.place(op, device)
            sent = self._schedule.sent
            self._schedule.take_back()
            load = {self._schedule.devices[device]: 0}
            for transfer in sent:
                for line in transfer.lines:
                    load[line] = load.get(line, 0) + transfer.ticks
            bounds = self._bounds[op, device] = [*load.items(), (self._beginning, start)]
            self._push(op, device, *max(bounds, key=_time))

    def retry(self, device: int) -> None:
        """Adds the pairs again that were set aside and for which a device has room by now."""
        aside = self._aside[device]
        while aside and aside[0][0] <= self._memory.room[device]:
            _, op = heapq.heappop(aside)
            if self._is_open(op, device):
                self.add(op, (device,))

    def pop(self) -> tuple[int, int]:
        """Removes and returns the op and device of the pair that fits and can start first.

        Ties are broken by higher level, then lower op, then lower device. If none fits, it is the
        pair that needs least beyond the room of its device, the lower op and device on ties.
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
                heapq.heappush(self._aside[device], (self._memory.need(op, device), op))

    def _nearest_to_fit(self) -> tuple[int, int]:
        for device, aside in enumerate(self._aside):
            while aside and not self._is_open(aside[0][1], device):
                heapq.heappop(aside)
        fronts = [
            (aside[0][0] - self._memory.room[device], aside[0][1], device)
            for device, aside in enumerate(self._aside)
            if aside
        ]
        return min(fronts)[1:]

    def _tidy(self) -> None:
        """Drops pairs that are settled from the fronts, and moves what something else holds up."""
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
        """Returns whether an op is not placed, and its group not bound to another device."""
        return self._schedule.device[op] < 0 and device in self._schedule.allowed[op]

    def _push(self, op: int, device: int, line: Tail, ticks: int) -> None:
        heapq.heappush(self._queues[device, line], (ticks, -self._level[op], op))


def _time(bound: tuple[Tail, int]) -> int:
    line, ticks = bound
    return line.end + ticks
