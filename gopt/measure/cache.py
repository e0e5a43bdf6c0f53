"""A cache of measurements in a SQLite file that several processes share."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TABLES = (
    "CREATE TABLE IF NOT EXISTS conditions (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, value TEXT NOT NULL)",
)
_PATIENCE = 60.0  # s, for another process to finish its write


class MeasurementCache:
    """Rows of JSON in a SQLite file, and the conditions under which they were measured.

    Each row is written whole or not at all. Any number of processes may read and write.
    """

    def __init__(self, path: Path, conditions: Mapping[str, Any], content: str):
        """Open a file, or create it.

        Args:
          path: the file.
          conditions: machine, versions and settings that all rows depend on, as JSON values.
          content: plural noun for the rows, used in error messages.

        Raises:
          ValueError: the path is a folder, another kind of file, or a cache of other conditions.
        """
        self._path, self._content = path, content
        self._last = 0  # number of the last row that was read
        if path.is_dir():
            raise ValueError(f"{path} is a folder: expected a file of {content}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stored = self._open(conditions)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise ValueError(f"{path} is not a SQLite file of {content}") from error
        for name, expected in conditions.items():
            found = json.loads(stored[name]) if name in stored else None
            if found != expected:
                raise ValueError(
                    f"{path} has {content} with {name} = {found!r}, expected {expected!r}: "
                    "use another file"
                )

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Yield the rows that were added since the last call, each with its place for messages."""
        with self._connection() as connection:
            query = "SELECT number, value FROM rows WHERE number > ? ORDER BY number"
            found = connection.execute(query, (self._last,)).fetchall()
        for number, value in found:
            self._last = number
            yield f"{self._path}, row {number}", json.loads(value)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row."""
        with self._connection() as connection:
            connection.execute("INSERT INTO rows (value) VALUES (?)", (json.dumps(row),))

    def _open(self, conditions: Mapping[str, Any]) -> dict[str, str]:
        """Return the stored conditions. Of processes that start together, one creates the file."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not tables:
                for table in _TABLES:
                    connection.execute(table)
                rows = [(name, json.dumps(value)) for name, value in conditions.items()]
                connection.executemany("INSERT INTO conditions VALUES (?, ?)", rows)
            elif not tables >= {"conditions", "rows"}:
                raise ValueError(f"{self._path} is a SQLite file without {self._content}")
            return dict(connection.execute("SELECT name, value FROM conditions"))

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose transaction is committed if the block succeeds."""
        with (
            contextlib.closing(sqlite3.connect(self._path, timeout=_PATIENCE)) as connection,
            connection,
        ):
            yield connection
