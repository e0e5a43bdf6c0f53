"""Reads and changes files of rows from outside."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def conditions(path: Path) -> dict[str, Any]:
    """Return the conditions of a file."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, value FROM conditions").fetchall()
    return {name: json.loads(value) for name, value in found}


def stored_rows(path: Path) -> dict[str, Any]:
    """Return all rows of a file by name."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, value FROM rows ORDER BY number").fetchall()
    return {name: value if isinstance(value, bytes) else json.loads(value) for name, value in found}


def add_row(path: Path, value: Any) -> None:
    """Add a row of any value, JSON or not."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO rows (name, value) VALUES ('a', ?)", (value,))


def remove_row(path: Path, name: str) -> None:
    """Remove a row."""
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("DELETE FROM rows WHERE name = ?", (name,)).rowcount == 1
