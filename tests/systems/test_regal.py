import dataclasses
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.execution import evaluate
from gopt.cost.schedule.objectives import objective
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Op, Output, Shape
from gopt.heuristics.schedule.placement.spectral import sides
from gopt.learning.graphs import OP_FEATURES, GraphsTuple, Guide, to_graphs_tuple
from gopt.learning.layers.recurrent import Feedback
from gopt.search import brkga
from gopt.search.parallel import shard_candidates
from gopt.systems import regal
from tests.reference import losses as reference
from tests.strategies import random_graph

SETTINGS = regal.Settings(bins=6, width=8, rounds=2, trust=1.0, heavy_share=0.5)
SHAPE = Shape(24, 24, 64)
POPULATION = brkga.Settings(population=10, elites=3, mutants=2)
DEVICES = 2
GENES = DEVICES + 1
PLACES = len(regal.PLACES)


@cache
def batch() -> tuple[tuple[Graph, ...], GraphsTuple]:
    """Three graphs of different sizes, and their batch."""
    rng = np.random.default_rng(0)
    found = tuple(random_graph(rng, ops, 0.2, "distinct") for ops in (23, 5, 14))
    tuples = [to_graphs_tuple(padding.pad(graph, SHAPE)) for graph in found]
    return found, jax.tree.map(lambda *x: np.stack(x), *tuples)


def one(index: int) -> GraphsTuple:
    return jax.tree.map(lambda x: x[index], batch()[1])


def untrained(settings: regal.Settings) -> Any:
    return regal.init(jax.random.key(0), regal.on_devices(one(0), 2), settings=settings)


@cache
def params() -> Any:
    """Random weights, not those of `init`."""
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda x: rng.normal(scale=0.5, size=x.shape).astype(np.float32),
        jax.eval_shape(partial(untrained, SETTINGS)),
    )


@jax.jit
def policy(params: Any, graphs: GraphsTuple) -> jax.Array:
    return regal.apply(params, graphs, settings=SETTINGS)


def varied(settings: regal.Settings) -> list[str]:
    """How each place varies, as in the reference: not, fully, or without a constant."""
    led = [place for part in settings.parts for place in regal.PARTS[part]]
    centred = ("x", "y", "priority")
    return [
        "not" if place not in led else "without" if place in centred else "fully"
        for place in regal.PLACES
    ]


# Proposals.


@pytest.mark.parametrize("bins", [4, 16])
def test_betas_have_the_means_and_deviations_that_they_are_for(bins):
    table = regal.betas(bins).astype(np.float64)
    assert table.shape[0] == bins**2
    low, high = table[:, :-1], table[:, 1:]
    assert (high >= low).all() and (low >= 0).all() and (high <= 1).all()
    # Moments of the linear interpolation between quantiles.
    mean = ((low + high) / 2).mean(1).reshape(bins, bins)
    square = ((low**2 + low * high + high**2) / 3).mean(1).reshape(bins, bins)
    deviation = np.sqrt(square - mean**2)
    asked = (np.arange(bins) + 0.5) / bins
    np.testing.assert_allclose(mean, np.broadcast_to(asked[:, None], mean.shape), atol=0.01)
    largest = np.sqrt(asked * (1 - asked))[:, None]
    share = deviation / largest
    np.testing.assert_allclose(share[:, 0], 0.02, rtol=0.1)
    np.testing.assert_allclose(share[:, -1], 1 / np.sqrt(3), rtol=0.1)
    ratio = share[:, 1:] / share[:, :-1]
    np.testing.assert_allclose(ratio, (1 / np.sqrt(3) / 0.02) ** (1 / (bins - 1)), rtol=0.06)


