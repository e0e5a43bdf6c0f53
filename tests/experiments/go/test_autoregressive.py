"""Groups that are decided one after another."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.go import training
from experiments.go.case import OBJECTIVE
from experiments.go.studies import autoregressive
from experiments.harness import command_line
from gopt.systems import go

pytestmark = pytest.mark.slow

LSTM = {"batch": 2, "hidden": 16, "vocabulary": 30, "layers": 1}
MODELS = tuple(("rnnlm", {"length": length, **LSTM}) for length in (2, 1))  # of one shape
POLICY = go.Settings(
    **dict(width=8, rounds=1, layers=0, task_layers=0, superposition=False, heads=2, segment=32),
    **dict(levels=(8, 16), samples=2, tasks=("placement", "scheduling"), changes=4.0),
)
SCHEDULING = 2  # a kind of moves: of priorities, on the coarsest level


@pytest.fixture(scope="module")
def pool():
    (found,) = training.pools(MODELS, (2,), POLICY)
    return jax.device_get(found)


@pytest.fixture(scope="module")
def params(pool):
    """Of a policy that prefers some moves to others."""
    first = jax.tree.map(lambda x: x[0], pool.inputs)
    shapes = jax.eval_shape(partial(go.init, settings=POLICY), jax.random.key(0), first)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: np.float32(rng.normal(scale=0.3, size=x.shape)), shapes)


@jax.jit
def known_of(params, one):
    timing = go.simulator_of(one.problem, OBJECTIVE, one.order).timing(one.start.decision)
    embedding = go.embed(params, one.inputs, settings=POLICY)
    return autoregressive.Seen(params, embedding, one.inputs, timing)


def seen(pool, params, k=1):
    one = jax.tree.map(lambda x: x[k], pool)
    return known_of(params, one), one.start.decision


@pytest.mark.parametrize("kind", [0, SCHEDULING])
def test_each_group_knows_what_those_before_it_were_given(pool, params, kind):
    known, start = seen(pool, params)
    task, level = POLICY.moves[kind]
    name = POLICY.tasks[task]
    draw = jax.jit(autoregressive.in_sequence, static_argnames=("kind", "policy"))
    look = jax.jit(autoregressive.said, static_argnames=("kind", "policy"))
    group, about = np.asarray(known.inputs.group[level]), go.ops_of(name, known.inputs)
    moved, differ = [], 0
    for seed in range(4):
        key = jax.random.key(seed)
        decision, found = start, draw(key, known, start, kind=kind, policy=POLICY)
        keys = jax.random.split(jax.random.fold_in(key, 1), POLICY.levels[level])
        for k, to_draw in enumerate(keys):
            logits = look(known, decision, kind=kind, policy=POLICY)[k]
            differ += not np.array_equal(logits, look(known, start, kind=kind, policy=POLICY)[k])
            if action := int(jax.random.categorical(to_draw, logits)):
                value = jnp.where((group == k) & about, action - 1, getattr(decision, name))
                decision = decision._replace(**{name: value})
                moved.append(seed)
        if seed in moved:
            jax.tree.map(np.testing.assert_array_equal, found, decision)
    assert differ and len(moved) > len(set(moved))  # some move several groups


def test_one_group_at_least_is_moved(pool, params):
    known, start = seen(pool, params)
    never = known._replace(
        embedding=known.embedding._replace(
            changes=tuple(x - 30 for x in known.embedding.changes)  # odds of 1e-13
        )
    )
    for name, draw in autoregressive.DRAWS.items():
        run = jax.jit(draw, static_argnames=("kind", "policy"))
        found = run(jax.random.key(0), never, start, kind=0, policy=POLICY)
        changed = np.asarray(found.placement != start.placement)
        groups = np.asarray(known.inputs.group[0])[changed]
        assert len(set(groups.tolist())) == 1, name


def test_one_after_another_a_move_is_made_up_alone(pool, params):
    """Whoever moves nothing moves one group, not as many as would be drawn at once."""
    known, start = seen(pool, params)
    fewer = tuple(x - 2 for x in known.embedding.changes)
    known = known._replace(embedding=known.embedding._replace(changes=fewer))
    draw = jax.jit(autoregressive.in_sequence, static_argnames=("kind", "policy"))
    look = jax.jit(autoregressive.said, static_argnames=("kind", "policy"))
    group = np.asarray(known.inputs.group[0])
    made_up = 0
    for seed in range(12):
        key = jax.random.key(seed)
        found = draw(key, known, start, kind=0, policy=POLICY)
        changed = np.asarray(found.placement != start.placement)
        keys = jax.random.split(jax.random.fold_in(key, 1), POLICY.levels[0])
        logits = look(known, start, kind=0, policy=POLICY)
        drawn = [int(jax.random.categorical(k, row)) for k, row in zip(keys, logits, strict=True)]
        if not any(drawn):  # so that none sees another decision than the start
            made_up += 1
            assert len(set(group[changed].tolist())) == 1
    assert made_up


def test_both_search_and_their_time_is_told(params, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "VALIDATION", MODELS)
    monkeypatch.setattr(command_line, "start", lambda: None)
    go.save(tmp_path / "policy.npz", params, POLICY)
    settings = autoregressive.Settings(
        weights=tmp_path / "policy.npz",
        **dict(devices=(2,), iterations=(1, 3), seeds=2, ops=(20,)),
        folder=tmp_path / "found",
    )
    costed, cost_of = [], autoregressive.go.Simulator

    def counted(cost, timing):
        def cost_them(decisions):
            jax.debug.callback(lambda: costed.append(len(decisions.placement)))
            return cost(decisions)

        return cost_of(cost_them, timing)

    monkeypatch.setattr("gopt.systems.go.decisions.Simulator", counted)
    autoregressive.main(settings)
    jax.effects_barrier()
    saved = json.loads((tmp_path / "found" / "gains.json").read_text())
    assert saved["evaluations"] == [6, 16]  # two samples of two tasks, and a look
    searches = 2 * 2 * 4  # both ways, with two seeds, from four starts
    assert costed.count(4) == 3 * searches and set(costed) <= {1, 4}
    once, turn = (np.array(saved["log ratio"][name]) for name in autoregressive.DRAWS)
    assert once.shape == turn.shape == (2, 4, 2) and not np.allclose(once, turn)
    for ratio in (once, turn):
        assert (ratio <= 0).all() and (np.diff(ratio) <= 0).all() and ratio.min() < 0
    title, _, head, _, *lines = (tmp_path / "found" / "seconds.md").read_text().splitlines()
    assert "s of CPU time to draw one decision" in title
    assert head == "| drawn | 20 ops |" and len(lines) == 2
    assert all(float(line.split("|")[2]) > 0 for line in lines)
    kept = json.loads((tmp_path / "found" / "settings.json").read_text())
    assert kept["ops"] == [20] and kept["versions"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(ops=()), r"ops is \(\): expected numbers"),
        (dict(ops=(10, 0)), r"ops is \(10, 0\): expected numbers, 1 at least"),
    ],
)
def test_what_cannot_be_timed_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        autoregressive.Settings(**wrong)


@pytest.mark.parametrize(
    "changes", [dict(tasks=("scheduling",)), dict(tasks=go.TASKS), dict(levels=(8,))]
)
def test_policies_that_cannot_be_compared_are_refused(changes, monkeypatch):
    policy = go.Settings(**vars(POLICY) | changes)
    monkeypatch.setattr(go, "load", lambda path: (None, policy))
    with pytest.raises(ValueError, match="expected placement, no fusion, and two levels at least"):
        autoregressive.main(autoregressive.Settings())
