"""Placeto: what its network reads and says, what it is rewarded for, and that it learns."""

import dataclasses
import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, Shape, from_ops
from gopt.sources.synthetic import layered
from gopt.systems import placeto
from gopt.systems.one_graph import placement_cost
from tests.reference import placeto as reference
from tests.strategies import NASTY

SHAPE = Shape(48, 48, 160)
SETTINGS = placeto.Settings(groups=5, rounds=2, episodes=2, memory=3, learning_rate=0.01)


def branches():
    """Two branches of two ops and where they meet; each op has a weight that is dear to send."""
    weights = [Op("input", outputs=(Output(1000.0),)) for _ in range(5)]
    reads = ((), (5,), (), (7,), (6, 8))
    ops = [
        Op("dot_general", ((k, 0), *((i, 0) for i in near)), (Output(10.0),), flops=1000.0)
        for k, near in enumerate(reads)
    ]
    return from_ops([*weights, *ops])


GRAPHS = {"branches": branches, "layered": lambda: layered(0, 40), **NASTY}
visits = jax.jit(placeto.visits, static_argnames="settings")
NAMES = ("branches", "one op", "no edges", "chain", "hub")


@cache
def case(name, devices=2, more=0):
    graph = padding.pad(GRAPHS[name](), Shape(*(rows + more for rows in SHAPE)))
    machine = unit_rate_devices(devices, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)
    problem = prepare(graph, machine)
    return problem, placeto.inputs(graph, problem, settings=SETTINGS)


@cache
def parameters(devices=2):
    init = partial(placeto.init, settings=SETTINGS)
    params = jax.eval_shape(init, jax.random.key(0), case("branches", devices)[1])
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(np.float32), params)