def test_the_widest_beta_at_one_half_is_uniform():
    row = regal.betas(5)[2 * 5 + 4]
    np.testing.assert_allclose(row, np.linspace(0, 1, len(row)), atol=0.01)
    assert np.abs(regal.betas(5)[2 * 5 + 3] - np.linspace(0, 1, len(row))).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shifted", "second"), [((0, 0), (2, 4)), ((-1, -2), (1, 2)), ((9, 9), (4, 4))]
)
def test_samples_lie_where_the_action_says(shifted, second):
    bins, count = 5, 20_000
    # Tensor 0 is read by ops 1 and 2, tensor 1 by op 2, tensor 2 by nobody.
    graph = graphs.from_ops(
        [
            Op(outputs=(Output(4),)),
            Op(inputs=((0, 0),), outputs=(Output(4),)),
            Op(inputs=((0, 0), (1, 0)), outputs=(Output(4),)),
        ]
    )
    task = prepare(padding.pad(graph, Shape(4, 4, 4)), unit_rate_devices(2), seconds=np.ones(3))
    rng = np.random.default_rng(0)
    betas = rng.integers(0, bins, (4, GENES, 2))
    betas[:3] = [
        [(0, 0), (4, 1), (2, 4)],  # distinct for devices and priority, mean and deviation
        [(1, 3), (2, 2), (0, 1)],
        [(3, 1), (0, 4), (2, 4)],
    ]
    uniforms = Keys(
        *(rng.random((count, *s), np.float32) for s in ((4, GENES - 1), (4,), (4, GENES - 1)))
    )
    settings = dataclasses.replace(SETTINGS, bins=bins, trust=1.0)
    shift = np.zeros((4, 2), int)
    shift[1] = shifted  # of tensor 1
    action = regal.Action(jnp.asarray(betas), jnp.zeros(4, int), jnp.asarray(shift))
    drawn = jax.jit(regal.proposal(task, action, settings))(uniforms)
    genes = np.concatenate([drawn.device, drawn.priority[..., None], drawn.transfer], -1)
    expected = np.concatenate([betas, np.zeros((4, 2, 2), int)], 1)
    expected[0, GENES:] = betas[1, -1]  # the first reader of tensor 0
    expected[1, GENES:] = second  # that of tensor 1 is op 2
    real = np.ones((4, 2 * GENES - 1), bool)
    real[2:, GENES:] = False
    mean = (expected[..., 0] + 0.5) / bins
    share = np.geomspace(0.02, 1 / np.sqrt(3), bins)[expected[..., 1]]
    deviation = share * np.sqrt(mean * (1 - mean))
    np.testing.assert_allclose(genes.mean(0)[real], mean[real], atol=0.015)
    np.testing.assert_allclose(genes.std(0)[real], deviation[real], rtol=0.1)
    assert genes.min() >= 0 and genes.max() <= 1
    # Genes are independent.
    correlation = np.corrcoef(genes.reshape(count, -1).T)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 0.05
    # Of the candidates, the last ones stay uniform.
    some = dataclasses.replace(settings, trust=0.3)
    mixed = jax.jit(regal.proposal(task, action, some))(uniforms)
    kept = round(0.3 * count)
    for mix, own, uniform in zip(mixed, drawn, uniforms, strict=True):
        np.testing.assert_array_equal(mix, np.concatenate([own[:kept], uniform[kept:]]))


# The policy.


@pytest.mark.slow
def test_places_do_not_depend_on_padding_or_on_the_batch():
    graph, n = batch()[0][2], int(batch()[0][2].num_ops)
    places = policy(params(), one(2))
    assert places.shape == (SHAPE.ops, PLACES)
    assert np.isfinite(places).all()
    assert np.std(places[:n], 0).min() > 1e-2
    wide = to_graphs_tuple(padding.pad(graph, Shape(31, 40, 99)))
    alone = policy(params(), wide)
    scale = np.abs(places[:n]).max()
    np.testing.assert_allclose(alone[:n] / scale, places[:n] / scale, atol=1e-5)
    together = jax.vmap(policy, (None, 0))(params(), batch()[1])
    np.testing.assert_allclose(together[2] / scale, places / scale, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("lean", "follow"), [(0.5, 0.0), (0.0, 0.4)])
