"""Rows of tables: what is done is kept, and nothing of other settings is taken for it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from experiments.rows import Rows, about


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

    rows = Rows(tmp_path / "rows", about(Settings(), "models"))
    assert rows.find("a, b") is None
    expected = {"times": [1.0, 2.0], "ratio": [1.0, 0.0, float("inf")]}
    assert rows.of("a, b", make) == expected == rows.find("a, b")
    again = Rows(tmp_path / "rows", about(Settings(models=("b",), folder=tmp_path), "models"))
    assert again.of("a, b", make) == expected and made == [1]
    with pytest.raises(ValueError, match=r"a, b\.json is of other settings"):
        Rows(tmp_path / "rows", about(Settings(repeats=4), "models"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.raises(ValueError, match=r"a, b\.json is of other settings or conditions"):
        Rows(tmp_path / "rows", about(Settings(), "models"))


def test_what_fails_leaves_nothing_behind(tmp_path):
    rows = Rows(tmp_path, about(Settings()))
    with pytest.raises(ZeroDivisionError):
        rows.of("a", lambda: 1 / 0)
    with pytest.raises(TypeError, match="no JSON value"):
        rows.keep("a", {"x": object()})
    assert list(tmp_path.iterdir()) == []
