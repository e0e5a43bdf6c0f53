"""The experiments, with settings so small that their figures mean nothing."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import common, large, regal, regal_graphs, regal_report, regal_training, workloads
from gopt.checkpoints import Checkpoints, load_weights
from gopt.classical import HEURISTICS
from gopt.graph import Shape, check, is_input
from gopt.sources.jaxpr import trace
from gopt.systems import regal as policies
from gopt.workloads import WORKLOADS

POLICY = policies.Settings(bins=4, width=8, rounds=1, steps=4)
TRAINING = regal_training.Training(
    evaluations=40, graphs=2, samples=3, variants=1, checkpoint_every=2
)
LSTM = {"batch": 2, "hidden": 32, "vocabulary": 50, "layers": 1}
TRAIN = (("rnnlm", {"length": 1, **LSTM}, True), ("rnnlm", {"length": 2, **LSTM}, False))
TEST = (("rnnlm", {"length": 3, **LSTM}, False), ("squeezenet", {"batch": 2, "size": 32}, False))
METHODS = regal.SEARCHES


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs; devices and cache are as the tests have set them up."""
    monkeypatch.setattr(regal_graphs, "TRAIN", TRAIN)
    monkeypatch.setattr(regal_graphs, "TEST", TEST)
    monkeypatch.setattr(regal, "SMALLEST", Shape(192, 192, 256))  # one shape for both
    monkeypatch.setattr(common, "start", lambda: None)


def settings(folder: Path, **changes: Any) -> regal.Settings:
    defaults = {"evaluations": 150, "seeds": 3, "policy": POLICY, "training": TRAINING}
    return regal.Settings(**defaults | changes, folder=folder)


def test_a_run_trains_evaluates_and_saves(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "runs" / "first"
    regal.main(settings(folder, train=True))
    printed = capsys.readouterr().out
    assert "REGAL" in printed and str(folder.name) in printed
    saved = {path.name for path in folder.iterdir()}
    assert saved == {
        *("settings.json", "table.md", "graphs.md", "runs.json", "training.json"),
        *("convergence.png", "gantt.png", "memory.png"),
        *("peak_memory.npz", "checkpoints"),
    }
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000

    found = json.loads((folder / "settings.json").read_text())
    assert found["versions"]["jax"] == jax.__version__ and found["versions"]["python"]
    assert found["policy"] == dataclasses.asdict(POLICY)
    assert found["evaluations"] == 150 and found["folder"] == str(folder)

    weights, sizes = policies.load_policy(
        folder / "peak_memory.npz", objective="peak_memory", devices=2
    )
    assert sizes == POLICY
    _, values = load_weights(folder / "peak_memory.npz")
    assert (
        values["origin"]["policy"]["steps"] == 4
        and values["origin"]["versions"]["jax"] == jax.__version__
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights))
    assert len(json.loads((folder / "training.json").read_text())) == 4

    graphs = json.loads((folder / "runs.json").read_text())
    assert [graph.pop("graph") for graph in graphs] == [
        regal_graphs.name(spec, regal_graphs.build(spec)) for spec in TEST
    ]
    for graph in graphs:
        assert set(graph) == {*METHODS, *HEURISTICS}
        for name in METHODS:
            run = graph[name]
            assert len(run["cost"]) == len(run["history"]) == 3 and run["seconds"] > 0
            for cost, history in zip(run["cost"], run["history"], strict=True):
                assert history == sorted(history, reverse=True) and history[-1] == cost > 0

    table = (folder / "table.md").read_text()
    rows = [[cell.strip() for cell in r.strip("| ").split("|")] for r in table.splitlines()[4:]]
    assert [row[0] for row in rows] == ["best heuristic", *METHODS]
    assert rows[2][1] == "0"
    cost = {m: np.array([np.mean(graph[m]["cost"]) for graph in graphs]) for m in METHODS}
    # The two graphs are of two families.
    gain, error = common.mean_interval(100 * (1 - cost["REGAL"] / cost["BRKGA"]))
    assert rows[5][1] == f"{gain:+.2f} ± {error:.2f}"
    by_graph = (folder / "graphs.md").read_text().splitlines()
    assert len(by_graph) == 4 + len(TEST)

    # The weights that were saved give the same costs.
    again = tmp_path / "again"
    monkeypatch.setattr(regal_graphs, "TEST", TEST[:1])
    monkeypatch.setattr(regal, "draw_schedules", lambda *_: None)
    regal.main(settings(again, weights=folder / "peak_memory.npz"))
    (other,) = json.loads((again / "runs.json").read_text())
    assert all(other[name]["cost"] == graphs[0][name]["cost"] for name in METHODS)
    assert not (again / "checkpoints").exists()


def test_training_and_weights_exclude_each_other(tmp_path):
    with pytest.raises(ValueError, match="weights are given, and train is set"):
        settings(tmp_path, train=True, weights=tmp_path / "policy.npz")


def test_a_budget_that_the_heuristics_exceed_raises(tmp_path):
    settings(tmp_path, evaluations=regal.LEAST)
    with pytest.raises(ValueError, match=r"evaluations is 2: expected \d+ at least"):
        settings(tmp_path, evaluations=2)