def test_an_untrained_policy_follows_the_guide(lean, follow):
    settings = regal.Settings(width=8, rounds=1, lean=lean, follow=follow)
    places = regal.apply(untrained(settings), one(0), settings=settings)
    n = 23
    features = one(0).nodes["features"][:n]
    expected = np.zeros((n, PLACES))
    for axis in range(2):
        expected[:, axis] = lean * features[:, OP_FEATURES.index(f"side_{'xy'[axis]}")]
    expected[:, 2:6] = settings.device_deviation, 0, settings.priority_deviation, 0.4
    expected[:, 3] = follow * features[:, OP_FEATURES.index("turn")]
    np.testing.assert_allclose(places[:n], expected, atol=0.1)
    assert np.ptp(expected[:, 0]) >= 1.4 * lean and np.ptp(expected[:, 3]) >= 0.9 * follow


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_an_action_is_the_levels_of_the_places(devices):
    settings = dataclasses.replace(SETTINGS, parts=tuple(regal.PARTS))
    act = jax.jit(partial(regal.act, None, settings=settings))
    action = act(params(), regal.on_devices(one(0), devices))
    got = action.genes
    assert got.shape == (SHAPE.ops, devices + 1, 2) and got.dtype == jnp.int32
    n, bins = 23, SETTINGS.bins
    places = np.asarray(policy(params(), one(0))[:n], np.float64)
    weight = one(0).nodes["features"][:n, OP_FEATURES.index("made")]
    columns = [OP_FEATURES.index(f"side_{axis}") for axis in "xy"]
    guide = SETTINGS.lean * one(0).nodes["features"][:n, columns]
    middle = np.average(places[:, :2] - guide, axis=0, weights=weight)
    assert np.abs(middle).min() > 0.01 and np.abs(guide).max() > 0.1
    fade = np.exp(-one(0).nodes["features"][:n, OP_FEATURES.index("share")] / SETTINGS.heavy_share)
    assert fade.min() < 0.9
    runs = one(0).nodes["features"][:n, OP_FEATURES.index("is_input")] == 0
    assert 0 < runs.sum() < n
    genes = np.empty((n, devices + 1, 2))
    for i, (x, y, wide, priority, priority_wide, *_) in enumerate(places):
        for device in range(devices):
            angle = 2 * np.pi * device / devices
            along = (x - middle[0]) * np.cos(angle) + (y - middle[1]) * np.sin(angle)
            genes[i, device] = 0.5 + fade[i] * along, wide
        wider = fade[i] * priority_wide + (1 - fade[i])
        genes[i, devices] = priority + 0.5 - places[runs, 3].mean(), wider
    clear = np.abs((genes * bins) % 1 - 0.5) < 0.499
    assert clear.mean() > 0.9 and len(np.unique(got[:n])) > 3
    levels = np.clip(np.floor(genes * bins), 0, bins - 1)
    np.testing.assert_array_equal(np.asarray(got)[:n][clear], levels[clear])
    assert got.min() == 0 and got.max() == bins - 1
    for place, other in (
        (5, action.elite_bias),
        (6, action.transfer[:, 0]),
        (7, action.transfer[:, 1]),
    ):
        value = bins * places[:, place]
        if place == 5:
            expected, clear = np.clip(np.floor(value), 0, bins - 1), np.abs(value % 1 - 0.5) < 0.499
        else:
            expected, clear = np.clip(np.round(value), -bins, bins), np.abs(value % 1 - 0.5) > 1e-3
        np.testing.assert_array_equal(np.asarray(other)[:n][clear], expected[clear])
        assert len(np.unique(expected)) > 2
    # Samples are quantised in the same way.
    taken = jnp.stack([jnp.zeros((SHAPE.ops, PLACES)), policy(params(), one(0))])
    both = regal.quantise(taken, one(0), devices=devices, settings=settings)
    jax.tree.map(lambda many, single: np.testing.assert_array_equal(many[1], single), both, action)


@pytest.mark.slow
def test_a_guide_on_one_device_stays_there():
    settings = regal.Settings(width=8, rounds=1)
    graph, n = batch()[0][0], int(batch()[0][0].num_ops)
    for device, others in ((0, [1, 2]), (2, [0, 1])):
        side = sides(np.full(n, device), 3)
        read = to_graphs_tuple(graph, Guide(np.arange(n), side))
        inputs = regal.on_devices(read, 3)
        first = regal.init(jax.random.key(0), inputs, settings=settings)
        mean = regal.act(None, first, inputs, settings=settings).genes[:n, :-1, 0]
        share = read.nodes["features"][:n, OP_FEATURES.index("share")]
        light = share < settings.heavy_share
        assert light.sum() > 2
        assert (mean[light][:, [device]] > mean[light][:, others]).all()


