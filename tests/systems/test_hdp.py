"""HDP: what its networks read, the probabilities of what they say, and that REINFORCE learns."""

import dataclasses
import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, Shape, from_ops
from gopt.sources.synthetic import layered
from gopt.systems import hdp
from gopt.systems.one_graph import placement_cost
from tests.reference import hdp as reference
from tests.strategies import NASTY
from tests.tiers import slow

SHAPE = Shape(48, 48, 160)
SETTINGS = hdp.Settings(
    per_device=2, hidden=8, spread=2.0, width=8, bound=5.0, temperature=1.0, placements=3
)
GRAPHS = {"layered": lambda: layered(0, 40), **NASTY}
log_prob, sample = (
    jax.jit(function, static_argnames="settings") for function in (hdp.log_prob, hdp.sample)
)
members, group_embedding = (
    jax.jit(function, static_argnums=2) for function in (hdp.members, hdp.group_embedding)
)
placements = jax.jit(hdp.placements)


@cache
def case(name, devices=2, more=0):
    """An unpadded graph, and what is read of it with padding."""
    graph = GRAPHS[name]()
    padded = padding.pad(graph, Shape(*(rows + more for rows in SHAPE)))
    machine = unit_rate_devices(devices, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)
    return graph, hdp.inputs(padded, prepare(padded, machine), settings=SETTINGS)


@cache
def parameters(devices=2):
    """Parameters of which everything that is said depends on everything that is read."""
    params = hdp.init(jax.random.key(0), case("layered", devices)[1], settings=SETTINGS)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: rng.normal(scale=0.6, size=x.shape).astype(np.float32), params)


def random_actions(inputs, n, seed=0):
    """Actions; those of padding mean nothing."""
    rng, devices = np.random.default_rng(seed), inputs.problem.num_devices
    groups = SETTINGS.groups_on(devices)
    group = np.zeros((2, len(inputs.kind)), np.int32)
    group[:, :n] = rng.integers(0, groups, (2, n))
    device = rng.integers(0, devices, (2, 3, groups), np.int32)
    return hdp.Action(group, device)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_read_is_as_said_whatever_the_padding(name):
    graph, inputs = case(name)
    n = int(graph.num_ops)
    expected = reference.features(graph, inputs.problem)
    np.testing.assert_allclose(inputs.features[:n], expected, atol=1e-5)
    assert not inputs.features[n:].any() and not inputs.is_placed[n:].any()
    unpadded = hdp.inputs(graph, prepare(graph, unit_rate_devices(2)), settings=SETTINGS)
    for field in hdp.Inputs._fields[1:]:
        found, wide = (np.asarray(getattr(x, field))[:n] for x in (unpadded, inputs))
        # The leader of an op is an op, or, where nobody reads an input, itself.
        np.testing.assert_array_equal(found, wide)


def test_of_an_op_with_many_outputs_and_neighbours_the_first_are_read():
    outputs = tuple(Output(1.0, shape=tuple(range(2, 2 + rank))) for rank in range(7))
    ops = [Op("input", outputs=outputs)]
    ops += [Op(inputs=tuple((0, k) for k in range(7)), outputs=outputs)]
    ops += [Op(inputs=((1, k % 7), (0, 1)), outputs=(Output(2.0),)) for k in range(15)]
    graph = from_ops(ops)
    inputs = hdp.inputs(graph, prepare(graph, unit_rate_devices(2)), settings=SETTINGS)
    np.testing.assert_allclose(
        inputs.features[:17], reference.features(graph, inputs.problem), atol=1e-5
    )
    assert inputs.dimensions[1].reshape(5, 5).tolist() == [
        [2 + k if k < rank else 0 for k in range(5)] for rank in range(5)
    ]


def test_large_graphs_are_read():
    """So large that a number for each pair of ops would not fit."""
    graph = layered(0, 44_000)
    inputs = hdp.inputs(graph, prepare(graph, unit_rate_devices(8)), settings=SETTINGS)
    assert inputs.features.shape[1:] == (45,) and np.isfinite(inputs.features).all()
    which = inputs.features[inputs.is_placed][:, 25:35]  # ops the neighbours are
    np.testing.assert_allclose(which.std(0), 1, rtol=1e-3)


