"""The cache of measurements: rows of several processes, conditions, and files of other kinds."""

import multiprocessing
import os
import signal
import sqlite3
import time

import pytest

from gopt.measure.cache import MeasurementCache

CONDITIONS = {"version": 1, "processor": "this one"}


def opened(path, **conditions):
    return MeasurementCache(path, CONDITIONS | conditions, "times")


def rows(cache):
    return [row for _, row in cache.rows()]


def write(path, name, count):
    for number in range(count):
        opened(path).append({"writer": name, "number": number})


def test_rows_of_others_are_read_once_as_they_come(tmp_path):
    path = tmp_path / "folder" / "times.sqlite"
    ours, theirs = opened(path), opened(path)
    assert rows(ours) == []
    ours.append({"a": 1})
    theirs.append({"b": None})
    assert rows(ours) == rows(theirs) == [{"a": 1}, {"b": None}]
    theirs.append({"c": [3]})
    assert rows(ours) == [{"c": [3]}] and rows(ours) == []
    assert next(iter(opened(path).rows())) == (f"{path}, row 1", {"a": 1})


@pytest.mark.slow
def test_processes_that_open_and_write_at_once_lose_no_row(tmp_path):
    path = tmp_path / "times.sqlite"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write, args=(path, name, 20)) for name in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = sorted((row["writer"], row["number"]) for row in rows(opened(path)))
    assert found == [(name, number) for name in range(4) for number in range(20)]


@pytest.mark.slow
def test_rows_of_a_killed_writer_are_whole(tmp_path):
    path = tmp_path / "times.sqlite"
    opened(path)
    spawn = multiprocessing.get_context("spawn")
    for round_ in range(3):
        writer = spawn.Process(target=write, args=(path, round_, 10**6))
        writer.start()
        before = len(rows(opened(path)))
        while len(rows(opened(path))) < before + 5:
            time.sleep(0.01)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    found = rows(opened(path))
    for round_ in range(3):
        numbers = [row["number"] for row in found if row["writer"] == round_]
        assert numbers == list(range(len(numbers))) and len(numbers) >= 5


def test_other_conditions_are_refused(tmp_path):
    path = tmp_path / "times.sqlite"
    opened(path)
    with pytest.raises(ValueError, match="has times with version = 1, expected 2: use another"):
        opened(path, version=2)
    with pytest.raises(ValueError, match="has times with cores = None, expected 3"):
        opened(path, cores=3)


@pytest.mark.parametrize("content", [b"first\nsecond", b"\xff\x00\n" * 99])
def test_other_files_are_refused_and_left_as_they_are(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"notes\.txt is not a SQLite file of times"):
        opened(path)
    assert path.read_bytes() == content
    with pytest.raises(ValueError, match="is a folder"):
        opened(tmp_path)


def test_other_databases_are_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(ValueError, match="is a SQLite file without times"):
        opened(path)
