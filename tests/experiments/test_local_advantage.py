"""The experiment on learned local advantage functions, with settings so small that it is quick."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.harness import command_line
from experiments.harness.graphs import Spec
from experiments.local_advantage import __main__ as experiment
from experiments.local_advantage import ablation, graphs, methods, real, report, training
from gopt.cost.fusion.cost import fusion_cost
from gopt.learning.checkpoints import Checkpoints
from gopt.systems import local_advantage
from gopt.workloads.cases import forward

pytestmark = pytest.mark.slow

LSTM = {"batch": 2, "hidden": 32, "vocabulary": 50, "layers": 1}
TRAIN = (Spec("rnnlm", {"length": 1, **LSTM}, True), Spec("rnnlm", {"length": 2, **LSTM}, False))
TEST = (
    Spec("rnnlm", {"length": 3, **LSTM}, False),
    Spec("squeezenet", {"batch": 2, "size": 32}, False),
)
ROWS = (192, 384, 2048)  # of ops, accesses and visits: one shape for all graphs
NETWORK = local_advantage.Settings(width=8, rounds=1, steps=6, configurations=2)
SAMPLING = local_advantage.Sampling(chains=2, records=2)
cost_of = jax.jit(fusion_cost)


@pytest.fixture(scope="module", autouse=True)
def small():
    """Small graphs; devices, cache and compiled programs are as the tests have set them up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(graphs.SPLITS, "train", TRAIN)
        patch.setitem(graphs.SPLITS, "test", TEST)
        patch.setattr(ablation, "PATHS", 20)
        patch.setattr(ablation, "LENGTHS", (1, 4))
        patch.setattr("gopt.cost.fusion.problem.fusion_bucket", lambda *_: ROWS)
        patch.setattr(command_line, "start", lambda: None)
        patch.setattr(jax, "clear_caches", lambda: None)
        yield


@pytest.fixture
def few(monkeypatch):
    """One graph each, and random search alone beside what is learned: less to compile."""
    all_of_them = methods.unguided
    monkeypatch.setattr(methods, "unguided", lambda e: {"random": all_of_them(e)["random"]})
    monkeypatch.setitem(graphs.SPLITS, "train", TRAIN[:1])
    monkeypatch.setitem(graphs.SPLITS, "test", TEST[:1])


def settings(folder, **changes):
    defaults = {"evaluations": 130, "seeds": 2, "network": NETWORK, "sampling": SAMPLING}
    return experiment.Settings(**defaults | changes, folder=folder)


