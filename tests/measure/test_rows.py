"""Rows of several processes, their conditions, and files of other kinds."""

import contextlib
import sqlite3

import pytest

from gopt.measure.rows import Rows
from tests.measure.row_files import add_row

CONDITIONS = {"version": 1, "processor": "this one"}


def opened(path, **conditions):
    return Rows(path, CONDITIONS | conditions, "times")


def new(rows):
    return {name: row for _, name, row in rows.new()}


def test_rows_of_others_are_read_once_as_they_come(tmp_path):
    path = tmp_path / "folder" / "times.sqlite"
    ours, theirs = opened(path), opened(path)
    assert new(ours) == {} and ours.read("a") is None
    ours.add("a", {"x": 1})
    theirs.add("b", None)
    assert new(ours) == new(theirs) == {"a": {"x": 1}, "b": None}
    theirs.add("c", b"\x00bytes")
    assert new(ours) == {"c": b"\x00bytes"} and new(ours) == {}
    assert next(iter(opened(path).new())) == (f"{path}, row 1", "a", {"x": 1})
    assert ours.read("a") == {"x": 1} and ours.read("c") == b"\x00bytes"


def test_the_first_of_two_rows_with_one_name_stays(tmp_path):
    ours, theirs = opened(tmp_path / "times.sqlite"), opened(tmp_path / "times.sqlite")
    ours.add("a", 1)
    theirs.add("a", 2)
    assert new(ours) == {"a": 1} and theirs.read("a") == 1


def test_readers_do_not_wait_for_a_writer(tmp_path):
    path = tmp_path / "times.sqlite"
    rows = opened(path)
    rows.add("a", 1)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO rows (name, value) VALUES ('b', '2')")
    assert rows.read("a") == 1 and rows.read("b") is None
    writer.execute("COMMIT")
    writer.close()
    assert rows.read("b") == 2


def test_other_conditions_are_refused(tmp_path):
    path = tmp_path / "times.sqlite"
    opened(path, cores=3)
    other = opened(path)  # without rows, the conditions are free
    opened(path, version=3)
    with pytest.raises(ValueError, match="has times with version = 3, expected 1"):
        other.add("a", 1)
    opened(path).add("a", 1)
    with pytest.raises(ValueError, match="has times with version = 1, expected 2: use another"):
        opened(path, version=2)
    with pytest.raises(ValueError, match="has times with cores = None, expected 3"):
        opened(path, cores=3)
    with pytest.raises(ValueError, match="has times with processor = 'this one', expected None"):
        Rows(path, {"version": 1}, "times")


@pytest.mark.parametrize(
    "content", [b"first\nsecond", b'{"kernel": "a"}\n' * 99, b"\xff\x00\n" * 99]
)
def test_other_files_are_refused_and_left_as_they_are(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"notes\.txt is not a SQLite file: expected a file of times"
    ):
        opened(path)
    assert path.read_bytes() == content
    with pytest.raises(ValueError, match="is a folder"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "tables",
    [
        ["songs (name TEXT)"],
        ["conditions (name TEXT)", "rows (number, name, value)"],
        # Rows without names, as they were.
        ["conditions (name TEXT, value TEXT)", "rows (number INTEGER PRIMARY KEY, value TEXT)"],
    ],
)
def test_other_databases_are_refused_and_left_as_they_are(tmp_path, tables):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    for table in tables:
        connection.execute(f"CREATE TABLE {table}")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"other\.sqlite is another SQLite file: expected a file of times"
    ):
        opened(path)
    assert path.read_bytes() == content


def test_damaged_files_are_refused_by_name(tmp_path):
    path = tmp_path / "times.sqlite"
    opened(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO rows (name, value) VALUES (?, ?)",
            [(f"row {k}", f'"{"x" * 99}"') for k in range(999)],
        )
    whole = path.read_bytes()
    for bad in (whole[:100], whole[: len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096)):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"times\.sqlite is damaged"):
            new(opened(path))
        with pytest.raises(ValueError, match=r"times\.sqlite is damaged"):
            opened(path).add("a", 1)
            opened(path).read("row 998")
    path.write_bytes(whole)
    assert len(new(opened(path))) == 999


@pytest.mark.parametrize("value", ["no JSON", "[" * 10**5, 7, None, ""])
def test_damaged_rows_are_refused_by_name(tmp_path, value):
    path = tmp_path / "times.sqlite"
    rows = opened(path)
    add_row(path, value)
    for read in (lambda: new(rows), lambda: rows.read("a")):
        with pytest.raises(ValueError, match=r"times\.sqlite, row 1 is damaged"):
            read()
