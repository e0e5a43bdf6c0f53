"""PPO: what it learns from, and that it learns."""

import dataclasses

import jax
import numpy as np
import pytest

from gopt.learning.weights import load_weights, save_weights
from gopt.systems import xrlflow
from gopt.systems.xrlflow.episodes import advantages, batches
from gopt.systems.xrlflow.training import loss, optimizer, step
from tests.reference import losses as reference
from tests.systems.test_xrlflow import SMALL, choose, environment, random_params, say


def played(settings=SMALL, count=3, name="layers", params=None):
    env = environment(name, settings)
    params = random_params(settings) if params is None else params
    every = [xrlflow.play(env, choose, params, np.random.default_rng(k)) for k in range(count)]
    return [(episode, env.size) for episode in every], params


@pytest.mark.slow
def test_advantages_are_those_of_the_reference_also_where_an_episode_was_cut_off():
    short = dataclasses.replace(SMALL, horizon=2)
    params = xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=SMALL)
    episodes = [pair for each in (short, SMALL) for pair in played(each, 4, params=params)[0]]
    lasts = {episode.last != 0 for episode, _ in episodes}
    assert lasts == {False, True}
    for episode, _ in episodes:
        assert episode.last == 0 or (len(episode.action) == 2 and episode.action[-1] != 0)
        after = np.append(episode.value[1:], episode.last)
        expected = reference.advantages(episode.reward, episode.value, after, 0.99, 0.95)
        np.testing.assert_allclose(advantages(episode, SMALL), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_policy_that_is_no_number_is_taken_back(monkeypatch):
    (episodes, params), calls = played(count=1), []

    def broken(state, key, batch, *, settings):
        calls.append(1)
        wrong = jax.tree.map(lambda leaf: leaf * np.nan, state)
        return wrong, dict.fromkeys(("loss", "divergence", "entropy", "error"), np.nan)

    state = xrlflow.start(params, settings=SMALL)
    rng, once = np.random.default_rng(0), dataclasses.replace(SMALL, epochs=1, batch=64)
    infinite = [(one._replace(reward=one.reward + np.inf), size) for one, size in episodes]
    after, watched = xrlflow.improve(state, infinite, rng, settings=once)
    assert after is state and watched.batches == 1
    monkeypatch.setattr("gopt.systems.xrlflow.training.step", broken)
    after, watched = xrlflow.improve(state, episodes, rng, settings=SMALL)
    assert after is state and len(calls) == watched.batches == 1
    with pytest.raises(ValueError, match="there are no episodes"):
        xrlflow.improve(state, [], rng, settings=SMALL)


@pytest.mark.slow
def test_batches_have_each_decision_once():
    episodes, _ = played()
    other, _ = played(name="attention")
    settings = dataclasses.replace(SMALL, batch=4)
    found = batches(episodes + other, np.random.default_rng(0), settings)
    steps = sum(len(episode.action) for episode, _ in episodes + other)
    assert sum(batch.weight.sum() for batch in found) == steps
    rows = [
        (batch.log_prob[k], batch.action[k], batch.advantage[k])
        for batch in found
        for k in np.flatnonzero(batch.weight)
    ]
    told = sorted((row[0], row[1]) for row in rows)
    expected = sorted(
        pair
        for episode, _ in episodes + other
        for pair in zip(episode.log_prob, episode.action, strict=True)
    )
    assert told == expected
    every = np.array([row[2] for row in rows])
    np.testing.assert_allclose([every.mean(), every.std()], [0, 1], atol=1e-4)


@pytest.mark.slow
def test_a_step_is_along_the_mean_of_the_gradients_without_padding():
    settings = dataclasses.replace(SMALL, batch=16)
    episodes, params = played(count=2)
    batch = min(batches(episodes, np.random.default_rng(0), settings), key=lambda b: b.weight.sum())
    count = int(batch.weight.sum())
    assert 0 < count < 16
    slope = jax.jit(jax.grad(lambda p, one: loss(p, one, settings=settings)[0]))
    slopes = [slope(params, jax.tree.map(lambda leaf, k=k: leaf[k], batch)) for k in range(count)]
    mean = jax.tree.map(lambda *leaves: sum(leaves) / count, *slopes)
    state = xrlflow.start(params, settings=settings)
    updates, _ = optimizer(settings).update(mean, state.opt_state, params)
    after, _ = step(state, None, batch, settings=settings)
    moved = 0.0
    for new, old, update in zip(
        *map(jax.tree.leaves, (after.params, params, updates)), strict=True
    ):
        np.testing.assert_allclose(new, old + update, rtol=1e-3, atol=1e-5)
        moved += np.abs(new - old).sum()
    assert moved > 1e-3


def test_the_loss_is_that_of_the_paper():
    episodes, params = played(count=1)
    (batch, *_) = batches(episodes, np.random.default_rng(0), SMALL)
    one = jax.tree.map(lambda leaf: leaf[0], batch)
    said = say(params, one.seen, settings=SMALL)
    logits = np.asarray(said.logits)[one.seen.mask]
    chance = reference.softmax(logits)[one.action]
    ratio = chance / np.exp(one.log_prob)
    clipped = np.clip(ratio, 0.8, 1.2)
    expected = -min(ratio * one.advantage, clipped * one.advantage)
    expected += 0.5 * ((float(said.value) - one.target) / SMALL.unit) ** 2
    expected -= 0.01 * reference.entropy(logits)
    found = jax.jit(loss, static_argnames="settings")(params, one, settings=SMALL)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_it_learns_what_pays():
    settings = dataclasses.replace(
        SMALL, hints=False, learning_rate=1e-2, entropy=0.0, episodes=6, horizon=6, divergence=1.0
    )
    env, tell = environment("attention", settings), xrlflow.policy(settings)
    params = xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=settings)
    state = xrlflow.start(params, settings=settings)
    gained = []
    for update in range(7):
        rngs = [np.random.default_rng((update, k)) for k in range(settings.episodes)]
        episodes = [xrlflow.play(env, tell, state.params, rng) for rng in rngs]
        gained.append(np.mean([episode.reward.sum() for episode in episodes]))
        pairs = [(episode, env.size) for episode in episodes]
        rng = np.random.default_rng(update)
        state, watched = xrlflow.improve(state, pairs, rng, settings=settings)
        assert np.isfinite(watched).all()
    assert np.mean(gained[-2:]) > np.mean(gained[:2]) + 0.1 * abs(np.mean(gained[:2]))
    greedy = xrlflow.play(env, tell, state.params, np.random.default_rng(0), greedy=True)
    assert greedy.reward.sum() > 0