@pytest.fixture(scope="module")
def first(small, tmp_path_factory):
    """A run that trains, and what it printed is of no matter."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    experiment.main(settings(folder, train=True))
    return folder


def test_a_run_trains_searches_and_saves(first):
    saved = {path.name for path in first.iterdir()}
    assert saved == {
        *("settings.json", "runs.json", "improvement.md", "evaluations.md", "seconds.md"),
        *("default.png", "random.png", "network.npz", "checkpoints", "data", "rows.sqlite"),
    }
    for path in first.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
    found = json.loads((first / "settings.json").read_text())
    assert found["versions"]["jax"] == jax.__version__ and found["evaluations"] == 130
    _, sizes = local_advantage.load(first / "network.npz")
    assert sizes == NETWORK
    rows = json.loads((first / "runs.json").read_text())
    assert [row["start"] for row in rows] == ["default", "random"] * 2
    for row in rows:
        assert set(row["found"]) == {"guided", *methods.unguided(130)}
        for found in row["found"].values():
            history = np.array(found["history"])  # shares of the default's cost
            assert history.shape == (2, len(found["evaluations"])) and len(history) <= 100
            assert (np.diff(history, axis=1) <= 0).all()
            if row["start"] == "default":
                assert (history[:, 0] == 1).all()
            assert history.min() >= 0.9 * row["known"]["priority fusion"]


def test_records_are_kept_and_those_of_other_settings_refused(tmp_path, monkeypatch):
    made = training.sampled(settings(tmp_path), "train")
    monkeypatch.setattr(local_advantage, "sample", lambda *_, **__: pytest.fail("sampled again"))
    again = training.sampled(settings(tmp_path), "train")
    for (_, a), (_, b) in zip(made, again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)
    other = dataclasses.replace(SAMPLING, records=3)
    with pytest.raises(ValueError, match="has rows with records"):
        training.sampled(settings(tmp_path, sampling=other), "train")


def test_interrupted_training_goes_on_as_if_it_had_not_been(first, tmp_path, monkeypatch):
    shutil.copytree(first / "data", tmp_path / "data")
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 2)
    whole, _ = local_advantage.load(first / "network.npz")
    history = Path("checkpoints/network/history.json")
    losses = json.loads((first / history).read_text())
    save = Checkpoints.save

    def stops(self, step, state):
        if step == 4:
            raise KeyboardInterrupt
        save(self, step, state)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", stops)
        with pytest.raises(KeyboardInterrupt):
            training.trained(settings(tmp_path))
    resumed, _ = training.trained(settings(tmp_path))
    others = json.loads((tmp_path / history).read_text())
    assert len(losses) == 6 and losses == others
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)


def test_variants_differ_in_what_is_learned_and_how_samples_are_drawn():
    found = [(v.is_signed, v.target, v.largest) for v in ablation.variants(NETWORK).values()]
    assert len(set(found)) == len(found) == 5
    assert all(
        dataclasses.replace(v, is_signed=True, target="log", largest=0.0) == NETWORK
        for v in ablation.variants(NETWORK).values()
    )


def test_the_ablation_ranks_and_searches_with_variants(first, tmp_path, monkeypatch, few):
    shutil.copytree(first / "data", tmp_path / "data")
    every = ablation.variants(NETWORK)
    # That of the paper is "absolute" and "prioritised" at once.
    chosen = {name: every[name] for name in ("guided", "network of the paper")}
    monkeypatch.setattr(ablation, "variants", lambda network: chosen)
    experiment.main(settings(tmp_path, table="ablation"))
    for name in ("ranks.md", "paths.md", "improvement.md"):
        assert (tmp_path / name).stat().st_size > 200
    header = (tmp_path / "improvement.md").read_text().splitlines()[2]
    names = (*chosen, "flips only", "as in the paper")
    assert all(name in header for name in names)


def test_other_routes_are_trained_and_compared(first, tmp_path, few):
    shutil.copytree(first / "data", tmp_path / "data")
    network = dataclasses.replace(NETWORK, steps=3)
    weights = first / "network.npz"
    experiment.main(settings(tmp_path, table="routes", network=network, weights=weights))
    header = (tmp_path / "improvement.md").read_text().splitlines()[2]
    for name in ("guided", "cost model", "policy, zero-shot", "policy, fine-tuned", "random"):
        assert f"| {name} |" in header
    for name in ("cost_model", "policy"):
        steps = json.loads((tmp_path / "checkpoints" / name / "history.json").read_text())
        assert len(steps) == 3 and np.isfinite([list(step.values()) for step in steps]).all()


@pytest.mark.parametrize("target", ["log", "raw"])
def test_predictions_along_paths_are_in_ticks(target, first):
    """What a network predicts is added up in the unit of costs, whatever it has learned."""
    case = graphs.case(TEST[0])
    sizes = dataclasses.replace(NETWORK, target=target)
    params, _ = local_advantage.load(first / "network.npz")
    start, paths = case.found[graphs.DEFAULT], np.flatnonzero(case.problem.configurable)[None, :1]
    along = jax.jit(ablation._along, static_argnames="settings")
    once, true, _, _ = along(params, case.problem, case.graphs, start, paths, settings=sizes)
    predict = jax.jit(local_advantage.predict, static_argnames="settings")
    said = predict(params, case.graphs, start[None].astype(np.int32), settings=sizes)[0]
    true, said = np.asarray(true), np.asarray(said)
    sigma = np.median(np.abs(true)[true != 0])
    size = np.expm1(np.abs(said)) if target == "log" else np.abs(said)
    expected = np.where(start, -1, 1) * np.sign(said) * size * sigma
    np.testing.assert_allclose(once, expected, rtol=1e-4, atol=1e-4 * sigma)


def test_sums_of_single_flips_are_exact(first):
    """True advantages predict paths of one flip: their rank correlation is 1."""
    case = graphs.case(TEST[0])
    params, _ = local_advantage.load(first / "network.npz")
    found = ablation._paths(params, NETWORK, case, 0)
    assert found["true ones at the start"][0] == pytest.approx(1)
    assert set(map(len, found.values())) == {len(ablation.LENGTHS)}


def test_the_best_flips_save_all_that_can_be_saved():
    saved = np.array([[5.0, -1.0, 3.0, -2.0] * 25])
    assert ablation._best(saved, saved) == 100
    assert ablation._best(-saved, saved) == -40  # harm counts


@pytest.mark.parametrize("start", ["default", "random"])
def test_all_searches_start_from_what_they_are_given(start, first):
    case = graphs.case(TEST[0])
    key = jax.random.fold_in(jax.random.key(0), 0)  # of the first graph
    given = methods.starts(jax.random.split(key)[0], case.found[graphs.DEFAULT], case.problem, 2)[
        start
    ]
    costs = [int(cost_of(case.problem, fuse)) for fuse in given]
    expected = np.array(costs) / case.costs[graphs.DEFAULT]
    rows = json.loads((first / "runs.json").read_text())
    (row,) = [row for row in rows if (row["name"], row["start"]) == (case.name, start)]
    for name, found in row["found"].items():
        begins = np.array(found["history"])[:, 0]
        np.testing.assert_allclose(begins, expected, err_msg=name)
        assert found["evaluations"][-1] == 130 and found["seconds"] > 0


def test_where_most_runs_never_get_there_no_interval_is_given():
    pairs = [(np.array([4, 4]), np.array([4, 2]))]
    assert report.share_cell(pairs, 2, is_base=False) == "133 %"
    assert report.share_cell(pairs, 1, is_base=False).startswith("133 % (")
    assert report.share_cell([(pairs[0][1],) * 2], 0, is_base=True) == "100 %"
    assert (
        report.share_cell([(np.array([4]), np.array([2]))], 0, is_base=False) == "200 %"
    )  # one run


def test_the_search_by_measured_times_is_saved(tmp_path, monkeypatch, first):
    monkeypatch.setitem(
        real.BLOCKS, "tiny", lambda: forward("rnnlm", **{**LSTM, "length": 1, "hidden": 8})
    )
    for name in ("mnasnet step", "deeprank step"):
        monkeypatch.delitem(real.BLOCKS, name)
    weights = first / "network.npz"
    experiment.main(settings(tmp_path, table="real", evaluations=3, weights=weights))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("settings.json", "improvement.md", "evaluations.md", "runs.json"),
        *("programs.md", "tiny.sqlite", "default.png", "random.png"),
    }
    programs = (tmp_path / "programs.md").read_text()
    assert all(name in programs for name in ("XLA", "default", "priority fusion", "best found"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluations": 1}, "evaluations is 1"),
        ({"seeds": 0}, "seeds is 0"),
        ({"train": True, "weights": "x"}, "weights are given, and train is set"),
        ({"table": "ablation", "weights": "x"}, "the ablation trains all its networks"),
        ({"table": "ablation", "train": True}, "the ablation trains all its networks"),
        ({"table": "real", "split": "validation"}, "blocks of their own"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(tmp_path, **changes)


def test_no_family_is_in_two_of_the_three_sets():
    families = [
        {spec.workload for spec in split}
        for split in (graphs.TRAIN, graphs.VALIDATION, graphs.TEST)
    ]
    assert sum(map(len, families)) == len(set.union(*families))
