"""The experiment of GO's table, with settings so small that its figures mean nothing."""

import dataclasses
import json
from contextlib import redirect_stdout
from functools import partial
from io import StringIO

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import common
from experiments.go import __main__ as table
from experiments.go import heuristics, methods, report, runs, training
from experiments.go.rows import ROWS, Published, Row, build
from gopt.cost import dispatch
from gopt.hardware import p100s
from gopt.problem import prepare
from gopt.systems import go

FAMILIES = {family for family, _ in training.TRAIN}
POLICY = go.Settings(
    width=8, heads=2, segment=32, levels=(4, 16), samples=2, iterations=2, epochs=1
)
TRAINING = training.Training(steps=4, graphs=2, life=4, checkpoint_every=2)
LSTM = {"batch": 2, "hidden": 16, "vocabulary": 30, "layers": 1}
ROW = Row("rnnlm", {"length": 2, **LSTM}, 2, Published(1.0, 2.0, None, 3.0))
MODELS = (("rnnlm", {"length": 1, **LSTM}), ("mlp_mixer", dict(batch=1, layers=1, size=32)))


@pytest.fixture(scope="module", autouse=True)
def small():
    """One small row; devices and cache are as the tests have set them up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "TRAIN", MODELS)
        patch.setitem(ROWS, "small", ROW)
        patch.setattr(common, "start", lambda: None)
        yield


@pytest.fixture(scope="module")
def first(small, tmp_path_factory):
    """The folder of a run that trains a policy and evaluates it, and what it printed."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    settings = table.Settings(
        rows=("small",),
        searches=("local search", "GO untrained", "GO fine-tuned"),
        evaluations=21,
        seeds=2,
        train=True,
        folder=folder,
        policy=POLICY,
        training=TRAINING,
    )
    with redirect_stdout(StringIO()) as printed:
        table.main(settings)
    return folder, printed.getvalue()


def test_a_run_trains_evaluates_and_saves(first):
    folder, printed = first
    assert "GO fine-tuned" in printed and "published GO-one" in printed and "50.0" in printed
    saved = {path.name for path in folder.iterdir()}
    assert saved == {
        *("settings.json", "rows.md", "summary.md", "found.json", "convergence.png"),
        *("small.npz", "policy"),
    }
    (row,) = json.loads((folder / "found.json").read_text())
    placements = np.load(folder / "small.npz")
    traced = build(ROW)
    problem = prepare(traced.graph, p100s(2))
    cost = go.placement_cost(problem, "makespan")
    for method, found in row["found"].items():
        history = np.array(found["history"])
        assert (np.diff(history, axis=1) <= 0).all()
        start = row["placed"][row["begun"]]["makespan"]
        np.testing.assert_allclose(history[:, 0], start, rtol=1e-6)
        np.testing.assert_allclose(history[:, -1], found["makespan"])
        ticks = float(cost(jnp.asarray(placements[method])[None])[0])
        assert ticks * float(problem.tick) == pytest.approx(min(found["makespan"]), rel=1e-6)
    best = min(row["placed"][each]["makespan"] for each in table.AUTOMATIC)
    assert row["placed"][row["begun"]]["makespan"] == best


def test_training_that_is_interrupted_goes_on_as_if_it_were_not(first, tmp_path, monkeypatch):
    update, steps = training.Progress.update, []

    def stopped(progress, task, **what):
        if "description" in what:  # of training
            steps.append(1)
            if len(steps) == 3:  # after the checkpoint of two steps, and a third one
                raise KeyboardInterrupt
        return update(progress, task, **what)

    monkeypatch.setattr(training.Progress, "update", stopped)
    with pytest.raises(KeyboardInterrupt):
        training.train(TRAINING, POLICY, 0, tmp_path)
    params, _ = training.train(TRAINING, POLICY, 0, tmp_path)
    assert len(steps) == 3 + 2  # it went on after the second step
    whole, _ = go.load_policy(first[0] / "policy" / "policy.npz")
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), params, whole)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(params["params"]["score"]))
    watched = [
        json.loads((at / "watched.json").read_text()) for at in (tmp_path, first[0] / "policy")
    ]
    assert len(watched[0]) == 4
    for one, other in zip(*watched, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_no_family_of_the_table_is_trained_on():
    assert len(FAMILIES) == 17 and not FAMILIES & {row.family for row in ROWS.values()}


def case():
    traced = build(ROW)
    problem = prepare(traced.graph, p100s(3))
    return methods.case(traced.graph, problem, np.zeros(problem.shape.ops, np.int32), POLICY)


@pytest.mark.parametrize("name", ["random search", "annealing", "GO", "GO fine-tuned"])
def test_searches_keep_within_the_budget(name, monkeypatch):
    spent = []
    cost_of = go.placement_cost

    def counted(problem, objective):
        cost = cost_of(problem, objective)

        def count(placed):
            jax.debug.callback(lambda: spent.append(len(placed)))
            return cost(placed)

        return count

    monkeypatch.setattr(go, "placement_cost", counted)
    one = case()
    params = go.init_params(jax.random.key(0), one.inputs, settings=POLICY)
    found = jax.jit(methods.searches(23, POLICY)[name])(jax.random.key(1), one, params)
    jax.block_until_ready(found)
    jax.effects_barrier()
    step = POLICY.drawn * POLICY.iterations if "-" in name else POLICY.drawn
    assert 23 - step < sum(spent) <= 23
    again = cost_of(one.problem, "makespan")(found.device[None])[0]
    assert again == found.cost == found.history[-1]
    assert found.evaluations[0] == 1 and found.evaluations[-1] == sum(spent)
    assert found.evaluations.shape == found.history.shape


def test_a_move_takes_one_group_elsewhere():
    one = case()
    groups = {
        frozenset(np.flatnonzero(np.asarray(level) == group).tolist())
        for level, count in zip(one.group, one.count, strict=True)
        for group in range(int(count))
    }
    keys = jax.random.split(jax.random.key(0), 200)
    moved = np.asarray(jax.vmap(lambda key: methods.move(key, one, one.start))(keys))
    changed = [frozenset(np.flatnonzero(row).tolist()) for row in moved]
    assert set(changed) <= groups and len(set(changed)) > 20
    assert set(moved.ravel().tolist()) == {0, 1, 2}
    settle = jax.vmap(partial(dispatch.settled, one.problem))
    np.testing.assert_array_equal(settle(moved), moved)  # inputs go with their readers


def test_a_placement_that_fits_is_better_than_a_faster_one():
    problem = case().problem
    rows = problem.shape.ops
    together, apart = np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32) % 2
    best = heuristics.best(problem, [lambda: apart, lambda: together])
    assert (best.device == 0).all() and best.fits and best.tried == 2
    tight = problem._replace(capacity=jnp.array([0, 2**30, 2**30], jnp.int32))
    assert not heuristics.best(tight, [lambda: together]).fits
    slow = heuristics.best(tight, [lambda: apart, lambda: together + 1])
    assert slow.fits and (slow.device == 1).all()