def test_graphs_of_a_family_count_as_one():
    means = regal_report.by_family(np.array([1.0, 5.0, 3.0, 7.0]), ["b", "a", "b", "a"])
    np.testing.assert_array_equal(means, [6.0, 2.0])


def test_a_missing_policy_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        regal.main(settings(tmp_path, weights=tmp_path / "nowhere.npz"))


def test_memory_is_exact_where_it_is_the_objective():
    assert regal.machine("peak_memory").synchronous and not regal.machine("makespan").synchronous


# Training.


@cache
def pool() -> regal_training.Pool:
    graphs = [regal_graphs.build(spec) for spec in TRAIN]
    return regal_training.pool(
        graphs, regal.machine("makespan"), objective="makespan", training=TRAINING, seed=1
    )


def train(folder: Path, **changes: Any) -> tuple[Any, list[dict[str, float]]]:
    defaults = {"objective": "makespan", "policy": POLICY, "seed": 1, "training": TRAINING}
    return regal_training.train(changes.pop("pool", pool()), **defaults | changes, folder=folder)


def test_the_pool_has_every_graph_and_its_variants():
    assert len(pool().standard) == len(TRAIN) * (TRAINING.variants + 1)
    assert all(len(leaf) == len(pool().standard) for leaf in jax.tree.leaves(pool()))
    assert (pool().standard > 0).all()
    size = np.asarray(pool().problem.size, np.float64) * np.asarray(pool().problem.unit)[:, None]
    assert (size[0] != size[1]).any() and (size[2] != size[3]).any()
    np.testing.assert_allclose(size[0].sum(), size[1].sum(), rtol=0.3)
    np.testing.assert_array_equal(pool().graphs.senders[2], pool().graphs.senders[3])


def test_interrupted_training_resumes_with_the_same_result(tmp_path, monkeypatch):
    whole, watched = train(tmp_path / "whole")
    assert len(watched) == 4 and all(np.isfinite([*w.values()]).all() for w in watched)

    save = Checkpoints.save
    seen = []

    def killed(self: Checkpoints, step: int, state: Any) -> None:
        if step == 4:
            raise KeyboardInterrupt
        seen.append(state.params)
        save(self, step, state)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "parts")
    (half,) = seen
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (half, whole)), strict=True))
    resumed = train(tmp_path / "parts")
    jax.tree.map(np.testing.assert_array_equal, resumed[0], whole)
    assert resumed[1] == watched
    # What is done is not done again.
    with monkeypatch.context() as patch:
        patch.setattr(policies, "rewards", lambda *_, **__: 1 / 0)
        again = train(tmp_path / "parts")
    jax.tree.map(np.testing.assert_array_equal, again[0], whole)
    assert again[1] == watched

    other = pool()._replace(problem=pool().problem._replace(size=pool().problem.size + 1))
    for changes, name in (
        ({"seed": 2}, "seed = 1: expected 2"),
        ({"objective": "peak_memory"}, "objective = 'makespan': expected 'peak_memory'"),
        ({"policy": dataclasses.replace(POLICY, width=9)}, "policy = .*'width': 9"),
        ({"policy": dataclasses.replace(POLICY, steps=5)}, "policy = .*'steps': 5"),
        ({"training": dataclasses.replace(TRAINING, samples=2)}, "training = .*'samples': 2"),
        ({"pool": other}, "graphs = .*: expected"),
    ):
        with pytest.raises(ValueError, match=f"parts holds a run with {name}"):
            train(tmp_path / "parts", **changes)


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
    with pytest.raises(TypeError, match="object is no JSON value"):
        common.save_json(path, object())
    assert json.loads(path.read_text())["b"] == 3


def test_versions_name_what_figures_depend_on():
    assert {"gopt", "jax", "numpy", "python", "machine"} <= set(common.versions())


# Graphs.


def test_families_of_test_and_training_do_not_overlap(monkeypatch):
    monkeypatch.undo()
    families = [
        {spec[0] for spec in specs}
        for specs in (regal_graphs.TRAIN, regal_graphs.VALIDATION, regal_graphs.TEST)
    ]
    assert all(families) and len(set.union(*families)) == sum(map(len, families))
    for specs in (regal_graphs.TRAIN, regal_graphs.VALIDATION, regal_graphs.TEST):
        assert len(set(map(str, specs))) == len(specs)


def test_noise_changes_sizes_and_costs_and_nothing_else():
    graph = regal_graphs.build(TRAIN[0])
    noisy = regal_graphs.noisy(np.random.default_rng(0), graph, 0.1)
    check(noisy)
    changed = {f for f, a, b in zip(graph._fields, graph, noisy, strict=True) if (a != b).any()}
    assert {"size"} <= changed <= {"size", "flops", "bytes", "workspace"}
    ratio = np.log(noisy.size[graph.size > 1000] / graph.size[graph.size > 1000])
    assert 0.05 < ratio.std() < 0.15


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
