"""GO's policy: what it may say, what follows from it, and that training follows the reward."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt import padding
from gopt.checkpoints import load_weights, save_weights
from gopt.cost import dispatch
from gopt.graph import Op, Output, Shape, from_ops
from gopt.hardware import homogeneous
from gopt.problem import prepare
from gopt.sources.synthetic import layered
from gopt.systems import go
from tests.strategies import NASTY

SHAPE = Shape(96, 96, 256)  # of all graphs, so that few programs are compiled
SETTINGS = go.Settings(width=16, heads=2, segment=16, levels=(4, 8, 32), samples=6)


@cache
def case(name, devices, more=0):
    """A graph as the policy reads it, its problem, and random parameters."""
    graph = layered(0, 60) if name == "layered" else NASTY[name]()
    graph = padding.pad(graph, Shape(*(rows + more for rows in SHAPE)))
    machine = homogeneous(devices, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)
    problem = prepare(graph, machine)
    inputs = go.read(graph, problem, SETTINGS)
    return problem, inputs, parameters()


@cache
def parameters():
    graph = padding.pad(layered(0, 20))
    inputs = go.read(graph, prepare(graph, homogeneous(2)), SETTINGS)
    params = go.init_params(jax.random.key(0), inputs, settings=SETTINGS)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(np.float32), params)


def all_moves(name, devices, more=0):
    problem, inputs, params = case(name, devices, more)
    n = int(problem.num_ops)
    device = np.zeros(problem.shape.ops, np.int32)
    device[:n] = np.random.default_rng(0).integers(0, devices, n)
    ops = go.embed(params, inputs, settings=SETTINGS)
    found = [
        go.moves(params, ops, inputs, device, level=level, settings=SETTINGS) for level in range(3)
    ]
    return device, inputs, found


@pytest.mark.parametrize("devices", [1, 5])
@pytest.mark.parametrize("name", ["layered", *NASTY])
def test_groups_go_to_where_they_are_not_and_the_odds_are_as_said(name, devices):
    device, inputs, found = all_moves(name, devices)
    for level, (logits, entropy) in enumerate(found):
        logits, count = np.asarray(logits), int(inputs.count[level])
        assert np.isfinite(logits[:, 0]).all() and 0 <= entropy < 1 + 1e-5
        can = logits[:, 1:] > -1e29
        for group in range(len(logits)):
            members = np.flatnonzero(inputs.group[level] == group)
            for to in range(devices):
                expected = group < count and (device[members] != to).any()
                assert can[group, to] == expected
        if can.any():
            likely = np.exp(logits[:, 1:][can])
            assert likely.sum() == pytest.approx(1, rel=1e-4)
            assert likely.min() >= 0.999 * SETTINGS.explore / can.sum()
        odds = np.exp(logits[:, 1:] - logits[:, :1])  # against staying
        changes = parameters()["params"]["budget"]
        ops = np.asarray(go.embed(parameters(), inputs, settings=SETTINGS), np.float64)
        mean = ops[: int(inputs.graphs.n_node[0])].mean(0)
        said = (mean @ changes["kernel"] + changes["bias"])[level]
        if can.any():
            expected = SETTINGS.changes * np.exp(said)
            assert odds.sum() == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("name", ["layered", "chain"])
def test_padding_changes_nothing(name):
    _, inputs, found = all_moves(name, 3)
    _, _, wide = all_moves(name, 3, more=9)
    for level in range(3):
        count = int(inputs.count[level])
        for a, b in zip(found[level].logits[:count], wide[level].logits[:count], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)
        np.testing.assert_allclose(found[level].entropy, wide[level].entropy, atol=1e-4)


def test_samples_follow_the_probabilities_and_move_something():
    logits = jnp.float32([[0.5, -1e30, 0.3], [1.0, 0.2, -1e30], [2.0, -1e30, -1e30]])
    action = np.asarray(go.sample(jax.random.key(0), logits, 20_000))
    assert (action != 0).any(1).all()
    assert not np.isin(action[:, 0], [1]).any() and not np.isin(action[:, 1], [2]).any()
    assert not action[:, 2].any()
    # As often as is said, the one that is drawn because none was included.
    drawn, count = np.unique(action, axis=0, return_counts=True)
    said = np.exp(np.asarray(go.log_prob(logits, jnp.asarray(drawn))))
    assert len(drawn) == 3 and said.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(count / len(action), said, atol=0.015)


def test_nothing_is_moved_where_nothing_can_be():
    logits = jnp.float32([[0.0, -1e30], [0.0, -1e30]])
    action = go.sample(jax.random.key(0), logits, 5)
    assert not np.asarray(action).any()
    np.testing.assert_allclose(go.log_prob(logits, action), 0, atol=1e-6)


def test_actions_move_whole_groups():
    device = jnp.int32([0, 1, 2, 0, 1])
    group = jnp.int32([0, 1, 0, 2, 9])  # the last is padding
    action = jnp.int32([[0, 0, 0], [2, 0, 3], [0, 1, 0]])
    expected = [[0, 1, 2, 0, 1], [1, 1, 1, 2, 1], [0, 0, 2, 0, 1]]
    assert go.act(device, action, group).tolist() == expected


def rolled(name, devices, iterations=5):
    problem, inputs, params = case(name, devices)
    cost = go.placement_cost(problem, "makespan")
    start = go.begin(problem, jnp.zeros(problem.shape.ops, jnp.int32), cost)
    run = jax.jit(partial(go.rollout, cost=cost, iterations=iterations, settings=SETTINGS))
    return problem, inputs, params, start, run(jax.random.key(0), params, inputs, start)


@pytest.mark.parametrize("name", ["layered", "one op", "chain"])
def test_a_rollout_keeps_the_best_that_it_has_drawn(name):
    problem, inputs, _, start, (state, taken, history) = rolled(name, 3)
    costs = np.concatenate([[start.cost], history])
    assert (np.diff(costs) <= 0).all() and history[-1] == state.cost
    again = dispatch.evaluate(problem, dispatch.placement(problem, state.device))
    assert np.float32(again.makespan) == state.cost
    for step in range(5):
        lowest = float(np.asarray(taken.ratio)[step].min()) * costs[step]
        assert costs[step + 1] == pytest.approx(min(costs[step], lowest), rel=1e-6)
        for level, action in enumerate(taken.action):
            placed = go.act(taken.device[step], action[step], inputs.group[level])
            found = go.placement_cost(problem, "makespan")(placed)
            ratio = np.where(found == costs[step], 1, found / max(costs[step], 1e-30))
            np.testing.assert_allclose(taken.ratio[step, level], ratio, rtol=1e-5)


def test_inputs_are_in_the_group_of_their_first_reader():
    ops = [Op("input", outputs=(Output(1.0),)) for _ in range(3)]
    ops += [Op(outputs=(Output(500.0),), flops=1.0), Op(inputs=((1, 0),), flops=2.0)]
    ops += [Op(inputs=((0, 0), (1, 0), (3, 0)), flops=3.0)]
    graph = from_ops(ops)
    inputs = go.read(graph, prepare(graph, homogeneous(2)), SETTINGS)
    for group, count in zip(inputs.group, inputs.count, strict=True):
        assert group[0] == group[5] and group[1] == group[4]
        assert np.unique(group[:6]).tolist() == list(range(count))
        assert group[6:].tolist() == [max(SETTINGS.levels)]
    assert (
        len(set(inputs.group[2][:6])) == 4
    )  # as many as there are single ops; one input is unread


def test_ops_go_only_where_they_may():
    graph = padding.pad(layered(0, 60), SHAPE)
    allowed = np.ones((60, 3), bool)
    allowed[:, 2] = False
    problem = prepare(graph, homogeneous(3), allowed=allowed)
    inputs, cost = go.read(graph, problem, SETTINGS), go.placement_cost(problem, "makespan")
    start = go.begin(problem, jnp.full(SHAPE.ops, 2, jnp.int32), cost)
    assert not np.asarray(start.device[:60]).any()
    ops = go.embed(parameters(), inputs, settings=SETTINGS)
    for level in range(3):
        found = go.moves(parameters(), ops, inputs, start.device, level=level, settings=SETTINGS)
        can = np.asarray(found.logits)[: inputs.count[level], 1:] > -1e29
        assert can.any(0).tolist() == [False, True, False]


def test_64_bit_mode_changes_nothing():
    problem, inputs, params = case("chain", 2)
    cost = go.placement_cost(problem, "makespan")

    def run(key):
        start = go.begin(problem, jnp.zeros(problem.shape.ops, jnp.int32), cost)
        return go.rollout(key, params, inputs, start, cost, iterations=2, settings=SETTINGS)[0]

    with jax.enable_x64(True):
        state = run(jax.random.key(0))
    assert state.device.dtype == jnp.int32 and state.cost.dtype == jnp.float32


def test_another_graph_than_that_of_the_problem_raises():
    problem = prepare(layered(0, 30), homogeneous(2))
    with pytest.raises(ValueError, match=r"problem has shape Shape\(ops=.*: expected that of the"):
        go.read(layered(0, 40), problem, SETTINGS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(width=0), "width is 0: expected 1 at least"),
        (dict(heads=5), "heads is 5: expected a divisor of the width 64"),
        (dict(levels=()), r"levels is \(\): expected numbers of groups"),
        (dict(samples=1), "samples is 1: expected 2 at least"),
        (dict(layers=-1), "layers is -1: expected 0 at least"),
        (dict(explore=0.0), "explore is 0.0: expected between 0 and 1"),
        (dict(epochs=0), "epochs is 0: expected 1 at least"),
        (dict(learning_rate=-1.0), "learning_rate is -1.0: expected more than 0"),
    ],
)
def test_settings_that_mean_nothing_raise(wrong, message):
    with pytest.raises(ValueError, match=message):
        go.Settings(**wrong)


def test_costs_that_are_no_numbers_are_never_the_best():
    problem, inputs, params = case("layered", 3)
    device = jnp.zeros(problem.shape.ops, jnp.int32)
    ops = go.embed(params, inputs, settings=SETTINGS)

    def state_after(cost):
        step = partial(go.iterate, jax.random.key(0), params, ops, inputs, start)
        return step(cost, settings=SETTINGS)[0]

    start = go.State(device, jnp.float32(5))
    after = state_after(lambda placed: jnp.full(len(placed), jnp.nan).at[2].set(4))
    assert after.cost == 4 and (np.asarray(after.device) != 0).any()
    after = state_after(lambda placed: jnp.full(len(placed), jnp.nan))
    assert after.cost == 5 and not np.asarray(after.device).any()


def test_the_reward_is_that_of_the_paper_where_a_decision_is_better():
    ratio = jnp.float32([0.25, 0.81, 1.0, 1.01, 5.0, jnp.inf, jnp.nan])
    np.testing.assert_allclose(go.reward(ratio), [-0.5, -0.9, -1, -1, -1, -1, -1], rtol=1e-6)


def test_training_makes_what_was_better_likelier():
    _, inputs, params, _, (_, taken, _) = rolled("layered", 2)
    value = np.asarray(go.reward(taken.ratio))
    gain = value - value.mean(-1, keepdims=True)
    assert gain.std() > 1e-4

    @jax.jit
    def chances(params):
        ops = go.embed(params, inputs, settings=SETTINGS)
        rows = []
        for step in range(5):
            for level, action in enumerate(taken.action):
                found = go.moves(
                    params,
                    ops,
                    inputs,
                    taken.device[step],
                    level=level,
                    settings=SETTINGS,
                )
                rows.append(go.log_prob(found.logits, action[step]))
        return jnp.stack(rows).reshape(value.shape)

    np.testing.assert_allclose(chances(params), taken.log_prob, atol=1e-3)
    state = go.TrainState(params, go.optimizer(SETTINGS).init(params))
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), (inputs, taken))
    improve = jax.jit(partial(go.improve, settings=SETTINGS))
    for _ in range(2):
        state, watched = improve(state, *batch)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert np.isfinite(list(watched.values())).all()
    change = chances(state.params) - np.asarray(taken.log_prob)
    assert np.corrcoef(change.ravel(), gain.ravel())[0, 1] > 0.2


def test_tuning_searches_and_learns_meanwhile():
    problem, inputs, params = case("layered", 3)
    cost = go.placement_cost(problem, "makespan")
    start = go.begin(problem, jnp.zeros(problem.shape.ops, jnp.int32), cost)
    settings = dataclasses.replace(SETTINGS, iterations=3)
    state = go.TrainState(params, go.optimizer(settings).init(params))
    run = jax.jit(partial(go.tune, cost=cost, steps=4, settings=settings))
    tuned, best, history = run(jax.random.key(0), state, inputs, start)
    assert history.shape == (12,) and (np.diff(history) <= 0).all() and history[-1] == best.cost
    assert cost(best.device[None])[0] == best.cost < start.cost
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), tuned.params, params)
    assert 0 < max(jax.tree.leaves(moved)) < 0.1
    # The first steps are those of a rollout with the parameters before.
    first = jax.random.split(jax.random.key(0), 4)[0]
    state, _, costs = go.rollout(
        first, params, inputs, start, cost, iterations=3, settings=settings
    )
    np.testing.assert_array_equal(costs, history[:3])


def test_a_policy_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "policy.npz"
    go.save_policy(path, parameters(), SETTINGS, origin={"seed": 1})
    params, settings = go.load_policy(path)
    assert settings == SETTINGS
    jax.tree.map(np.testing.assert_array_equal, params, parameters())
    with pytest.raises(FileNotFoundError):
        go.load_policy(tmp_path / "none.npz")
    go.save_policy(path, parameters(), dataclasses.replace(SETTINGS, width=32))
    with pytest.raises(ValueError, match="parameters of other shapes than its settings say"):
        go.load_policy(path)
    params, values = load_weights(path)
    for wrong, message in (
        (dict(system="regal"), "holds a policy for other system than this version"),
        (dict(version=0), "holds a policy for other version than this version"),
        (dict(kinds=["other"]), "holds a policy for other kinds than this version"),
        (dict(settings={"levels": [4], "depth": 3}), "holds no settings of a policy of GO"),
    ):
        save_weights(path, params, values | wrong)
        with pytest.raises(ValueError, match=message):
            go.load_policy(path)
