"""The experiment of rewriting: its models, its tables, and what is saved."""

import json
from contextlib import redirect_stdout
from functools import partial
from io import StringIO

import numpy as np
import pytest

from experiments.rewrite import __main__ as experiment
from experiments.rewrite import measuring, peers, searching
from experiments.rewrite.measuring import read_model
from experiments.rewrite.models import MODELS
from gopt.fusion import KernelTimes
from gopt.program.program import trace_program
from gopt.rewriting import footprint, roofline
from gopt.workloads.rewriting import transformers

pytestmark = pytest.mark.slow

BARE = partial(transformers.bare_transformer, layers=1, length=5, hidden=8, inner=12, heads=2)


@pytest.mark.parametrize("name", MODELS)
def test_all_models_are_read_as_terms(name):
    terms, (root, *_), _ = read_model(MODELS[name]())
    operators = {terms[k].operator for k in terms.live([root])}
    assert operators & {"matmul", "conv"}
    assert not terms.constant[root]


def test_models_of_onnx_have_the_values_that_onnxruntime_gives_them(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "measured_cost", lambda program, times: roofline())
    settings = peers.Settings(models=("SqueezeNet",), repeats=1, folder=tmp_path)
    with redirect_stdout(StringIO()) as printed:
        peers.main(settings)
    rows = json.loads((tmp_path / "peers.json").read_text())
    by_way = {row["way"]: row for row in rows}
    assert list(by_way) == [
        *("XLA", "XLA, plain", "XLA, folded", "gopt, roofline", "gopt, measured"),
        *("onnxruntime", "onnxsim, onnxruntime"),
    ]
    assert all(row["difference"] < 1e-5 for row in rows)
    assert printed.getvalue().count("SqueezeNet") == 7 == len(set(map(str, rows)))
    with pytest.raises(ValueError, match="expected some of"):
        peers.Settings(models=("GPT",))


@pytest.mark.parametrize("cost", experiment.COSTS)
def test_a_run_measures_and_saves(cost, tmp_path, monkeypatch):
    monkeypatch.setitem(experiment.EVERY, "bare", BARE)
    settings = experiment.Settings(models=("bare",), repeats=1, cost=cost, folder=tmp_path)
    with redirect_stdout(StringIO()):
        experiment.main(settings)
    rows = json.loads((tmp_path / "rewrite.json").read_text())
    assert [row["search"] for row in rows] == list(experiment.SEARCHES)
    for row in rows:
        before, after = row["cost"]
        assert 0 < after <= before
        assert row["refused"].startswith("1 round is too few")
        assert row["difference"] <= row["tolerance"]
        assert row["weights"] == 4 * (4 * 8 * 8 + 2 * 8 * 12)
        assert row["sums"][cost] == before and row["sums"]["roofline"] > 0
        assert ("cached" in row["sums"]) == (cost == "measured")
        assert np.isfinite(row["seconds"]["found"]["process"]).all()
    greedy, backtracking, longer, saturation, forms = (row["cost"][1] for row in rows)
    assert saturation <= backtracking * (1 + 1e-9) <= greedy * (1 + 1e-9)
    assert max(longer, forms) <= backtracking
    for table, count in (("models.md", 5), ("discrepancy.md", 1)):
        assert (tmp_path / table).read_text().count("bare") == count
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert saved["cost"] == cost and saved["versions"]
    assert (tmp_path / "ops.sqlite").exists() == (cost == "measured")


def test_searches_are_measured_each_in_a_process_of_its_own(tmp_path):
    settings = searching.Settings(models=("VGG-19",), searches=("saturation",), folder=tmp_path)
    with redirect_stdout(StringIO()) as printed:
        searching.main(settings)
    assert "nothing is left to be rewritten" in printed.getvalue()
    (row,) = json.loads((tmp_path / "searching.json").read_text())
    before, after = row["cost"]
    assert 0 < after <= before and row["visited"] >= row["terms"] > 60
    assert 0 < row["s"] < 60 and row["bytes"] < 2**30
    (matching,) = json.loads((tmp_path / "matching.json").read_text())
    assert matching["matches"] == 0 < matching["first s"] and matching["again s"] < 60
    assert all("VGG-19" in (tmp_path / f"{t}.md").read_text() for t in ("table", "matching"))
    with pytest.raises(ValueError, match="expected some of"):
        searching.Settings(searches=("luck",))


def test_constants_of_a_model_are_as_cold_as_it_is_large(monkeypatch):
    monkeypatch.setattr(measuring, "measured", lambda times, bytes_between: (times, bytes_between))
    case, times = BARE(), KernelTimes()
    program = trace_program(case.fn, *case.args)
    assert measuring.measured_cost(program, times) == (times, footprint(program))


def test_unknown_names_raise():
    for wrong in ({"models": ("GPT",)}, {"searches": ("luck",)}, {"cost": "guess"}):
        with pytest.raises(ValueError, match="expected some of"):
            experiment.Settings(**wrong)
