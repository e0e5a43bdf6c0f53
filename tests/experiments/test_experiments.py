"""What the experiments share, and the short ones."""

import functools
import json
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import apply, large, prediction, wired
from experiments.harness import cases, command_line, statistics, store, tables
from gopt.graph.tracing import trace
from gopt.learning.graphs import to_graphs_tuple
from gopt.sources.synthetic import layered
from gopt.systems import go, regal
from gopt.workloads.recommendation.towers import towers

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices and cache are as the tests have set them up."""
    monkeypatch.setattr(command_line, "start", lambda: None)


# What the experiments share.


def test_the_interval_is_that_of_a_t_test():
    values = np.random.default_rng(0).normal(3, 2, 7)
    mean, half = statistics.mean_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose([mean - half, mean + half], [expected.low, expected.high])
    assert mean == pytest.approx(values.mean())
    assert statistics.mean_interval([5, 5, 5]) == (5, 0)
    mean, half = statistics.mean_interval([4.0])
    assert mean == 4 and np.isnan(half)


def test_tables_in_markdown():
    assert tables.markdown(("name", "x"), [("a", 1), ("b", "+2.0")]) == (
        "| name | x |\n| --- | ---: |\n| a | 1 |\n| b | +2.0 |\n"
    )


def test_a_table_is_printed_and_saved(tmp_path, capsys):
    tables.show("Some title", ("name", "x"), [("a", 1)], tmp_path / "deep" / "table.md")
    assert "Some title" in capsys.readouterr().out
    text = (tmp_path / "deep" / "table.md").read_text()
    assert text == "Some title\n\n| name | x |\n| --- | ---: |\n| a | 1 |\n"


def test_figures_are_json_values(tmp_path):
    path = tmp_path / "a.json"
    store.save_json(path, {"a": np.float32([1, 2]), "b": jnp.int32(3), "c": Path("x")})
    assert json.loads(path.read_text()) == {"a": [1, 2], "b": 3, "c": "x"}
    store.save_json(path, {"a": np.float32([[1, np.inf], [np.nan, 2]]), "b": np.float32(np.inf)})
    assert json.loads(path.read_text()) == {"a": [[1, None], [None, 2]], "b": None}
    store.save_json(path, {"b": 3})
    with pytest.raises(TypeError, match="object is no JSON value"):
        store.save_json(path, object())
    assert json.loads(path.read_text())["b"] == 3


def test_versions_name_what_figures_depend_on():
    assert {"gopt-jax", "jax", "numpy", "python", "machine"} <= set(store.versions())


def test_figures_tell_the_commit_of_the_code(tmp_path, monkeypatch):
    def git(*command: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    monkeypatch.setattr(store, "__file__", str(tmp_path / "store.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert store.versions()["revision"] == "unknown"
    git("init")
    (tmp_path / "store.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    assert store.versions()["revision"] == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "store.py").write_text("2")
    assert store.versions()["revision"].endswith("-dirty")


# Large graphs.


def test_large_graphs_are_measured_stage_by_stage(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(large, "apart", lambda call, *args, cached: call(*args))
    monkeypatch.setattr(large, "FAMILIES", {"layered": large.FAMILIES["layered"]})
    sizes = dict(width=8, rounds=1, task_layers=0, heads=2, levels=(8,))
    monkeypatch.setattr(large.go, "Settings", functools.partial(go.Settings, **sizes))
    few, read = (
        regal.Settings(width=8, rounds=1),
        regal.on_devices(to_graphs_tuple(layered(0, 30)), 2),
    )
    learned = regal.init(jax.random.key(0), read, settings=few), few
    monkeypatch.setattr(large.regal, "load", lambda *_, **__: learned)
    small = {"population": 10, "evaluations": 10, "samples": 2}
    large.main(large.Settings(ops=(30,), **small, folder=tmp_path))
    assert "gradient step" in capsys.readouterr().out
    found = json.loads((tmp_path / "large.json").read_text())
    assert [record["stage"] for record in found] == list(large.STAGES)
    some = large.Settings(
        stages=("all heuristics", "features"), ops=(30, 40), **small, folder=tmp_path
    )
    large.main(some)
    again = json.loads((tmp_path / "large.json").read_text())
    measured = [(record["stage"], record["ops"]) for record in again]
    assert measured == [
        ("all heuristics", 30),
        ("all heuristics", 40),
        ("features", 30),
        ("features", 40),
    ]
    found += again
    for record in found:
        assert record["running"] > 0 and record["peak"] > 2**20
    assert {path.name for path in tmp_path.iterdir()} == {
        *("settings.json", "large.json", "table.md", "rows.sqlite"),
    }


def test_a_stage_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="stages has 'GO': expected some of all heuristics"):
        large.main(large.Settings(stages=("GO",)))


def test_a_stage_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.undo()  # what is patched cannot be sent to a process
    found = command_line.apart(large.run, "features", "layered", 30, large.Settings(), cached=False)
    assert found["graph"] == "layered" and found["running"] > 0


# Orders of kernels.


@pytest.fixture
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wired, "NODES", 8)


@pytest.mark.usefixtures("small_networks")
def test_orders_are_measured(tmp_path, capsys, monkeypatch):
    # Tables of 2 GiB otherwise.
    monkeypatch.setitem(apply.MODELS, "dlrm forward", lambda: wired.plain(7))
    settings = apply.Settings(
        models=("dlrm forward",), wirings=1, evaluations=20, confirm=1, repeats=1, folder=tmp_path
    )
    apply.main(settings)
    found = json.loads((tmp_path / "apply.json").read_text())
    names = ["plain 1000", "convolutional 2000", "dlrm forward"]
    assert [row["name"] for row in found] == names
    assert all(0 < row["found"] < 1.1 * row["default"] for row in found)
    assert all(0.8 < row["predicted"] / row["found"] < 1.2 for row in found)  # a tensor of six
    assert all(row["default_seconds"] > 0 for row in found)
    text = (tmp_path / "table.md").read_text()
    assert "1 wired, plain" in text and "1 wired, convolutional" in text
    assert (tmp_path / "apply.png").stat().st_size > 0


def test_means_of_wired_networks_are_geometric(tmp_path, capsys):
    row = apply.Measured("a", "wired, plain", 100, 50, 80, 80, "XLA", 1.0, 2.0, 0.0)
    other = row._replace(default=400, found=80, chosen="searched")
    apply.report([row, other], tmp_path)
    (line,) = (tmp_path / "table.md").read_text().splitlines()[4:]
    cells = [cell.strip() for cell in line[2:-2].split("|")]
    assert cells[0] == "2 wired, plain"
    assert cells[3:6] == ["-60.0", "-60.0", "gopt 1, XLA 1"]
    assert cells[-2:] == ["+100.0", "0e+00"]


def test_a_model_that_is_not_known_is_named(tmp_path):
    with pytest.raises(ValueError, match="models has 'nothing'"):
        apply.main(apply.Settings(models=("nothing",), wirings=0, folder=tmp_path))
    with pytest.raises(ValueError, match="models has 'nothing'"):
        prediction.main(prediction.Settings(models=("nothing",), folder=tmp_path))


def test_each_model_of_the_table_can_be_made():
    for name, make in (cases.MODELS | prediction.MODELS).items():
        case = make()
        assert callable(case.fn)
        assert case.donated == ((0, 1) if name.endswith("step") else ())


def test_towers_rank_impressions():
    fn, args, _ = towers(batch=3, groups=3, width=4)
    rng = np.random.default_rng(0)
    draw = functools.partial(rng.normal, 0, 0.1)
    scores = fn(*jax.tree.map(lambda s: jnp.asarray(draw(s.shape), s.dtype), args))
    assert scores.shape == (3,) and ((scores > 0) & (scores < 1)).all()


def test_predictions_are_compared_with_what_xla_plans(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(wired, "NODES", 12)
    monkeypatch.setitem(prediction.MODELS, "small", lambda: wired.plain(7))
    prediction.main(prediction.Settings(models=("small",), orders=6, folder=tmp_path))
    (row,) = json.loads((tmp_path / "prediction.json").read_text())
    assert row["share"] == pytest.approx(np.linspace(0, 1, 6))
    ratios = np.array(row["kernels"]) / row["measured"]
    assert (ratios > 0.8).all() and (ratios < 1.2).all()
    assert "small" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "settings.json").read_text())["versions"]


def test_agreement_is_of_ranks_and_ties_are_what_nobody_plans_for():
    measured = (10_000, 10_001, 20_000, 30_000)
    predicted = (11_000, 11_000, 22_000, 33_000)
    correlation, error = prediction.agreement(measured, predicted)
    assert correlation == pytest.approx(1) and error == pytest.approx(10)
    assert np.isnan(prediction.agreement(measured, (50_000,) * 4)[0])


def test_equations_make_tensors_of_their_own():
    def fn(x):
        return jnp.sin(jnp.cos(x)), x.sum()

    size = 4 * 1000
    graph = trace(fn, jax.ShapeDtypeStruct((1000,), jnp.float32)).graph
    assert prediction.peak_beside_inputs(graph) == 2 * size
