"""Figures in files that grow; most of it is tested where times of kernels are kept."""

import pytest

from gopt.measure.cache import Ledger


def rows(ledger):
    return [row for _, row in ledger.rows()]


def test_rows_of_others_are_read_once_as_they_come(tmp_path):
    path = tmp_path / "folder" / "figures.jsonl"
    ours = Ledger(path, {"version": 1}, "figures")
    theirs = Ledger(path, {"version": 1}, "figures")
    assert rows(ours) == []
    ours.append({"a": 1})
    theirs.append({"b": 2})
    assert rows(ours) == rows(theirs) == [{"a": 1}, {"b": 2}]
    theirs.append({"c": 3})
    assert rows(ours) == [{"c": 3}] and rows(ours) == []
    assert rows(Ledger(path, {"version": 1}, "figures")) == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_a_row_that_is_being_written_is_left_for_later(tmp_path):
    path = tmp_path / "figures.jsonl"
    ledger = Ledger(path, {"version": 1}, "figures")
    with path.open("a") as file:
        file.write('{"a": ')
        file.flush()
        assert rows(ledger) == []
        file.write("1}\n")
    assert rows(ledger) == [{"a": 1}]


def test_half_a_row_of_a_run_that_was_stopped_is_taken_away(tmp_path):
    path = tmp_path / "figures.jsonl"
    Ledger(path, {"version": 1}, "figures").append({"a": 1})
    with path.open("a") as file:
        file.write('{"b": ')
    ledger = Ledger(path, {"version": 1}, "figures")
    ledger.append({"c": 3})
    assert rows(ledger) == [{"a": 1}, {"c": 3}]


def test_what_is_no_row_is_named_by_its_line(tmp_path):
    path = tmp_path / "figures.jsonl"
    ledger = Ledger(path, {"version": 1}, "figures")
    path.write_text(path.read_text() + '{"a": 1}\n{"b"}\n')
    with pytest.raises(ValueError, match="line 3: not a line of JSON"):
        rows(ledger)
    with pytest.raises(ValueError, match="has figures with version = 1, expected 2"):
        Ledger(path, {"version": 2}, "figures")
    with pytest.raises(ValueError, match="is a folder"):
        Ledger(tmp_path, {"version": 1}, "figures")
