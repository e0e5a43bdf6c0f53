"""Reads and changes files of measurements from outside."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def conditions(path: Path) -> dict[str, Any]:
    """Return the conditions that a file of measurements names."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, value FROM conditions").fetchall()
    return {name: json.loads(value) for name, value in found}


def stored_rows(path: Path) -> list[Any]:
    """Return all rows of a file of measurements."""
    with closing(sqlite3.connect(path)) as connection:
        return [json.loads(value) for (value,) in connection.execute("SELECT value FROM rows")]


def add_row(path: Path, text: str) -> None:
    """Add a row of any text."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO rows (value) VALUES (?)", (text,))