@pytest.mark.parametrize("name", GRAPHS)
def test_groups_are_read_as_by_the_reference_whatever_the_padding(name):
    problem, inputs = case(name)
    n, count = int(problem.num_ops), len(inputs.about)
    group = np.asarray(inputs.group)
    assert 1 <= count <= SETTINGS.groups and set(group[:n].tolist()) == set(range(count))
    firsts = [np.flatnonzero(group[:n] == k)[0] for k in range(count)]
    assert firsts == sorted(firsts)
    pairs = reference.uses(problem, group)
    for i, j in itertools.product(range(count), repeat=2):
        assert inputs.reads[j, i] == ((i, j) in pairs)
        assert inputs.above[j, i] == (j in reference.reached(pairs, i))
        away = not (inputs.above[i, j] or inputs.above[j, i]) and i != j
        assert inputs.beside[i, j] == away
    time = [float(np.asarray(problem.op_ticks)[:n, 0][group[:n] == k].sum()) for k in range(count)]
    np.testing.assert_allclose(inputs.about[:, 0], time / np.maximum(max(time), 1e-9), rtol=1e-5)
    made = np.zeros(count)
    for t in range(int(problem.num_tensors)):
        made[group[problem.producer[t]]] += float(problem.size[t])
    np.testing.assert_allclose(inputs.about[:, 1], made / max(made.max(), 1e-9), rtol=1e-5)
    wide = case(name, 2, 7)[1]
    np.testing.assert_array_equal(wide.group[:n], group[:n])
    for one, other in zip(inputs[2:], wide[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_is_what_the_reference_says(name):
    _, inputs = case(name, 3)
    last = np.random.default_rng(0).integers(0, 3, len(inputs.about)).astype(np.int32)
    found = visits(parameters(3), inputs, np.zeros_like(last), last, settings=SETTINGS)
    expected = reference.visits(parameters(3), inputs, last.tolist(), SETTINGS.rounds)
    np.testing.assert_allclose(found.log_prob, expected[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.entropy, expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_episodes_are_drawn_as_often_as_is_said():
    _, inputs = case("branches")
    every = jnp.array([*itertools.product(range(2), repeat=5)], jnp.int32)
    each = jax.vmap(
        lambda last: visits(
            parameters(), inputs, jnp.zeros(5, jnp.int32), last, settings=SETTINGS
        ).log_prob.sum()
    )
    likely = np.exp(each(every))
    assert likely.sum() == pytest.approx(1, rel=1e-4) and (likely > 0.02).sum() > 3

    @jax.vmap
    def episode(key):
        def visit(device, row):
            k, to_visit = row
            drawn = placeto.sample(to_visit, parameters(), inputs, device, k, settings=SETTINGS)
            return drawn, None

        rows = jnp.arange(5), jax.random.split(key, 5)
        device, _ = jax.lax.scan(visit, jnp.zeros(5, jnp.int32), rows)
        return device @ (2 ** jnp.arange(4, -1, -1))

    drawn = np.bincount(jax.jit(episode)(jax.random.split(jax.random.key(3), 4000)), minlength=32)
    assert np.abs(drawn / 4000 - likely).max() < 0.03


def test_returns_are_what_costs_fall_by_until_the_end():
    costs = jnp.array([[8.0, 6.0, 7.0], [12.0, np.nan, 5.0], [np.inf, 20.0, 1e9]])
    found = placeto.returns(jnp.float32(10.0), costs, jnp.float32(10.0), SETTINGS)
    np.testing.assert_allclose(
        found, [[0.3, 0.1, -0.1], [0.5, 0.7, 99.5], [-99, 0, -98]], rtol=1e-5, atol=1e-6
    )
    found = placeto.returns(jnp.float32(np.inf), costs[:1], jnp.float32(8.0), SETTINGS)
    np.testing.assert_allclose(found, [[99.125, 0.125, -0.125]], rtol=1e-5)


@pytest.mark.slow
def test_a_step_follows_the_gradient_against_the_mean_of_the_last_steps():
    problem, inputs = case("branches")
    settings = dataclasses.replace(SETTINGS, steps=10)
    task = placeto.Task(inputs, placement_cost(problem, "makespan"))
    state = placeto.start(parameters(), task, settings=settings).replace(
        returns=jnp.array([[np.nan] * 5, [0.5] * 5, [0.1] * 5]), step=jnp.int32(4)
    )
    found = jax.jit(partial(placeto.step, settings=settings))(state, jax.random.key(1), task)
    after, metrics = jax.device_get(found)
    costs = metrics["costs"]
    assert costs.shape == (5, 2)
    followed = np.asarray(placeto.returns(state.first, costs.T, state.first, SETTINGS))
    np.testing.assert_allclose(after.returns[:2], [[0.5] * 5, [0.1] * 5])
    np.testing.assert_allclose(after.returns[2], followed.mean(0), rtol=1e-5, atol=1e-6)
    baseline = (0.5 + 0.1 + followed.mean(0)) / 3
    # The same episodes, which are told apart by their costs.
    rows = [*itertools.product(range(2), repeat=5)]
    visited = np.array(rows)[:, None] * np.tri(5, dtype=np.int32)  # the others are where they were
    every = np.asarray(_cost(problem, placed(inputs, visited.reshape(-1, 5)))).reshape(-1, 5)
    each = dict(zip(rows, every, strict=True))
    last = [min(rows, key=lambda row, e=e: np.abs(each[row] - costs[:, e]).max()) for e in (0, 1)]
    np.testing.assert_allclose([each[row] for row in last], costs.T, rtol=1e-6)

    def surrogate(params):
        value = 0.0
        for row, gained in zip(last, followed, strict=True):
            said = reference.visits(params, inputs, list(row), SETTINGS.rounds)
            value -= np.mean((gained - baseline) * said[0]) / 2
            value -= SETTINGS.entropy * 0.6 * said[1].mean() / 2
        return value

    told = jnp.array(last, jnp.int32), followed, baseline, SETTINGS.entropy * 0.6
    slopes = jax.jit(jax.grad(partial(placeto.loss, settings=SETTINGS), has_aux=True))
    gradient, _ = jax.device_get(slopes(parameters(), placeto.Trajectory(inputs, *told)))
    rng = np.random.default_rng(0)
    for _ in range(4):
        way = jax.tree.map(lambda x: rng.normal(size=x.shape), parameters())
        near = [jax.tree.map(lambda x, w, e=e: x + e * w, parameters(), way) for e in (1e-5, -1e-5)]
        slope = float(surrogate(near[0]) - surrogate(near[1])) / 2e-5
        along = sum(
            np.sum(g * w) for g, w in zip(*map(jax.tree.leaves, (gradient, way)), strict=True)
        )
        assert abs(slope) > 1e-3 and float(along) == pytest.approx(slope, rel=5e-3, abs=1e-4)
    # Adam, at the beginning: all weights that have a gradient move as far.
    rate = 0.01
    for before, now, slope in zip(
        *map(jax.tree.leaves, (state.params, after.params, gradient)), strict=True
    ):
        moved = np.abs(slope) > 1e-4
        expected = before - rate * np.sign(slope)
        np.testing.assert_allclose(now[moved], expected[moved], rtol=1e-2, atol=1e-4)


placed = jax.jit(jax.vmap(placeto.placement, (None, 0)))


@jax.jit
def _cost(problem, device):
    return placement_cost(problem, "makespan")(device)


@pytest.mark.slow
def test_training_makes_what_is_fast_likelier_and_keeps_the_best():
    problem, inputs = case("branches")  # to part them saves two fifths of the time
    steps = 100
    settings = dataclasses.replace(SETTINGS, episodes=8, entropy=0.01, last_rate=0.01)
    run = jax.jit(
        partial(
            placeto.run, cost=placement_cost(problem, "makespan"), steps=steps, settings=settings
        )
    )
    state, costs = run(jax.random.key(0), inputs)
    assert costs.shape == (steps, len(inputs.about), 8)
    last = np.asarray(costs)[:, -1]
    assert last[-15:].mean() < 0.9 * last[:15].mean() and last[-15:].mean() < 0.75 * state.first
    assert state.cost == min(costs.min(), state.first) == _cost(problem, state.device[None])[0]
    np.testing.assert_array_equal(dispatch.legalize_placement(problem, state.device), state.device)


@pytest.mark.slow
def test_what_has_no_cost_is_never_the_best():
    _, inputs = case("branches")

    def cost(device, first):
        total = jnp.where(inputs.problem.is_input, 0, device).sum(1)
        found = jnp.where(total % 3 == 0, jnp.nan, 100.0 - total)
        return jnp.where(total == 0, first, found)

    @jax.jit
    def run(first):
        of_placements = partial(cost, first=first)
        return placeto.run(jax.random.key(0), inputs, of_placements, steps=3, settings=SETTINGS)

    for first in (3.0, np.inf):
        state, costs = run(first)
        known = [first, *np.asarray(costs)[np.isfinite(costs)].tolist()]
        assert state.cost == min(known) and np.isfinite(state.unit)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