def measured(name, expert, start, found):
    """A row with these steps, s."""
    placed = {
        method: heuristics.Placed(None, abs(step), step > 0, 1, 0.5)  # below 0: does not fit
        for method, step in (("expert", expert), ("METIS", start))
    }
    history = np.array([[step, step] for step in found])
    found = runs.Runs(np.array(found), history, np.array([1, 21]), 2.0)
    return report.Measured(name, 10, placed, "METIS", {"GO": found}, 0.1)


def test_gains_are_geometric_means_of_each_run():
    rows = [measured("a", 4.0, 2.0, [1.0, 2.0]), measured("b", 1.0, 2.0, [1.0, 0.5])]
    np.testing.assert_allclose(report.gains(rows, "GO", "expert"), [0.5, 0.5])
    over_start = 1 - np.sqrt([0.5 * 0.5, 1.0 * 0.25])
    np.testing.assert_allclose(report.gains(rows, "GO", "start of searches"), over_start)
    np.testing.assert_allclose(report.gains(rows, "METIS", "expert"), [0], atol=1e-12)
    assert [row.known for row in rows] == [1.0, 0.5]


def test_what_does_not_fit_is_no_figure(tmp_path):
    rows = [measured("small", 4.0, 2.0, [1.0, np.nan]), measured("small", 1.0, -0.5, [1.0, 0.5])]
    np.testing.assert_allclose(report.gains(rows, "GO", "expert"), [0, 0.5])
    np.testing.assert_allclose(report.gains(rows, "METIS", "expert"), [0.5])
    assert [row.known for row in rows] == [1.0, 0.5]
    report.report("title", rows, tmp_path)
    text = (tmp_path / "rows.md").read_text()
    assert text.count("does not fit") == 3  # METIS, the same as the start, and a run of GO
    assert "| METIS | 50.0 | 0.0 |" in (tmp_path / "summary.md").read_text()
    assert "1 of 2" in (tmp_path / "summary.md").read_text()
    report.draw([rows[0]], tmp_path)
    assert not (tmp_path / "convergence.png").exists()


def test_headroom_is_what_is_captured_of_what_experts_leave():
    expert, known = np.array([4.0, 2.0, 1.0]), np.array([1.0, 1.0, 1.0])
    assert report.headroom(expert, known, known) == pytest.approx(1)
    assert report.headroom(expert, expert, known) == 0
    assert report.headroom(expert, np.array([2.0, 2.0, 1.0]), known) == pytest.approx(1 / 3)
    assert report.headroom(expert, np.array([2.0, np.nan, 1.0]), known) == pytest.approx(1 / 2)
    assert np.isnan(report.headroom(known, known, known))


def test_a_search_that_reports_a_wrong_cost_is_refused():
    def wrong(key, case, params):
        return methods.Found(case.start, jnp.float32(1), jnp.ones(2), jnp.arange(2))

    with pytest.raises(RuntimeError, match=r"a search reports 1\.0, its placement costs"):
        runs.run(wrong, jax.random.split(jax.random.key(0), 2), case(), jnp.zeros(2))


def test_settings_that_mean_nothing_raise(tmp_path):
    with pytest.raises(ValueError, match="rows has 'ResNet': expected some of RNNLM, 2 layers"):
        table.main(table.Settings(rows=("ResNet",), folder=tmp_path, training=TRAINING))
    with pytest.raises(ValueError, match="weights are not given"):
        table.main(table.Settings(rows=("small",), folder=tmp_path, training=TRAINING))
    with pytest.raises(ValueError, match="evaluations is 144: expected 145 at least"):
        methods.searches(144, go.Settings())
    for wrong, message in (
        (dict(graphs=3), "graphs is 3: expected 2 at most"),
        (dict(devices=()), "devices is ..: expected some numbers"),
        (dict(life=0), "life is 0: expected 1 at least"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(TRAINING, **wrong)
