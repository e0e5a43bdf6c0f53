"""Rows of a table, a file each: a run that was interrupted goes on with those that are missing."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments import common
from gopt.measure.timing import conditions


class Rows:
    """Rows of the same settings and `gopt.measure.timing.conditions`, JSON values by their names.

    Each has the versions that it was made with; rows of an older version are kept.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        """Takes where rows are, and the settings that all of them have, as JSON values.

        Raises:
          ValueError: a row that is there is of other settings or conditions.
        """
        self._folder, self._about = folder, {**about, "conditions": conditions()}
        for path in sorted(folder.glob("*.json")):
            if json.loads(path.read_text())["about"] != self._about:
                raise ValueError(f"{path} is of other settings or conditions: use another folder")

    def of(self, name: str, make: Callable[[], Any]) -> Any:
        """Returns a row, which is made and kept if there is none; as it is read."""
        if self.find(name) is None:
            self.keep(name, make())
        return self.find(name)

    def find(self, name: str) -> Any:
        """Returns a row, or None if there is none."""
        path = self._path(name)
        return json.loads(path.read_text())["row"] if path.exists() else None

    def keep(self, name: str, row: Any) -> None:
        """Writes a row, whole or not at all."""
        kept = {"about": self._about, "versions": common.versions(), "row": row}
        common.save_json(self._path(name), kept)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def about(settings: Any, *others: str) -> dict[str, Any]:
    """Returns settings as JSON values, but for others, in which rows of a folder may differ."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings), default=str))
    return {name: value for name, value in plain.items() if name not in (*others, "folder")}
