"""Measured times by name, in a file that several processes share."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gopt.measure.rows import Rows


class StoredTimes:
    """Measured times by name, and why some could not be measured.

    Attributes:
      seconds: time by name, s; infinite after a failure.
      failures: error message of each failure, by name.
    """

    def __init__(self, path: Path | None, conditions: Mapping[str, Any], content: str):
        """Read the times of a file.

        Args:
          path: file of times, see `gopt.measure.rows.Rows`; None if nothing is stored.
          conditions: see `gopt.measure.rows.Rows`.
          content: plural noun for the times, used in error messages.

        Raises:
          ValueError: a row of the file is not a time; or see `gopt.measure.rows.Rows`.
        """
        self.seconds: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        self._content = content
        self._rows = None if path is None else Rows(path, conditions, content)
        self._read()

    def _read(self) -> None:
        """Read the times that were added to the file since the last call."""
        for place, name, row in self._rows.new() if self._rows else ():
            fields = row if isinstance(row, dict) else {}
            seconds, failure = fields.get("seconds"), fields.get("failure")
            if isinstance(failure, str) and seconds is None:
                self.seconds[name], self.failures[name] = math.inf, failure
            elif isinstance(seconds, float | int) and 0 <= seconds < math.inf:
                self.seconds[name] = float(seconds)
            else:
                raise ValueError(f"{place} is {row!r}: expected one of {self._content}")

    def _add(self, name: str, seconds: float) -> None:
        """Add a time, s."""
        self.seconds[name] = seconds
        if self._rows:
            self._rows.add(name, {"seconds": seconds})

    def _fail(self, name: str, failure: str) -> None:
        """Add a failure, whose time is infinite."""
        self.seconds[name], self.failures[name] = math.inf, failure
        if self._rows:
            self._rows.add(name, {"seconds": None, "failure": failure})