@pytest.mark.parametrize("name", GRAPHS)
def test_groups_are_embedded_as_said(name):
    graph, inputs = case(name)
    n, groups = int(graph.num_ops), 5
    group = np.random.default_rng(2).integers(0, groups, len(inputs.kind))
    member = members(inputs, jnp.asarray(group), groups)
    expected = [groups if g is None else g for g in reference.member_of(inputs.problem, group)]
    assert np.asarray(member[:n]).tolist() == expected
    assert (np.asarray(member[n:]) == groups).all()
    found = group_embedding(inputs, member, groups)
    expected = reference.group_embedding(graph, inputs.problem, group, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("name", ["layered", "one op", "one input", "chain"])
def test_log_probabilities_are_those_of_the_networks(name, devices):
    graph, inputs = case(name, devices)
    n, params = int(graph.num_ops), parameters(devices)
    actions = random_actions(inputs, n)
    found = log_prob(params, inputs, actions, settings=SETTINGS)
    raw = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    groups = SETTINGS.groups_on(devices)
    features = reference.features(graph, inputs.problem)
    expected = np.zeros((2, 3))
    for m, group in enumerate(actions.group):
        grouping = 0.0
        for op in np.flatnonzero(inputs.is_placed):
            chances = reference.group_chances(
                raw, int(graph.kind[op]), features[op], SETTINGS.spread
            )
            grouping += np.log(chances[group[op]])
        embedding = reference.group_embedding(graph, inputs.problem, group, groups)
        for p, device in enumerate(actions.device[m]):
            bound, temperature = SETTINGS.bound, SETTINGS.temperature
            one = reference.device_log_prob(raw, embedding, device, bound, temperature)
            expected[m, p] = grouping + one
    assert devices == 1 or np.ptp(expected) > 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layered", "chain"])
def test_padding_changes_no_probability(name):
    graph, inputs = case(name)
    _, wide = case(name, more=9)
    n = int(graph.num_ops)
    found, again = (
        log_prob(parameters(), x, random_actions(x, n), settings=SETTINGS) for x in (inputs, wide)
    )
    np.testing.assert_allclose(found, again, rtol=1e-5)


def three_ops():
    ops = [Op("input", outputs=(Output(1.0),))]
    ops += [Op(inputs=((i, 0),), outputs=(Output(3.0),), flops=1.0) for i in range(3)]
    graph = from_ops(ops)
    return hdp.inputs(graph, prepare(graph, unit_rate_devices(2)), settings=SETTINGS)


@pytest.mark.slow
def test_samples_are_drawn_as_often_as_is_said():
    """Of all 16 groupings of 3 ops in 2 groups, and placements of these on 2 devices."""
    inputs = three_ops()
    settings = hdp.Settings(per_device=1, hidden=4, spread=1.0, width=4, temperature=0.5)
    params = hdp.init(jax.random.key(3), inputs, settings=settings)
    every = list(itertools.product(range(2), repeat=5))
    group = np.zeros((len(every), 5), np.int32)  # an input, three ops, padding
    group[:, 1:4] = [row[:3] for row in every]
    device = np.array([row[3:] for row in every], np.int32)[:, None]
    # One by one: groupings that are scored at once are unrolled.
    rows = [hdp.Action(group[k, None], device[k, None]) for k in range(len(every))]
    said = np.ravel([log_prob(params, inputs, row, settings=settings) for row in rows])
    chances = np.exp(np.asarray(said, np.float64))
    assert chances.sum() == pytest.approx(1, abs=1e-5) and np.ptp(chances) > 0.02

    draw = jax.jit(jax.vmap(partial(hdp.sample, settings=settings), (0, None, None)))
    drawn, likely = draw(jax.random.split(jax.random.key(4), 4000), params, inputs)
    code = np.concatenate(
        [np.broadcast_to(drawn.group[..., None, 1:4], (4000, 1, 4, 3)), drawn.device], -1
    ) @ [16, 8, 4, 2, 1]
    np.testing.assert_allclose(likely, said[code], atol=1e-5)
    # Placements of one grouping are drawn from the same: few are independent, hence the tolerance.
    count = np.bincount(code.ravel(), minlength=32)
    np.testing.assert_allclose(count / code.size, chances, atol=0.02)


@pytest.mark.slow
def test_noise_is_in_units_of_the_logits_and_in_what_is_said_of_them():
    inputs = three_ops()
    settings = hdp.Settings(
        **dict(per_device=1, hidden=4, spread=1.0, width=4, temperature=0.5, noise=1.5)
    )
    params = hdp.init(jax.random.key(3), inputs, settings=settings)
    draw = jax.jit(jax.vmap(partial(hdp.sample, settings=settings), (0, None, None)))
    drawn, likely = draw(jax.random.split(jax.random.key(4), 8000), params, inputs)
    logits = np.asarray(hdp.group_logits(params, inputs, settings=settings), np.float64)
    unit = np.sqrt(np.mean(logits**2))
    noise = np.random.default_rng(0).normal(size=(40_000, *logits.shape))
    second = 1 / (1 + np.exp(-np.diff(logits + 1.5 * unit * noise)[..., 0]))
    is_second = np.asarray(drawn.group)[:, 0, 1:4]
    np.testing.assert_allclose(is_second.mean(0), second.mean(0)[1:4], atol=0.03)
    # Whatever the noise, the inverse of the probability of what was drawn is, on average, how many
    # possibilities there are: 8 groupings and 4 placements.
    inverse = np.exp(-np.asarray(likely, np.float64))
    assert inverse.mean() == pytest.approx(32, rel=0.1)
    # What is the same is said to be more or less likely, groups and devices both.
    same = (is_second == is_second[0]).all(1)
    device = np.asarray(drawn.device)[:, 0]
    same = same[:, None] & (device == device[0, 0]).all(-1)
    assert same.sum() > 100 and np.std(np.asarray(likely)[:, 0][same]) > 0.2


@pytest.mark.parametrize("name", GRAPHS)
def test_ops_go_with_their_group_and_inputs_with_their_first_reader(name):
    graph, inputs = case(name, 3)
    n = int(graph.num_ops)
    actions = random_actions(inputs, n)
    placed = np.asarray(placements(inputs, actions)).reshape(2, 3, -1)
    for m, p in itertools.product(range(2), range(3)):
        member = reference.member_of(inputs.problem, actions.group[m])
        for op, group in enumerate(member):
            if group is not None:
                assert placed[m, p, op] == actions.device[m, p, group]


def test_ops_go_only_where_they_may():
    graph = padding.pad(layered(0, 40), SHAPE)
    allowed = np.ones((40, 3), bool)
    allowed[7] = allowed[12] = [False, True, False]
    inputs = hdp.inputs(
        graph, prepare(graph, unit_rate_devices(3), allowed=allowed), settings=SETTINGS
    )
    placed = np.asarray(placements(inputs, random_actions(inputs, 40)))
    assert (placed[:, [7, 12]] == 1).all() and len(np.unique(placed[:, :40])) == 3


@pytest.mark.slow
def test_a_step_is_one_of_reinforce():
    _, inputs = case("layered")
    settings = dataclasses.replace(SETTINGS, temperature=10.0)
    cost = jax.jit(placement_cost(inputs.problem, "makespan"))
    task = hdp.Task(inputs, cost)
    params = hdp.init(jax.random.key(0), inputs, settings=settings)
    state = hdp.start(params, task, settings=settings)
    unit = float(cost(jnp.zeros((1, len(inputs.kind)), jnp.int32))[0])
    state = state.replace(baseline=jnp.float32(-1.2), unit=jnp.float32(unit))
    key = jax.random.key(5)
    after, metrics = jax.jit(partial(hdp.step, settings=settings))(state, key, task)
    costs = metrics["costs"]
    actions, _ = sample(key, state.params, inputs, settings=settings)
    np.testing.assert_allclose(costs, cost(placements(inputs, actions)))
    rewards = -np.sqrt(np.asarray(costs) / unit)
    assert len(costs) == 3 and np.ptp(rewards) > 0.01

    def loss(params):
        likely = hdp.log_prob(params, inputs, actions, settings=settings)
        return -jnp.mean((rewards + 1.2) * likely[0])

    same = hdp.Trajectory(key, inputs, rewards[None], jnp.float32(-1.2))
    slopes = jax.jit(jax.grad(partial(hdp.loss, settings=settings), has_aux=True))
    adam = optax.adam(settings.learning_rate)
    optimizer = optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), adam)
    gradient = jax.jit(jax.grad(loss))(state.params)
    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5)
    jax.tree.map(close, slopes(state.params, same)[0], gradient)
    updates, _ = jax.jit(optimizer.update)(gradient, jax.jit(optimizer.init)(state.params))
    leaves = map(jax.tree.leaves, jax.device_get((after.params, state.params, updates, gradient)))
    for found, before, update, slope in zip(*leaves, strict=True):
        # The first step of Adam is as large for rounding errors.
        sure = np.abs(slope) > 1e-2 * np.abs(slope).max()
        assert sure.any()
        np.testing.assert_allclose((found - before)[sure], update[sure], rtol=1e-2)
    assert after.baseline == pytest.approx(-1.2 * 0.9 + 0.1 * rewards.mean(), rel=1e-5)
    assert after.unit == np.float32(unit)