@pytest.mark.slow
@pytest.mark.parametrize("part", list(regal.PARTS))
def test_what_is_not_led_is_as_in_standard_brkga(part):
    """All parts, but one, are those of a policy that leads them all."""
    every = dataclasses.replace(SETTINGS, parts=tuple(regal.PARTS))
    rest = dataclasses.replace(every, parts=tuple(p for p in regal.PARTS if p != part))
    inputs = regal.on_devices(one(0), 2)
    whole, got = (regal.act(None, params(), inputs, settings=s) for s in (every, rest))
    bins = SETTINGS.bins
    expected = {
        "placement": whole._replace(
            genes=whole.genes.at[:, :2].set(jnp.array([bins // 2, bins - 1]))
        ),
        "scheduling": whole._replace(
            genes=whole.genes.at[:, 2].set(jnp.array([bins // 2, bins - 1]))
        ),
        "elite_bias": whole._replace(elite_bias=jnp.full(SHAPE.ops, int(0.4 * bins))),
        "transfers": whole._replace(transfer=jnp.zeros((SHAPE.ops, 2), jnp.int32)),
    }[part]
    assert any((a != b).any() for a, b in zip(whole, got, strict=True))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    taken = regal.sample(jax.random.key(0), params(), one(0), samples=2, settings=rest)
    noise = np.ptp(np.asarray(taken)[:, :23], 0).max(0) > 0
    led = [place not in regal.PARTS[part] for place in regal.PLACES]
    np.testing.assert_array_equal(noise, led)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"network": "recurrent"}, {"head": "autoregressive"}])
def test_variants_of_the_policy_do_not_depend_on_padding_and_start_alike(changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    graph, n = batch()[0][2], int(batch()[0][2].num_ops)
    first = untrained(settings)
    rng = np.random.default_rng(3)
    moved = jax.tree.map(
        lambda x: x + rng.normal(scale=0.3, size=x.shape).astype(np.float32), first
    )
    wide = to_graphs_tuple(padding.pad(graph, Shape(31, 40, 99)))
    places = regal.apply(moved, one(2), settings=settings)
    alone = regal.apply(moved, wide, settings=settings)
    assert np.isfinite(places).all() and np.std(places[:n], 0).min() > 1e-2
    np.testing.assert_allclose(alone[:n], places[:n], atol=1e-4)
    start = policy(untrained(SETTINGS), one(2))
    np.testing.assert_allclose(
        regal.apply(first, one(2), settings=settings)[:n], start[:n], atol=0.2
    )


def test_what_an_op_is_told_moves_only_those_after_it():
    head = Feedback(8)
    rng = np.random.default_rng(3)
    base = jnp.asarray(rng.normal(size=(SHAPE.ops, PLACES)), jnp.float32)
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(scale=0.3, size=x.shape), jnp.float32),
        head.init(jax.random.key(0), base),
    )
    places = np.asarray(head.apply(params, base), np.float64)
    kept, told, moves = (np.asarray(params["params"][k]) for k in ("kept", "told", "moves"))
    state, expected = np.zeros(8), []
    for row in np.asarray(base, np.float64):
        expected.append(row + state @ moves)
        state = np.tanh(state @ kept + expected[-1] @ told)
    np.testing.assert_allclose(places, expected, atol=1e-4)
    differs = np.abs(head.apply(params, base.at[9].add(1.0)) - places).max(1)
    assert differs[:9].max() < 1e-4 and (differs[9:13] > 1e-3).all()


@pytest.mark.slow
@pytest.mark.parametrize("head", list(regal.HEADS))
def test_the_score_is_zero_on_average(head):
    """As it is for any density that `sample` draws from."""
    settings = dataclasses.replace(SETTINGS, head=head)
    rng = np.random.default_rng(3)
    moved = jax.tree.map(
        lambda x: x + rng.normal(scale=0.2, size=x.shape).astype(np.float32), untrained(settings)
    )
    taken = regal.sample(jax.random.key(1), moved, one(0), samples=1000, settings=settings)

    def log_probs(params: Any) -> jax.Array:
        places = regal.apply(params, one(0), settings=settings)
        return regal.log_prob(places, taken, one(0), settings=settings)

    scores = jax.tree.leaves(jax.jit(jax.jacrev(log_probs))(moved))
    for score in scores:
        error = score.std(0) / np.sqrt(len(score))
        far = np.abs(score.mean(0)) > 4.5 * error + 1e-6
        assert not far.any()
    assert max(float(score.std()) for score in scores) > 0.1


def test_the_elite_bias_is_shared_by_the_genes_of_an_op():
    task = jax.tree.map(lambda x: x[0], rows()[1])
    level = jnp.arange(SHAPE.ops) % SETTINGS.bins
    action = jax.tree.map(lambda x: x[0], rows()[3])._replace(elite_bias=level)
    bias = regal.elite_bias(task, action, SETTINGS)
    expected = 0.5 + (np.arange(SHAPE.ops) % SETTINGS.bins + 0.5) / (2 * SETTINGS.bins)
    np.testing.assert_allclose(bias.priority, expected, rtol=1e-6)
    np.testing.assert_array_equal(bias.device, bias.priority[:, None])
    for tensor in range(int(task.num_tensors)):
        readers = np.asarray(task.consumer)[np.asarray(task.tensor) == tensor]
        if readers.size:
            assert bias.transfer[tensor] == bias.priority[readers.min()]


@pytest.mark.slow
def test_noise_has_the_size_asked_for_and_is_shared_by_ops_with_like_features():
    every = tuple(regal.PARTS)
    settings = dataclasses.replace(SETTINGS, exploration=0.2, parts=every)
    sample = jax.jit(partial(regal.sample, samples=2000, settings=settings))
    n = 14
    taken = sample(jax.random.key(0), params(), one(2))
    assert taken.shape == (2000, SHAPE.ops, PLACES)
    noise = np.asarray(taken - policy(params(), one(2)))
    assert np.abs(noise[:, n:]).max() == 0
    noise = noise[:, :n]
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.05)
    basis = np.asarray(regal.noise_basis(one(2)))[:n]
    np.testing.assert_allclose((basis**2).sum() / n, 1, rtol=1e-4)
    for k, how in enumerate(varied(settings)):
        space = basis[:, 1:] if how == "without" else basis
        covariance = noise[..., k].T @ noise[..., k] / 2000
        np.testing.assert_allclose(covariance, 0.04 * space @ space.T, atol=0.01)
    np.testing.assert_array_equal(taken, sample(jax.random.key(0), params(), one(2)))
    assert (taken != sample(jax.random.key(1), params(), one(2))).any()


def test_the_noise_of_two_equal_ops_is_equal():
    ops = [Op("exp", outputs=(Output(size),)) for size in (4, 4, 90, 800, 5, 70)]
    graph = to_graphs_tuple(padding.pad(graphs.from_ops(ops), SHAPE))
    features = graph.nodes["features"].copy()
    features[1] = features[0]
    basis = regal.noise_basis(graph._replace(nodes={**graph.nodes, "features": features}))
    np.testing.assert_allclose(basis[1], basis[0], atol=1e-5)
    assert np.isfinite(basis).all() and np.abs(basis[2] - basis[0]).max() > 0.1


def test_the_noise_of_a_graph_of_one_op_is_finite():
    graph = to_graphs_tuple(padding.pad(graphs.from_ops([Op()]), SHAPE))
    basis = np.asarray(regal.noise_basis(graph))
    assert np.isfinite(basis).all()
    assert (basis**2).sum() == pytest.approx(1) and not basis[1:].any()


# Rewards.


def problem(graph: Graph, shape: Shape = SHAPE) -> Problem:
    seconds = np.random.default_rng(1).integers(1, 9, int(graph.num_ops)).astype(float)
    return prepare(padding.pad(graph, shape), unit_rate_devices(2), seconds=seconds)


@cache
def rows() -> tuple[Any, ...]:
    """Five (key, problem, standard cost, action) rows of three problems."""
    index = np.array([0, 1, 2, 0, 1])
    problems = [problem(graph) for graph in batch()[0]]
    stacked = jax.tree.map(lambda *x: np.stack(x)[index], *problems)
    rng = np.random.default_rng(0)
    actions = regal.Action(
        *(rng.integers(0, SETTINGS.bins, (5, SHAPE.ops, *rest)) for rest in ((GENES, 2), (), (2,)))
    )
    standard = np.float32([10, 20, 40, 50, 7])
    return jax.random.split(jax.random.key(0), 5), stacked, standard, actions


SEARCH = {
    "objective": "makespan",
    "evaluations": 31,
    "settings": SETTINGS,
    "population": POPULATION,
}


@pytest.mark.slow
def test_rewards_are_costs_relative_to_the_standard_on_any_number_of_devices():
    got = jax.jit(shard_candidates(partial(regal.rewards, **SEARCH), num_devices=2))(*rows())
    assert got.dtype == jnp.float32 and len(np.unique(got)) == 5

    keys, problems, standard, actions = rows()

    @jax.jit  # on one device
    def alone(key: jax.Array, problem: Problem, action: jax.Array) -> tuple[Any, jax.Array]:
        found = regal.search_from(key, problem, action, **SEARCH)
        return found, objective(problem, evaluate(problem, found.best), "makespan")

    for i in range(5):
        task, action = jax.tree.map(lambda x, i=i: x[i], (problems, actions))
        found, cost = alone(keys[i], task, action)
        assert found.cost == cost and found.evaluations[-1] == 31
        np.testing.assert_allclose(got[i], -cost / standard[i], rtol=1e-6)


@pytest.mark.slow
def test_a_search_draws_from_the_action_and_starts_from_what_is_given():
    keys, problems, _, _ = rows()
    first = jax.tree.map(lambda x: x[0], problems)
    action = jax.tree.map(lambda x: np.zeros_like(x[0]), rows()[3])
    action.genes[:, 0, 0] = SETTINGS.bins - 1
    shapes = Keys((1, SHAPE.ops, 2), (1, SHAPE.ops), (1, SHAPE.tensors, 2))
    given = Keys(*(np.full(shape, 0.5, np.float32) for shape in shapes))
    search = partial(regal.search_from, **SEARCH | {"evaluations": 10})
    last = jax.jit(search)(keys[0], first, action).last.keys
    assert (last.device[..., 0] > 0.8).all() and (last.device[..., 1] < 0.2).all()
    assert (last.priority < 0.2).all() and (last.transfer < 0.2).all()
    last = jax.jit(search)(keys[0], first, action, initial=given).last.keys
    assert int((last.priority == 0.5).all(-1).sum()) == 1


@pytest.mark.parametrize(
    ("field", "shape"),
    [
        *(("genes", shape) for shape in ((24, 2, 2), (24, 4, 2), (23, 3, 2), (24, 3))),
        *(("elite_bias", (1,)), ("elite_bias", (23,)), ("transfer", (1, 2)), ("transfer", (24,))),
    ],
)
def test_an_action_for_another_problem_raises(field, shape):
    first = jax.tree.map(lambda x: x[0], rows()[1])
    action = jax.tree.map(lambda x: x[0], rows()[3])._replace(**{field: jnp.zeros(shape, int)})
    with pytest.raises(ValueError, match=rf"action\.{field} has shape .*: expected \(24,"):
        regal.search_from(jax.random.key(0), first, action, **SEARCH)


# Training.


@cache
def experience() -> tuple[np.ndarray, np.ndarray]:
    """Places taken `[G, S, ...]` and rewards `[G, S]`."""
    rng = np.random.default_rng(5)
    taken = rng.normal(0.5, 0.3, (3, 4, SHAPE.ops, PLACES)).astype(np.float32)
    return taken, rng.normal(-1, 0.3, (3, 4)).astype(np.float32)


@jax.jit
@jax.value_and_grad
def loss(params: Any, taken: jax.Array, reward: jax.Array) -> jax.Array:
    return regal.loss(params, regal.Trajectory(batch()[1], taken, reward), settings=SETTINGS)[0]


@pytest.mark.slow
def test_the_loss_and_its_gradient_equal_the_reference():
    value, got = loss(params(), *experience())
    places, pull = jax.vjp(lambda p: jax.vmap(policy, (None, 0))(p, batch()[1]), params())
    rows = [x[:n] for x, n in zip(batch()[1].nodes["features"], (23, 5, 14), strict=True)]
    expected, slope = reference.regal(
        places,
        rows,
        *experience(),
        SETTINGS.exploration,
        SETTINGS.advantage_floor,
        varied(SETTINGS),
    )
    np.testing.assert_allclose(value, expected, rtol=1e-3)
    (pulled,) = pull(jnp.float32(slope))
    largest = max(np.abs(x).max() for x in jax.tree.leaves(pulled))
    assert np.isfinite(largest) and largest > 1e-2
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a / largest, b / largest, atol=1e-3), got, pulled
    )


