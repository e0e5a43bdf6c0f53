"""Policies of GO that learn from heuristics before they are trained."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.go import training
from experiments.go.case import OBJECTIVE
from experiments.go.studies import imitation
from gopt.systems import go

pytestmark = pytest.mark.slow

LSTM = {"batch": 2, "hidden": 16, "vocabulary": 30, "layers": 1}
MODELS = (("rnnlm", {"length": 2, **LSTM}), ("mlp_mixer", dict(batch=1, layers=1, size=32)))
POLICY = go.Settings(
    **dict(width=8, rounds=1, layers=0, task_layers=0, superposition=False, heads=2, segment=32),
    **dict(levels=(4, 16), samples=2, tasks=("scheduling", "placement"), learning_rate=0.03),
)
TRAINING = training.Training(
    **dict(steps=4, devices=(2,), graphs=2, checkpoint_every=2),
    **dict(iterations=3, samples=2, epochs=1, life=4, starts=("one device", "a cut")),
)


@pytest.fixture(scope="module", autouse=True)
def _learning_is_traced_once():
    learn = jax.jit(imitation._learn, static_argnames=("shown", "policy"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imitation, "_learn", learn)
        yield


@pytest.fixture(scope="module")
def pool():
    """Two models, each from two starts."""
    (found,) = training.pools(MODELS, (2,), POLICY, TRAINING.starts)
    return jax.device_get(found)


def row(pool, k):
    return jax.tree.map(lambda x: x[k], pool)


@jax.jit
def cost_of(one, placement):
    decision = one.start.decision._replace(placement=placement)
    cost = go.simulator_of(one.problem, OBJECTIVE, one.order).cost
    return cost(jax.tree.map(lambda x: x[None], decision))[0]


@jax.jit
def observed(one, decision):
    timing = go.simulator_of(one.problem, OBJECTIVE, one.order).timing(decision)
    return go.observe(one.inputs, decision, timing, settings=POLICY)


def test_targets_cost_no_more_than_where_searches_begin(pool):
    wanted = imitation.targets(pool)
    assert wanted.shape == pool.inputs.share.shape
    costs = [float(cost_of(row(pool, k), wanted[k])) for k in range(len(wanted))]
    start = np.asarray(pool.start.cost)
    assert (np.array(costs) <= start[1::2].repeat(2)).all()  # METIS is one of the heuristics
    assert min(costs / start) < 1
    # Which device is which is as in the start.
    other = 1 - pool.start.decision.placement
    flipped = pool._replace(
        start=pool.start._replace(decision=pool.start.decision._replace(placement=other))
    )
    np.testing.assert_array_equal(imitation.targets(flipped), 1 - wanted)
    here = np.asarray(pool.inputs.share * (wanted == pool.start.decision.placement)).sum(1)
    assert (here >= 0.5).all()


@pytest.mark.parametrize("level", [0, 1])
def test_moves_to_where_most_of_a_group_is_wanted_are_right(pool, level):
    one, rng = row(pool, 0), np.random.default_rng(level)
    ops = len(one.inputs.share)
    placement, wanted = (jnp.asarray(rng.integers(0, 2, ops), jnp.int32) for _ in range(2))
    decision = one.start.decision._replace(placement=placement)
    kind = POLICY.moves.index((1, level))
    groups = observed(one, decision)[kind]
    group, time = (np.asarray(x) for x in (one.inputs.group[level], one.inputs.share + 1e-9))
    found = np.asarray(imitation.still_right(one.inputs, group, groups, wanted))
    expected = np.zeros_like(found)
    about = np.asarray(go.ops_of("placement", one.inputs))
    for k in range(int(one.inputs.count[level])):
        ops = (group == k) & about
        if not ops.any():
            continue
        on = [time[ops & (np.asarray(wanted) == device)].sum() for device in range(2)]
        to = int(np.argmax(on))
        here = time[ops & (np.asarray(placement) == to)].sum() / time[ops].sum()
        expected[k, to] = here < 0.5
    np.testing.assert_array_equal(found, expected)
    assert 0 < expected.sum() < len(expected)


def test_what_is_shown_is_part_of_the_way(pool):
    one = row(pool, 0)
    start, ops = one.start.decision, int(one.problem.num_ops)
    wanted = jnp.ones_like(start.placement)  # all begin on device 0
    keys = jax.random.split(jax.random.key(0), 64)
    partway = jax.jit(jax.vmap(imitation._partway, (0, None, None, None)))
    shown = partway(keys, one.inputs, start, wanted)
    there = np.asarray(shown.placement)[:, :ops]
    share = there.mean(1)
    assert share.min() < 0.2 and share.max() > 0.8 and 0.3 < share.mean() < 0.7
    whole = [
        all(len(set(each[group == k].tolist())) == 1 for k in set(group.tolist()))
        for each in there
        for group in np.asarray(one.inputs.group)[:, :ops]
    ]
    by_level = np.array(whole).reshape(len(there), -1)
    assert by_level.any(1).all() and not by_level.all(0).any()  # of one level, and of all in turn
    np.testing.assert_array_equal(shown.scheduling, start.scheduling[None].repeat(64, 0))


def test_what_is_taught_says_right_moves_more_often(pool, tmp_path):
    taught = training.Training(**vars(TRAINING) | dict(steps=150, checkpoint_every=150))
    params = imitation.imitated(taught, POLICY, 0, tmp_path, [pool])
    one = row(pool, 0)
    (wanted,) = imitation.targets(jax.tree.map(lambda x: x[:1], pool))
    seen = observed(one, one.start.decision)

    @jax.jit
    def looked(params):
        embedding = go.embed(params, one.inputs, settings=POLICY)
        return go.moves(params, embedding, seen, settings=POLICY)

    def odds(params):
        said, found = looked(params), []
        for kind in (2, 3):  # of placement
            group = one.inputs.group[POLICY.moves[kind][1]]
            right = imitation.still_right(one.inputs, group, seen[kind], wanted)
            assert 0 < right.sum() < seen[kind].is_move.sum()
            chance = jax.nn.softmax(said[kind].logits[:, 1:], (0, 1))
            found.append(float(jnp.where(right, chance, 0).sum() / right.sum()))
        return np.array(found)

    first = jax.tree.map(lambda x: x[0], pool.inputs)
    untaught = go.init(jax.random.key(1), first, settings=POLICY)
    assert (odds(params) > 1.15 * odds(untaught)).all()
    for name in ("score", "budget"):  # of priorities nothing is learned
        assert not np.asarray(params["params"]["head_scheduling"][name]["kernel"]).any()


def test_teaching_that_was_interrupted_goes_on(pool, tmp_path):
    learn = partial(imitation.imitated, policy=POLICY, seed=0, every=[pool])
    whole = learn(TRAINING, folder=tmp_path / "whole")
    half = training.Training(**vars(TRAINING) | dict(steps=2))
    learn(half, folder=tmp_path / "half")
    record = tmp_path / "half" / "settings.json"
    settings = json.loads(record.read_text())
    settings["training"]["steps"] = TRAINING.steps
    record.write_text(json.dumps(settings))
    again = learn(TRAINING, folder=tmp_path / "half")
    jax.tree.map(np.testing.assert_array_equal, whole, again)
    with pytest.raises(ValueError, match="holds a run with seed = 0: expected 1"):
        learn(TRAINING, seed=1, folder=tmp_path / "half")