@pytest.mark.slow
def test_both_networks_learn():
    """Late ops are better on the other device: the grouper, too, must tell them from early ones.

    Half of the ops that are placed, 0.4 of all rows, are wrong as long as one of the two does not
    learn, on one device as at random.
    """
    _, inputs = case("layered")
    settings = hdp.Settings(per_device=2, hidden=8, spread=1.0, width=8, learning_rate=0.03)
    late = jnp.arange(len(inputs.kind)) >= 20

    def cost(placed):
        return 1 + jnp.mean(inputs.is_placed & (placed != late), -1)

    run = jax.jit(partial(hdp.run, cost=cost, steps=300, settings=settings))
    for seed in range(3):
        _, history = run(jax.random.key(seed), inputs)
        assert history[:5].mean() > 1.25
        assert history[-40:].mean() < 1.15


@jax.jit
def run(key, inputs):
    cost = placement_cost(inputs.problem, "makespan")
    return hdp.run(key, inputs, cost=cost, steps=6, settings=SETTINGS)


@jax.jit
def evaluate(problem, device):
    return dispatch.evaluate(problem, dispatch.placement(problem, device))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one input", *slow("layered")])
def test_the_best_that_was_drawn_is_kept(name):
    _, inputs = case(name, 3)
    state, history = run(jax.random.key(0), inputs)
    assert history.shape == (6, 3) and state.cost == history.min()
    assert state.unit == pytest.approx(float(history[0].mean()), rel=1e-6)
    again = evaluate(inputs.problem, state.device)
    assert np.float32(again.makespan) == state.cost
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