@pytest.mark.slow
def test_epochs_end_where_the_policy_has_gone_too_far():
    episodes, params = played()
    far = dataclasses.replace(SMALL, learning_rate=0.5, divergence=1e-4, epochs=4, batch=4)
    state = xrlflow.start(params, settings=far)
    stayed, watched = xrlflow.improve(state, episodes, np.random.default_rng(0), settings=far)
    near = dataclasses.replace(far, divergence=1e6)
    _, whole = xrlflow.improve(state, episodes, np.random.default_rng(0), settings=near)
    assert watched.batches == 2 < whole.batches
    jax.tree.map(np.testing.assert_array_equal, stayed.params, params)  # the step is taken back


def test_agents_are_saved_and_found_again(tmp_path):
    path, params = tmp_path / "agent.npz", random_params()
    xrlflow.save(path, params, SMALL, origin={"seed": 3})
    found, settings = xrlflow.load(path)
    assert settings == SMALL
    for ours, theirs in zip(*map(jax.tree.leaves, (found, params)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    params, values = load_weights(path)
    assert values["origin"] == {"seed": 3}
    for wrong, match in (
        ({"version": 99}, "with version 99: expected 1"),
        ({"kinds": ["add"]}, "other kinds"),
        ({"settings": {"length": 1}}, "no settings"),
        ({"settings": {**values["settings"], "width": 16}}, "other shapes"),
    ):
        save_weights(path, params, values | wrong)
        with pytest.raises(ValueError, match=match):
            xrlflow.load(path)


def test_what_is_smallest_gives_the_shapes_of_all():
    params = xrlflow.init(jax.random.key(0), xrlflow.smallest(), settings=SMALL)
    episodes, _ = played(params=params)
    assert np.isfinite(episodes[0][0].value).all()
