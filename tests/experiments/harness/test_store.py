"""Rows of tables: what is done is kept, and nothing of other settings is taken for it."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments.harness.command_line import UsageError
from experiments.harness.store import Store, collect, described
from tests.measure.row_files import stored_rows


@dataclasses.dataclass(frozen=True)
class Settings:
    models: tuple[str, ...] = ("a",)
    repeats: int = 3
    folder: Path = Path("somewhere")


def test_rows_are_made_once_and_come_back_as_they_are_read(tmp_path, monkeypatch):
    made = []

    def make():
        made.append(1)
        return {"times": np.array([1.0, 2.0]), "ratio": (1.0, 0.0, float("inf"))}

    rows = Store(tmp_path / "rows.sqlite", described(Settings(), "models"))
    expected = {"times": [1.0, 2.0], "ratio": [1.0, 0.0, float("inf")]}
    assert rows.row("a, b", make) == expected
    again = Store(
        tmp_path / "rows.sqlite", described(Settings(models=("b",), folder=tmp_path), "models")
    )
    assert again.row("a, b", make) == expected and made == [1]
    with pytest.raises(
        ValueError, match=r"rows\.sqlite has rows with repeats = 3, expected 4: use another"
    ):
        Store(tmp_path / "rows.sqlite", described(Settings(repeats=4), "models"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.raises(UsageError, match=r"rows\.sqlite has rows with conditions"):
        Store(tmp_path / "rows.sqlite", described(Settings(), "models"))


def test_what_fails_leaves_nothing_behind(tmp_path):
    rows = Store(tmp_path / "rows.sqlite", described(Settings()))
    with pytest.raises(ZeroDivisionError):
        rows.row("a", lambda: 1 / 0)
    with pytest.raises(TypeError, match="no JSON value"):
        rows.row("a", lambda: {"x": object()})
    assert stored_rows(tmp_path / "rows.sqlite") == {}


def test_a_table_goes_on_with_the_rows_that_are_missing(tmp_path):
    made = []

    def make(name, rows=1):
        made.append(name)
        if name == "bad" and made.count("bad") == 1:
            raise KeyboardInterrupt
        row = {"name": name, "times": np.arange(2.0)}
        return row if rows == 1 else [row] * rows

    rows = {"a": partial(make, "a"), "b/2": partial(make, "b", 2), "bad": partial(make, "bad")}
    settings = Settings(folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        collect(settings, "all.json", rows, "models")
    assert [row["name"] for row in json.loads((tmp_path / "all.json").read_text())] == list("abb")
    other = Settings(models=("b",), folder=tmp_path)
    found = collect(other, "all.json", rows, "models")
    assert [row["name"] for row in found] == ["a", "b", "b", "bad"]
    assert found[0]["times"] == [0.0, 1.0] and made == ["a", "b", "bad", "bad"]
    assert json.loads((tmp_path / "settings.json").read_text())["models"] == ["b"]
    with pytest.raises(ValueError, match="repeats = 3, expected 4"):
        collect(Settings(repeats=4, folder=tmp_path), "all.json", rows, "models")


def test_rows_of_version_0_1_and_other_files_are_refused(tmp_path):
    (tmp_path / "rows").mkdir()
    with pytest.raises(UsageError, match=r"rows has rows of version 0\.1: use another folder"):
        Store(tmp_path / "rows.sqlite", {})
    (tmp_path / "GO.npz").touch()
    with pytest.raises(UsageError, match=r"GO\.npz has rows of version 0\.1: use another folder"):
        Store(tmp_path / "GO.sqlite", {})
    (tmp_path / "text.sqlite").write_text("no rows")
    with pytest.raises(
        UsageError, match=r"text\.sqlite is not a SQLite file: expected a file of rows"
    ):
        Store(tmp_path / "text.sqlite", {})
