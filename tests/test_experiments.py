"""What the experiments share, and the short ones."""

import json
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import apply, common, large, workloads
from gopt.graph import is_input
from gopt.sources.jaxpr import trace
from gopt.workloads import WORKLOADS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices and cache are as the tests have set them up."""
    monkeypatch.setattr(common, "start", lambda: None)


# What the experiments share.


def test_the_interval_is_that_of_a_t_test():
    values = np.random.default_rng(0).normal(3, 2, 7)
    mean, half = common.mean_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose([mean - half, mean + half], [expected.low, expected.high])
    assert mean == pytest.approx(values.mean())
    assert common.mean_interval([5, 5, 5]) == (5, 0)
    mean, half = common.mean_interval([4.0])
    assert mean == 4 and np.isnan(half)


def test_tables_in_markdown():
    assert common.markdown(("name", "x"), [("a", 1), ("b", "+2.0")]) == (
        "| name | x |\n| --- | ---: |\n| a | 1 |\n| b | +2.0 |\n"
    )


def test_a_table_is_printed_and_saved(tmp_path, capsys):
    common.show("Some title", ("name", "x"), [("a", 1)], tmp_path / "deep" / "table.md")
    assert "Some title" in capsys.readouterr().out
    text = (tmp_path / "deep" / "table.md").read_text()
    assert text == "Some title\n\n| name | x |\n| --- | ---: |\n| a | 1 |\n"


def test_figures_are_json_values(tmp_path):
    path = tmp_path / "a.json"
    common.save_json(path, {"a": np.float32([1, 2]), "b": jnp.int32(3), "c": Path("x")})
    assert json.loads(path.read_text()) == {"a": [1, 2], "b": 3, "c": "x"}
    common.save_json(path, {"a": np.float32([[1, np.inf], [np.nan, 2]]), "b": np.float32(np.inf)})
    assert json.loads(path.read_text()) == {"a": [[1, None], [None, 2]], "b": None}
    common.save_json(path, {"b": 3})
    with pytest.raises(TypeError, match="object is no JSON value"):
        common.save_json(path, object())
    assert json.loads(path.read_text())["b"] == 3


def test_versions_name_what_figures_depend_on():
    assert {"gopt", "jax", "numpy", "python", "machine"} <= set(common.versions())


def test_figures_tell_the_commit_of_the_code(tmp_path, monkeypatch):
    def git(*command: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    monkeypatch.setattr(common, "__file__", str(tmp_path / "common.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert common.versions()["revision"] == "unknown"
    git("init")
    (tmp_path / "common.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    assert common.versions()["revision"] == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "common.py").write_text("2")
    assert common.versions()["revision"].endswith("-dirty")


# Workloads.


def test_the_table_of_workloads(tmp_path, monkeypatch, capsys):
    small = {name: WORKLOADS[name] for name in ("rnnlm", "squeezenet")}
    monkeypatch.setattr(
        workloads,
        "WORKLOADS",
        {
            "rnnlm": lambda: small["rnnlm"](batch=2, length=1, hidden=8, vocabulary=10),
            "squeezenet": lambda: small["squeezenet"](batch=1, size=32),
        },
    )
    workloads.main(workloads.Settings(folder=tmp_path))
    assert "rnnlm" in capsys.readouterr().out
    lines = (tmp_path / "table.md").read_text().splitlines()[4:]
    rows = {
        cells[0]: cells[1:] for cells in ([c.strip() for c in r[2:-2].split("|")] for r in lines)
    }
    assert list(rows) == [f"{w} {m}" for w in small for m in ("forward", "step")]
    fn, args = small["squeezenet"](batch=1, size=32).forward()
    graph = trace(fn, *args).graph
    parameters, ops, inputs, tensors, uses, flop = rows["squeezenet forward"]
    assert parameters == "1.24"  # millions, as published by torchvision
    assert [int(ops), int(tensors), int(uses)] == [int(count) for count in graph[-3:]]
    assert int(inputs) == int(is_input(graph).sum()) > 0
    assert float(flop) == pytest.approx(graph.flops.sum() / 1e9, abs=0.01)
    assert int(rows["squeezenet step"][0 + 1]) > int(ops)
    assert json.loads((tmp_path / "settings.json").read_text())["versions"]


def test_large_graphs_are_measured_stage_by_stage(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(large, "apart", large.run)
    monkeypatch.setattr(large, "FAMILIES", {"layered": large.FAMILIES["layered"]})
    large.main(
        large.Settings(
            ops=30, candidates=2, population=10, evaluations=20, samples=2, folder=tmp_path
        )
    )
    assert "gradient step" in capsys.readouterr().out
    found = json.loads((tmp_path / "large.json").read_text())
    assert [record["stage"] for record in found] == list(large.STAGES)
    for record in found:
        assert record["running"] > 0 and record["peak"] > 2**20
    assert {path.name for path in tmp_path.iterdir()} == {
        *("settings.json", "large.json", "table.md"),
    }


def test_a_stage_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.undo()  # what is patched cannot be sent to a process
    found = large.apart("prepare", "layered", large.Settings(ops=30))
    assert found["graph"] == "layered" and found["running"] > 0


def test_orders_are_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(apply, "NODES", 8)
    settings = apply.Settings(
        models=("dlrm forward",), wirings=2, evaluations=20, confirm=1, repeats=1, folder=tmp_path
    )
    monkeypatch.setattr(apply, "model", lambda name: apply.wired(7))  # tables of 2 GiB otherwise
    apply.main(settings)
    found = json.loads((tmp_path / "apply.json").read_text())
    assert [row["name"] for row in found] == ["wired 1000", "wired 1001", "dlrm forward"]
    assert all(0 < row["found"] < 1.1 * row["default"] for row in found)
    assert all(0.9 < row["predicted"] / row["found"] < 1.1 for row in found)
    assert all(row["default_seconds"] > 0 for row in found)
    assert "2 wired networks" in (tmp_path / "table.md").read_text()


def test_a_model_that_is_not_known_is_named(tmp_path):
    with pytest.raises(ValueError, match="models has 'nothing'"):
        apply.main(apply.Settings(models=("nothing",), wirings=0, folder=tmp_path))


def test_each_model_of_the_table_can_be_made():
    for name in apply.MODELS:
        case = apply.model(name)
        assert callable(case.fn)
        assert case.donated == ((0, 1) if name.endswith("step") else ())
