"""When a device or a link is busy: with items at the end only, or in earlier gaps too."""

from bisect import bisect_left, bisect_right
from typing import Any, Protocol


class Timeline(Protocol):
    """Busy time of one device or link, in ticks. Changes can be taken back, the last one first."""

    def earliest(self, start: int, ticks: int) -> int:
        """Returns the first time not before `start` at which `ticks` fit."""

    def occupy(self, start: int, end: int) -> Any:
        """Makes a time busy and returns what `restore` needs to take it back."""

    def restore(self, before: Any) -> None:
        """Takes back the last `occupy`, given what it returned."""


class Tail:
    """A timeline on which items go after the last one."""

    def __init__(self) -> None:
        self.end = 0

    def earliest(self, start: int, ticks: int) -> int:
        """See `Timeline`."""
        return max(start, self.end)

    def occupy(self, start: int, end: int) -> int:
        """See `Timeline`."""
        before, self.end = self.end, end
        return before

    def restore(self, before: int) -> None:
        """See `Timeline`."""
        self.end = before


class Gaps:
    """A timeline on which items may go into gaps between earlier ones.

    Busy times that touch are kept as one block, so that a device without gaps is searched in
    one step. An item of no ticks is a block of no length: nothing may run across it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def earliest(self, start: int, ticks: int) -> int:
        """See `Timeline`."""
        starts, ends = self._starts, self._ends
        for block in range(bisect_right(ends, start), len(ends)):
            if starts[block] >= start + ticks:
                break
            start = ends[block]
        return start

    def occupy(self, start: int, end: int) -> tuple[int, list[int], list[int]]:
        """See `Timeline`."""
        first = bisect_left(self._ends, start)  # blocks first..last - 1 touch the new one
        last = bisect_right(self._starts, end)
        starts, ends = self._starts[first:last], self._ends[first:last]
        self._starts[first:last] = [min([start, *starts[:1]])]
        self._ends[first:last] = [max([end, *ends[-1:]])]
        return first, starts, ends

    def restore(self, before: tuple[int, list[int], list[int]]) -> None:
        """See `Timeline`."""
        first, starts, ends = before
        self._starts[first : first + 1] = starts
        self._ends[first : first + 1] = ends