@pytest.mark.slow
def test_what_has_no_finite_cost_counts_as_failing_and_is_never_the_best():
    unit = jnp.float32(4)
    costs = jnp.float32([1, 4, 100, 1e9, jnp.inf, jnp.nan, -jnp.inf])
    expected = [-0.5, -1, -5, -10, -10, -10, -10]
    np.testing.assert_allclose(hdp.reward(costs, unit, SETTINGS), expected, rtol=1e-6)
    _, inputs = case("layered")

    @jax.jit
    def stepped(costs):
        task = hdp.Task(inputs, lambda placed: costs)
        params = hdp.init(jax.random.key(0), inputs, settings=SETTINGS)
        state = hdp.start(params, task, settings=SETTINGS)
        return hdp.step(state, jax.random.key(1), task, settings=SETTINGS)[0]

    def after(*costs):
        return stepped(jnp.float32(costs))

    state = after(jnp.nan, 7, jnp.inf)
    assert state.cost == 7 and state.unit == 7
    assert state.baseline == pytest.approx(-7)
    state = after(jnp.nan, jnp.inf, -jnp.inf)
    assert state.cost == jnp.inf and state.unit == jnp.inf and state.baseline == -10
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    state = after(0, 0, 0)
    assert state.cost == 0 and np.isfinite(state.baseline)


@pytest.mark.slow
def test_64_bit_mode_changes_nothing():
    _, inputs = case("chain")
    cost = placement_cost(inputs.problem, "makespan")
    run = jax.jit(partial(hdp.run, cost=cost, steps=2, settings=SETTINGS))
    with jax.enable_x64(True):
        state, history = run(jax.random.key(0), inputs)
    assert state.device.dtype == jnp.int32 and state.cost.dtype == history.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.float32.dtype}


def test_another_graph_than_that_of_the_problem_raises():
    problem = prepare(layered(0, 30), unit_rate_devices(2))
    with pytest.raises(ValueError, match=r"problem has Shape\(ops=30.*: expected those of the"):
        hdp.inputs(layered(0, 40), problem, settings=SETTINGS)


def test_no_steps_raise():
    _, inputs = case("chain")
    cost = placement_cost(inputs.problem, "makespan")
    with pytest.raises(ValueError, match="steps is 0: expected 1 at least"):
        hdp.run(jax.random.key(0), inputs, cost, steps=0, settings=SETTINGS)


def test_there_are_as_many_groups_as_published():
    assert [hdp.Settings().groups_on(devices) for devices in (2, 4, 8, 16)] == [40, 80, 160, 256]
