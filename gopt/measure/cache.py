"""Figures that were measured, in a file that grows by lines and says what they depend on."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gopt.files import write_whole


class Ledger:
    """Rows of JSON in a file, after one that says what they depend on. Others may write to it."""

    def __init__(self, path: Path, header: Mapping[str, Any], what: str):
        """Opens a file, or makes it.

        Args:
          path: of the file.
          header: what all rows depend on.
          what: rows are, in the plural, for messages.

        Raises:
          ValueError: it is a folder, or does not say that its rows depend on the same.
        """
        self._path, self._header, self._what = path, dict(header), what
        self._read = 0  # bytes
        self._number = 0  # of lines
        if path.is_dir():
            raise ValueError(f"{path} is a folder: expected a file of {what}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x") as file:  # only one of several that begin together makes it
                file.write(json.dumps(self._header) + "\n")
        except FileExistsError:
            pass
        self._check()
        content = path.read_bytes()
        if not content.endswith(b"\n"):  # a run was stopped while it wrote
            with write_whole(path) as temporary:
                temporary.write_bytes(content[: content.rfind(b"\n") + 1])

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Yields what has not been read, with where it is, for messages.

        Raises:
          ValueError: a line is not JSON.
        """
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # someone is writing it
                    return
                self._read += len(line)
                self._number += 1
                place = f"{self._path}, line {self._number}"
                yield place, _parsed(place, line)

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a row."""
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _check(self) -> None:
        if not self._path.stat().st_size:
            raise ValueError(
                f"{self._path} is empty: expected a line that says what {self._what} depend on"
            )
        with self._path.open("rb") as file:
            line = file.readline()
        self._read, self._number, place = len(line), 1, f"{self._path}, line 1"
        header = _parsed(place, line)
        if not isinstance(header, dict) or not header.keys() & self._header.keys():
            raise ValueError(f"{place}: does not say what {self._what} depend on")
        for name, expected in self._header.items():
            if header.get(name) != expected:
                raise ValueError(
                    f"{self._path} has {self._what} with {name} = {header.get(name)!r}, expected "
                    f"{expected!r}: use another file"
                )


def _parsed(place: str, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place}: not a line of JSON") from error
