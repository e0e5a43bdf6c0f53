"""The experiment on training steps within budgets."""

import dataclasses
import json
import sys
from functools import partial

import jax
import pytest

from experiments.harness import command_line
from experiments.memory import agreement, batches
from experiments.memory.__main__ import Settings, main
from experiments.memory.cases import STEPS, checkpointed, plain
from experiments.memory.fronts import summary
from experiments.memory.solvers import SOLVERS
from experiments.memory.transformer import transformer_step

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", STEPS)
def test_all_forms_of_a_step_have_one_signature_and_its_values(name):
    if name == "equinox":
        pytest.importorskip("equinox")
    step, forms = plain(name), checkpointed(name)
    expected = jax.eval_shape(step.fn, *step.args)
    assert len(forms) in (3, 6)
    for form in forms.values():
        assert jax.tree.structure(form.args) == jax.tree.structure(step.args)
        jaxpr, shapes = jax.make_jaxpr(form.fn, return_shape=True)(*form.args)
        assert shapes == expected
        text = str(jaxpr)
        assert "checkpoint" in text or "remat" in text


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(command_line, "start", lambda *_: None)
    small = partial(transformer_step, layers=2, width=64, batch=8, length=64)
    monkeypatch.setitem(STEPS, "transformer-4", small)
    return Settings(
        steps=("transformer-4",), budgets=(0.5,), evaluations=500, repeats=1, folder=tmp_path
    )


def test_a_step_is_measured_and_kept(settings, capsys):
    main(settings)
    main(dataclasses.replace(settings))  # from the file
    assert "transformer-4" in capsys.readouterr().out
    folder = settings.folder / "budgets"
    text = (folder / "memory.md").read_text()
    assert all(name in text for name in ("XLA", "blocks, dots", "gopt, 50 %", "DTR, 50 %"))
    assert "| 1/1 |" in (folder / "summary.md").read_text()
    assert (folder / "transformer-4.png").stat().st_size > 0


def test_solvers_stand_beside_gopt(settings, monkeypatch):
    pytest.importorskip("ortools")
    for name in ("Checkmate", "Checkmate, rounded"):  # their rows of n² numbers take long to make
        monkeypatch.setitem(SOLVERS, name, SOLVERS["MOCCASIN"])
    main(
        dataclasses.replace(settings, table="solvers", seconds=1, budgets=(0.95,), evaluations=2000)
    )
    (row,) = json.loads((settings.folder / "solvers" / "solvers.json").read_text())
    assert row["bound"] >= 1
    assert all(row[name] is None or row[name] >= row["bound"] - 1e-6 for name in ("gopt", *SOLVERS))


def test_planned_bytes_agree_with_xla(settings, monkeypatch):
    monkeypatch.setattr(agreement, "PLANS", 3)
    main(dataclasses.replace(settings, table="agreement"))
    (row,) = json.loads((settings.folder / "agreement" / "agreement.json").read_text())
    assert len(row["planned"]) == len(row["needed"]) == 3
    assert row["correlation"] > 0.9 and row["error"] < 0.03


def test_larger_batches_fit(settings, monkeypatch):
    monkeypatch.setattr(batches, "FACTORS", (1.0, 1.5))
    main(dataclasses.replace(settings, table="batches", steps=("transformer-4", "unet")))
    (row,) = json.loads((settings.folder / "batches" / "batches.json").read_text())  # of one step
    assert row["XLA"] == 8 and row["gopt"] == 12
    assert 8 <= row["policies"] <= row["gopt"]


def test_the_summary_counts_budgets_and_policies():
    rows = [
        {"method": "XLA", "budget": None, "bytes": 120, "flop": 10},
        {"method": "XLA, memory scheduler", "budget": None, "bytes": 100, "flop": 10},
        {"method": "loss, nothing", "budget": None, "bytes": 50, "flop": 13},
        {"method": "loss, dots", "budget": None, "bytes": 60, "flop": 13},  # beaten
        {"method": "blocks, dots", "budget": None, "bytes": 80, "flop": 10.5},
        {"method": "gopt, 50 %", "budget": 0.5, "limit": 50, "bytes": 51, "flop": 12},
        {"method": "gopt, 35 %", "budget": 0.35, "limit": 35, "bytes": 35, "flop": 13.3},
        {"method": "gopt, 25 %", "budget": 0.25, "limit": 25, "bytes": 25, "flop": 16},
        {"method": "gopt, 80 % of x", "budget": 0.64, "limit": 64, "bytes": 64, "flop": 10.9},
        {"method": "gopt, 80 % of y", "budget": 0.24, "limit": 24, "bytes": 23, "flop": 17},
        {"method": "gopt, 80 % of z", "budget": 0.16, "limit": 16, "bytes": 20, "flop": 18},
        {"method": "DTR, 25 %", "budget": 0.25, "limit": 25, "bytes": 10, "flop": 10},
    ]
    for k, row in enumerate(rows):
        row["process ratio"], row["wall ratio"] = [k, k, k], [2 * k, 2 * k, 2 * k]
    (row,) = summary([{"step": "x", **row} for row in rows])
    assert row == {
        "step": "x",
        "bytes": "100 B",
        "policy": 0.5,
        "gopt": 0.23,
        "kept": "2/3",
        "beaten": "1/2",
        "process 50 %": None,
        "wall 50 %": None,
        "process 25 %": [7, 7, 7],
        "wall 25 %": [14, 14, 14],
    }


def test_a_lower_budget_of_pytorch_saves_less_and_computes_more(settings):
    pytest.importorskip("torch")
    main(dataclasses.replace(settings, table="pytorch", budgets=(0.5, 0.25)))
    text = (settings.folder / "pytorch" / "pytorch.json").read_text()
    rows = json.loads(text)
    assert [row["budget"] for row in rows] == [1, 0.5, 0.25]
    saved, flop = ([row[key] for row in rows] for key in ("saved", "flop"))
    assert saved == sorted(saved, reverse=True) and saved[-1] <= 0.3 * saved[0]
    assert flop == sorted(flop) and flop[-1] > flop[0]


def test_without_pytorch_a_message_names_the_extra(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"gopt-jax\[torch\]"):
        main(dataclasses.replace(settings, table="pytorch"))
