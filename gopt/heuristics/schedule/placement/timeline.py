"""Busy times of a device or link: append only, or with filling of gaps."""

from bisect import bisect_left, bisect_right
from typing import Any, Protocol


class Timeline(Protocol):
    """Busy times of one device or link, in ticks. Changes are undone in reverse order."""

    def earliest(self, start: int, ticks: int) -> int:
        """Return the first time at or after `start` at which `ticks` fit."""

    def occupy(self, start: int, end: int) -> Any:
        """Mark a time span as busy; return the value that `restore` needs to undo it."""

    def restore(self, before: Any) -> None:
        """Undo the last `occupy`, given its return value."""


class Tail:
    """A timeline that appends items after the last one.

    Attributes:
      end: end of the last item, in ticks.
    """

    def __init__(self) -> None:
        self.end = 0

    def earliest(self, start: int, ticks: int) -> int:
        """Return the first time at which an item fits after the last one, see `Timeline`."""
        return max(start, self.end)

    def occupy(self, start: int, end: int) -> int:
        """Move the end to the end of a new item; return the old end."""
        before, self.end = self.end, end
        return before

    def restore(self, before: int) -> None:
        """Restore the end from before the last `occupy`."""
        self.end = before


class Gaps:
    """A timeline that may fill gaps between earlier items.

    Adjacent busy spans are merged into one block, so a device without gaps is searched in one step.
    An item of 0 ticks is a block of length 0: nothing may run across it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def earliest(self, start: int, ticks: int) -> int:
        """Return the first time at which an item fits a gap or the end, see `Timeline`."""
        starts, ends = self._starts, self._ends
        for block in range(bisect_right(ends, start), len(ends)):
            if starts[block] >= start + ticks:
                break
            start = ends[block]
        return start

    def occupy(self, start: int, end: int) -> tuple[int, list[int], list[int]]:
        """Merge a busy span with the blocks it touches; return its index and the old blocks."""
        first = bisect_left(self._ends, start)  # blocks first..last - 1 touch the new one
        last = bisect_right(self._starts, end)
        starts, ends = self._starts[first:last], self._ends[first:last]
        self._starts[first:last] = [min([start, *starts[:1]])]
        self._ends[first:last] = [max([end, *ends[-1:]])]
        return first, starts, ends

    def restore(self, before: tuple[int, list[int], list[int]]) -> None:
        """Restore the blocks from before the last `occupy`."""
        first, starts, ends = before
        self._starts[first : first + 1] = starts
        self._ends[first : first + 1] = ends
