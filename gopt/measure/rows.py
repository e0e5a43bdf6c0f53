"""Rows by name in a SQLite file that several processes share."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TABLES = (
    "CREATE TABLE conditions (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, value)",
)
_PATIENCE = 60.0  # s, for another process to finish its write
_BAD_FILES = {
    sqlite3.SQLITE_NOTADB: "is not a SQLite file",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_ERROR: "is another SQLite file",  # of other tables or columns
}


class Rows:
    """Rows by name in a SQLite file, and the conditions that all of them depend on.

    A row is a JSON value or bytes. It is written whole or not at all: a process that is killed
    loses only the row that it is working on. Any number of processes may read and write at once. Of
    two rows with one name, the first one stays. A file without rows takes other conditions.

    SQLite's write-ahead log needs a local disk: on a network file system, rows can be lost.
    """

    def __init__(self, path: Path, conditions: Mapping[str, Any], content: str):
        """Open a file, or create it.

        Args:
          path: the file.
          conditions: machine, versions and settings that all rows depend on, as JSON values.
          content: plural noun for the rows, used in error messages.

        Raises:
          ValueError: the path is a folder, another kind of file, or damaged; or its rows have other
            conditions.
          OSError: the file cannot be opened or written.
        """
        self._path, self._conditions, self._content = path, dict(conditions), content
        self._last = 0  # number of the last row that `new` read
        if path.is_dir():
            raise ValueError(f"{path} is a folder: expected a file of {content}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")  # one of several processes creates the tables
            if connection.execute("SELECT name FROM sqlite_master").fetchone() is None:
                for table in _TABLES:
                    connection.execute(table)
            query = "SELECT EXISTS (SELECT number, name, value FROM rows)"
            if connection.execute(query).fetchone() == (0,):
                texts = [(name, json.dumps(value)) for name, value in conditions.items()]
                connection.execute("DELETE FROM conditions")
                connection.executemany("INSERT INTO conditions VALUES (?, ?)", texts)
            self._check(connection)
            connection.commit()
            # Only now, because it changes the file. SQLite does not wait for other processes here:
            # if the file is in use, a later call changes it. Rows are safe without, but slower.
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = WAL")

    def read(self, name: str) -> Any:
        """Return a row, or None if it is missing."""
        with self._connection() as connection:
            query = "SELECT number, value FROM rows WHERE name = ?"
            found = connection.execute(query, (name,)).fetchone()
        return None if found is None else self._value(*found)

    def new(self) -> Iterator[tuple[str, str, Any]]:
        """Yield place (for messages), name and value of rows added since the last call."""
        with self._connection() as connection:
            query = "SELECT number, name, value FROM rows WHERE number > ? ORDER BY number"
            found = connection.execute(query, (self._last,)).fetchall()
        for number, name, value in found:
            self._last = number
            yield self._place(number), name, self._value(number, value)

    def add(self, name: str, row: Any) -> None:
        """Add a row, unless there is one with this name.

        Raises:
          ValueError: another process has added rows of other conditions since the file was opened.
        """
        value = row if isinstance(row, bytes) else json.dumps(row)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._check(connection)
            connection.execute(
                "INSERT OR IGNORE INTO rows (name, value) VALUES (?, ?)", (name, value)
            )

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse other conditions."""
        found = connection.execute("SELECT name, value FROM conditions").fetchall()
        stored = {name: self._value(name, value) for name, value in found}
        for name in sorted(stored.keys() | self._conditions.keys()):
            value, expected = stored.get(name), self._conditions.get(name)
            if value != expected:
                raise ValueError(
                    f"{self._path} has {self._content} with {name} = {value!r}, "
                    f"expected {expected!r}: use another file, or the old settings"
                )

    def _place(self, number: int | str) -> str:
        return f"{self._path}, row {number}"

    def _value(self, number: int | str, value: Any) -> Any:
        try:
            return value if isinstance(value, bytes) else json.loads(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{self._place(number)} is damaged: {error}") from error

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose transaction is committed if the block succeeds."""
        try:
            with (
                contextlib.closing(sqlite3.connect(self._path, timeout=_PATIENCE)) as connection,
                connection,
            ):
                yield connection
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in _BAD_FILES:
                raise ValueError(
                    f"{self._path} {_BAD_FILES[code]}: expected a file of {self._content} ({error})"
                ) from error
            raise OSError(f"{self._path}: {error}") from error