def test_padding_does_not_change_the_gradient():
    taken, reward = experience()
    mask = np.arange(SHAPE.ops) < batch()[1].n_node[:, :1]
    other = np.where(mask[:, None, :, None], taken, np.float32(7))
    assert (other != taken).any()
    jax.tree.map(
        np.testing.assert_array_equal,
        loss(params(), taken, reward),
        loss(params(), other, reward),
    )


def test_updates_lower_the_loss_of_a_batch():
    settings = dataclasses.replace(SETTINGS, learning_rate=3e-3)

    @jax.jit
    def update(state: regal.TrainState, *batch: Any) -> tuple[regal.TrainState, Any]:
        slope = jax.grad(partial(regal.loss, settings=settings), has_aux=True)
        gradient, watch = slope(state.params, regal.Trajectory(*batch))
        return state.apply_gradients(grads=gradient), watch

    state = regal.start(params(), settings=settings)
    taken, reward = experience()
    reward = reward - 1
    seen = []
    for _ in range(40):
        state, watch = update(state, batch()[1], taken, reward)
        seen.append({name: float(value) for name, value in watch.items()})
    assert all(
        np.abs(a - b).max() > 1e-3
        for a, b in zip(jax.tree.leaves(params()), jax.tree.leaves(state.params), strict=True)
    )
    before, after = (loss(p, taken, reward)[0] for p in (params(), state.params))
    assert after < before - 0.1
    assert seen[0]["reward"] == pytest.approx(float(reward.mean()))
    # Of samples around the mean of the others, 4/3 of those around the mean of all.
    assert seen[0]["spread"] == pytest.approx(float(np.mean(4 / 3 * reward.std(1))), rel=1e-3)


def halves() -> tuple[Problem, GraphsTuple]:
    """Large and small ops, each much faster on a device of its own: the best placement is plain."""
    graph = graphs.from_ops([Op("exp", outputs=(Output(size),)) for size in (4, 64) * 8])
    seconds = np.where(np.arange(16)[:, None] % 2 == [0, 1], 1.0, 20.0)
    padded = padding.pad(graph, SHAPE)
    return prepare(padded, unit_rate_devices(2), seconds=seconds), to_graphs_tuple(padded)


@pytest.mark.slow
def test_training_finds_the_placement_that_is_plain():
    settings = dataclasses.replace(
        SETTINGS, learning_rate=2e-2, exploration=0.2, lean=0.0, steps=400
    )
    samples = 16
    task, graph = halves()
    many = jax.tree.map(lambda x: np.broadcast_to(x, (samples, *np.shape(x))), task)
    standard = jnp.full(samples, 100.0)

    @jax.jit
    def step(key: jax.Array, state: regal.TrainState) -> tuple[regal.TrainState, jax.Array]:
        to_act, to_search = jax.random.split(key)
        taken = regal.sample(to_act, state.params, graph, samples=samples, settings=settings)
        reward = regal.rewards(
            jax.random.split(to_search, samples),
            many,
            standard,
            regal.quantise(taken, graph, devices=DEVICES, settings=settings),
            **SEARCH | {"evaluations": 2, "settings": settings},
        )
        batch = jax.tree.map(lambda x: x[None], (graph, taken, reward))
        slope = jax.grad(partial(regal.loss, settings=settings), has_aux=True)
        gradient, watch = slope(state.params, regal.Trajectory(*batch))
        return state.apply_gradients(grads=gradient), watch

    inputs = regal.on_devices(graph, DEVICES)
    state = regal.start(regal.init(jax.random.key(0), inputs, settings=settings), settings=settings)
    reward = []
    for key in jax.random.split(jax.random.key(1), 120):
        state, watch = step(key, state)
        reward.append(float(watch["reward"]))
    before, after = np.mean(reward[:5]), np.mean(reward[-5:])
    assert before < -0.5  # half of the ops are on the wrong device
    assert after > 0.65 * before
    action = regal.act(None, state.params, inputs, settings=settings)
    best = np.argmax(action.genes[:16, :2, 0], 1)
    # Half would be right by chance; ops share noise, so that the last few take longest.
    assert (best == np.arange(16) % 2).mean() >= 0.75
