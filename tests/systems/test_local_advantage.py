"""Learned local advantage functions: features, network, data, training, and the guide."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import prepare_fusion
from gopt.cost.hardware import unit_rate_devices
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.heuristics.fusion.presets import instruction_fusion
from gopt.systems import local_advantage
from gopt.systems.local_advantage.data import _chain
from gopt.systems.local_advantage.network import predicted
from tests.cost.fusion.test_cost import LARGE, ROWS, machine, random_graph
from tests.reference import advantage as reference
from tests.strategies import NASTY

SETTINGS = local_advantage.Settings(width=8, rounds=2, steps=20, configurations=2)
SAMPLING = local_advantage.Sampling(chains=4, records=3, sweep=0.5)
predict, loss = (
    jax.jit(function, static_argnames="settings")
    for function in (local_advantage.predict, local_advantage.loss)
)
cost_of, advantages = jax.jit(fusion_cost), jax.jit(local_advantage.advantages)
READ, REPEATED = (local_advantage.USE_FEATURES.index(name) for name in ("read", "times"))


def case(seed=0, ops=25, rows=ROWS[0]):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, ops)
    problem = prepare_fusion(graph, machine(rng), rows=rows)
    return graph, problem, local_advantage.inputs(graph, problem, settings=SETTINGS)


def uses_of(problem):
    """Who makes, who reads, what it costs to read, and how often, one by one."""
    found = {}
    rows = zip(problem.tensor.tolist(), problem.access.tolist(), problem.read.tolist(), strict=True)
    before = None
    for tensor, op, read in list(rows)[: int(problem.num_accesses)]:
        if tensor != before:
            before, maker = tensor, op
            continue
        total, times = found.get((maker, op), (0, 1))
        found[maker, op] = total + read, times
    for maker in range(int(problem.num_ops)):
        for use in range(int(problem.first_use[maker]), int(problem.first_use[maker + 1])):
            total, times = found[maker, int(problem.consumer[use])]
            found[maker, int(problem.consumer[use])] = (
                total,
                max(times, int(problem.repetitions[use])),
            )
    return found


@pytest.mark.parametrize("seed", range(8))
def test_an_edge_for_each_pair_of_ops_and_what_it_moves(seed):
    _, problem, found = case(seed)
    expected = uses_of(problem)
    count = int(found.n_edge[0])
    pairs = list(zip(found.senders[:count], found.receivers[:count], strict=True))
    assert len(set(pairs)) == count and set(pairs) == set(expected)
    edges = found.edges[:count]
    times = [expected[pair][1] for pair in pairs]
    np.testing.assert_allclose(edges[:, REPEATED], np.log1p(times), rtol=1e-6)
    moved = np.array([expected[pair][0] for pair in pairs], float)
    n = int(problem.num_ops)
    reads = np.zeros(n)
    for (_, reader), ticks in zip(pairs, moved, strict=True):
        reads[reader] += ticks
    kernels = problem.is_kernel[:n]
    alone = (problem.compute[:n] + problem.memory[:n] + reads)[kernels] + problem.launch
    mean = alone.mean() if kernels.any() else 1.0
    np.testing.assert_allclose(edges[:, READ], np.log1p(moved / mean), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs_have_finite_features(name):
    graph = NASTY[name]()
    is_large = int(graph.num_ops) >= ROWS[0][0] or int(graph.num_uses) > 60
    problem = prepare_fusion(graph, unit_rate_devices(1), rows=LARGE if is_large else ROWS[0])
    found = local_advantage.inputs(graph, problem, settings=SETTINGS)
    assert np.isfinite(found.nodes["features"]).all() and np.isfinite(found.edges).all()
    assert found.nodes["features"].shape == (len(problem.compute), len(local_advantage.OP_FEATURES))


def predictions(params, problem, found, fuse):
    made = predict(params, found, np.int32(fuse)[None], settings=SETTINGS)[0]
    return np.asarray(made)[: int(problem.num_ops)]


@pytest.mark.slow
def test_padding_changes_no_prediction():
    fuse = np.random.default_rng(1).random(400) < 0.5
    params = local_advantage.init(jax.random.key(0), case()[2], settings=SETTINGS)
    first = None
    for rows in ((26, 120, 400), ROWS[0], (400, 500, 900)):
        _, problem, found = case(rows=rows)
        made = predictions(params, problem, found, fuse[: rows[0]])
        first = made if first is None else first
        np.testing.assert_allclose(made, first, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "values"), [(0, 2), (1, 3)])
def test_what_a_decision_adds_is_as_in_the_reference(seed, values):
    settings = dataclasses.replace(SETTINGS, values=values)
    _, problem, graph = case(seed, rows=ROWS[seed % 2])
    rng = np.random.default_rng(seed)
    params = local_advantage.init(jax.random.key(0), graph, settings=settings)
    params = jax.tree.map(lambda x: rng.normal(scale=0.4, size=x.shape).astype(np.float32), params)
    rows = len(problem.compute)
    nodes = rng.normal(size=(rows, settings.width)).astype(np.float32)
    decisions = rng.integers(0, values, rows)
    expected = reference.predicted(params["advantages"], nodes, graph, decisions)
    made = jax.jit(partial(predicted, settings=settings))(params, nodes, graph, decisions)
    assert made.shape == (rows, values - 1) and expected.std() > 0.1
    np.testing.assert_allclose(made[: len(expected)], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_own_decision_does_not_count_and_those_near_do(seed):
    _, problem, found = case(seed)
    params = local_advantage.init(jax.random.key(seed), found, settings=SETTINGS)
    rng = np.random.default_rng(seed)
    fuse = rng.random(len(problem.compute)) < 0.5
    before = predictions(params, problem, found, fuse)
    near = {op: set() for op in range(len(before))}
    for maker, reader in uses_of(problem):
        near[maker].add(reader)
        near[reader].add(maker)
    for op in range(len(before)):
        other = fuse ^ (np.arange(len(fuse)) == op)
        change = np.abs(predictions(params, problem, found, other) - before)
        assert change[op] < 5e-6
        within = near[op] | {far for one in near[op] for far in near[one]} - {op}
        assert set(np.flatnonzero(change > 5e-6)) <= within
        if near[op]:
            assert max(change[list(near[op])]) > 5e-6


@pytest.mark.slow
def test_advantages_are_what_fusing_adds():
    _, problem, _ = case()
    fuse = np.random.default_rng(0).random(32) < 0.5
    found = advantages(problem, fuse)
    for op in np.flatnonzero(problem.configurable):
        here = np.arange(32) == op
        expected = int(cost_of(problem, fuse | here)) - int(cost_of(problem, fuse & ~here))
        assert int(found[op]) == expected
    assert not np.any(found[~problem.configurable])


@cache
def records():
    """Some records of a graph."""
    _, problem, _ = case()
    default = instruction_fusion(problem)
    return local_advantage.sample(jax.random.key(0), problem, default, sampling=SAMPLING)


@pytest.mark.slow
def test_records_hold_what_they_say():
    _, problem, _ = case()
    default = instruction_fusion(problem)
    found = records()
    assert found.fuse.shape == (12, 32) and found.cost.shape == (12,)
    for fuse, cost, adds in zip(*found, strict=True):
        assert int(cost_of(problem, fuse)) == cost
        np.testing.assert_array_equal(advantages(problem, fuse), adds)
        assert not fuse[~problem.configurable].any()
    starts = found.fuse.reshape(4, 3, 32)[:, 0]
    np.testing.assert_array_equal(starts[:2], [default, default])
    assert (starts[2] != starts[3]).any() and (found.fuse[1] != found.fuse[0]).any()
    again = local_advantage.sample(jax.random.key(0), problem, default, sampling=SAMPLING)
    jax.tree.map(np.testing.assert_array_equal, found, again)


@pytest.mark.slow
def test_a_sweep_in_parts_visits_every_choice_from_the_first_op_on(monkeypatch):
    _, problem, _ = case()
    visited = []

    def sweep(key, state, nodes, num_nodes, cost, *, temperature):
        jax.debug.callback(
            lambda n, c: visited.extend(np.asarray(n)[: int(c)].tolist()),
            nodes,
            num_nodes,
            ordered=True,
        )
        return state

    monkeypatch.setattr("gopt.search.gibbs.sweep", sweep)
    sampling = local_advantage.Sampling(chains=2, records=9, sweep=0.25)
    problem = jax.tree.map(jnp.asarray, problem)
    run = partial(_chain, sampling=sampling)
    run(jax.random.key(0), problem, jnp.zeros(32, bool), jnp.float32(1.0))
    jax.effects_barrier()
    choices = np.flatnonzero(problem.configurable).tolist()
    assert visited[: len(choices)] == choices and len(visited) >= 8 * (len(choices) // 4)


def many_choices(monkeypatch, size=600):
    """A chain of ops, all of which but the ends are configurable, with costs that add up."""
    ops = [Op("input", (), (Output(4, (4,)),))]
    ops += [Op("neg", ((i, 0),), (Output(4, (4,)),)) for i in range(size)]
    ops.append(Op("neg", ((size, 0),), (Output(4, (4,), pinned=True),)))
    problem = prepare_fusion(graphs.from_ops(ops), unit_rate_devices(1))
    assert int(problem.num_choices) == size
    # What most ops add is 0; of the sizes of the others, 6 is the median.
    adds = np.zeros(len(problem.compute), np.float32)
    adds[1:size:5] = np.resize([-6, -6, 1, 6, 50], len(adds[1:size:5]))

    def cost(problem, fuse):
        return 1000 + jnp.sum(jnp.where(fuse, adds, 0))

    monkeypatch.setattr("gopt.systems.local_advantage.data.fusion_cost", cost)
    monkeypatch.setattr(
        "gopt.systems.local_advantage.data.flipped_costs",
        lambda problem, fuse: cost(problem, fuse) + jnp.where(fuse, -adds, adds),
    )
    return problem


def swept(monkeypatch, value, sampling, size=600):
    """What sweeps were called with, by chain: `value` maps the temperature and the count to it."""

    def sweep(key, state, nodes, num_nodes, cost, *, temperature):
        return state._replace(cost=jnp.float32(value(temperature, num_nodes)))

    problem = many_choices(monkeypatch, size)
    monkeypatch.setattr("gopt.search.gibbs.sweep", sweep)
    default = np.zeros(len(problem.compute), bool)
    found = local_advantage.sample(jax.random.key(0), problem, default, sampling=sampling)
    return found.cost.reshape(sampling.chains, sampling.records)[:, 1:]


def test_half_of_the_chains_start_at_the_default_and_half_at_shares_spread_evenly(monkeypatch):
    problem = many_choices(monkeypatch)
    default = problem.configurable & (np.arange(len(problem.compute)) % 3 == 0)
    sampling = local_advantage.Sampling(chains=10, records=1)
    fuse = local_advantage.sample(jax.random.key(0), problem, default, sampling=sampling).fuse
    np.testing.assert_array_equal(fuse[:5], np.tile(default, (5, 1)))
    shares = fuse[5:, problem.configurable].mean(1)
    np.testing.assert_allclose(shares, [0.1, 0.3, 0.5, 0.7, 0.9], atol=0.07)
    # Each is drawn by itself.
    assert not any((fuse[5 + k] <= fuse[6 + k]).all() for k in range(4))


def test_each_half_of_the_chains_has_all_temperatures_in_medians_of_what_is_not_zero(monkeypatch):
    sampling = local_advantage.Sampling(chains=6, records=3, coldest=0.5, hottest=8.0)
    found = swept(monkeypatch, lambda temperature, _: temperature, sampling)
    np.testing.assert_allclose(found, np.tile([[3], [12], [48]], (2, 2)), rtol=1e-5)


@pytest.mark.parametrize(
    ("share", "size", "expected"), [(0.25, 40, 10), (1, 40, 40), (0.01, 40, 1)]
)
def test_a_share_of_the_ops_is_visited_between_records(monkeypatch, share, size, expected):
    sampling = local_advantage.Sampling(chains=2, records=4, sweep=share)
    found = swept(monkeypatch, lambda _, count: count, sampling, size)
    np.testing.assert_array_equal(found, np.full((2, 3), expected))


def test_a_graph_without_a_choice_is_refused():
    problem = prepare_fusion(graphs.from_ops([Op()]), unit_rate_devices(1))
    with pytest.raises(ValueError, match="no configurable op"):
        local_advantage.sample(
            jax.random.key(0), problem, np.zeros(16, bool), sampling=local_advantage.Sampling()
        )


def test_targets_are_relative_to_the_median_of_what_makes_a_difference():
    adds = np.array([[0, 4, -2], [0, 0, -8]])
    assert local_advantage.scale_of(adds) == 4
    change = partial(dataclasses.replace, SETTINGS)
    for settings, expected in (
        (SETTINGS, np.log1p([[0, 1, 0.5], [0, 0, 2]]) * [[0, 1, -1], [0, 0, -1]]),
        (change(is_signed=False), np.log1p([[0, 1, 0.5], [0, 0, 2]])),
        (change(target="raw"), [[0, 1, -0.5], [0, 0, -2]]),
        (change(target="raw", is_signed=False), [[0, 1, 0.5], [0, 0, 2]]),
    ):
        np.testing.assert_allclose(
            local_advantage.targets(adds, settings=settings), expected, rtol=1e-6
        )
    assert local_advantage.scale_of(np.zeros((2, 2))) == 1


def test_nine_of_ten_samples_are_of_the_largest_tenth():
    adds = np.arange(-50, 50).reshape(2, 50)
    can = np.arange(50) < 40
    paper = dataclasses.replace(SETTINGS, largest=0.9)
    weight = local_advantage.sample_weights(adds, can, settings=paper)
    assert weight.sum() == pytest.approx(2)
    top = np.abs(adds) >= np.quantile(np.abs(adds[:, can]), 0.9)
    assert weight[top & can].sum() == pytest.approx(2 * (0.9 + 0.1 * 8 / 80), rel=1e-5)
    assert not weight[:, ~can].any() and (weight[:, can] > 0).all()
    alike = local_advantage.sample_weights(adds, can, settings=SETTINGS)
    np.testing.assert_allclose(alike[:, can], 1 / 40, rtol=1e-6)


@pytest.mark.parametrize("largest", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("adds", [np.zeros((3, 7)), np.full((3, 7), -4), np.eye(3, 7) * 5])
def test_equal_advantages_have_weights(adds, largest):
    """The largest tenth is all that are as large as its least."""
    can = np.arange(7) != 2
    settings = dataclasses.replace(SETTINGS, largest=largest)
    weight = local_advantage.sample_weights(adds, can, settings=settings)
    assert np.isfinite(weight).all() and not weight[:, 2].any()
    assert weight.sum() == pytest.approx(3)
    top = np.abs(adds) == np.abs(adds[:, can]).max()
    assert weight[top & can].sum() >= 3 * largest * (1 - 1e-6)


def training_samples():
    _, problem, found = case()
    return local_advantage.samples(found, problem.configurable, records(), settings=SETTINGS)


@pytest.mark.slow
def test_decisions_of_three_values_are_not_of_fusion():
    _, problem, found = case()
    settings = dataclasses.replace(SETTINGS, values=3)
    fuse = np.zeros((1, 32), bool)
    records = local_advantage.Records(fuse, np.zeros(1, np.int32), np.zeros((1, 32), np.int32))
    with pytest.raises(ValueError, match="values is 3: expected 2, fusion decides between two"):
        local_advantage.samples(found, problem.configurable, records, settings=settings)
    params = local_advantage.init(jax.random.key(0), found, settings=settings)
    with pytest.raises(ValueError, match="values is 3: expected 2, fusion decides between two"):
        local_advantage.predict(params, found, np.int32(fuse), settings=settings)
    with pytest.raises(ValueError, match="values is 3: expected 2, fusion decides between two"):
        local_advantage.guide(params, found, problem.configurable, settings=settings)


@pytest.mark.slow
def test_the_loss_is_a_weighted_square():
    data = training_samples()
    params = local_advantage.init(jax.random.key(0), data.graphs, settings=SETTINGS)
    made = predict(params, data.graphs, data.decisions, settings=SETTINGS)
    found = np.asarray(made, np.float64)
    expected = (data.weight * (found - data.target) ** 2).sum() / len(data.target)
    assert float(loss(params, data, settings=SETTINGS)[0]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_steps_lower_the_loss():
    data = jax.tree.map(jnp.asarray, training_samples())
    params = local_advantage.init(jax.random.key(0), data.graphs, settings=SETTINGS)
    state = local_advantage.start(params, settings=SETTINGS)
    before = loss(state.params, data, settings=SETTINGS)[0]
    step = jax.jit(partial(local_advantage.step, settings=SETTINGS))
    for k in range(SETTINGS.steps):
        state, _ = step(state, jax.random.key(k), data)
    assert loss(state.params, data, settings=SETTINGS)[0] < 0.9 * before


@pytest.mark.slow
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_guide_promises_what_the_other_decision_saves(is_signed):
    settings = dataclasses.replace(SETTINGS, is_signed=is_signed)
    _, problem, found = case()
    params = local_advantage.init(jax.random.key(0), found, settings=settings)
    fuse = np.random.default_rng(0).random(32) < 0.5
    guide = local_advantage.guide(params, found, problem.configurable, settings=settings)
    scores = np.asarray(guide(jnp.int32(fuse)))
    adds = np.asarray(predict(params, found, np.int32(fuse)[None], settings=settings)[0])
    promise = np.where(fuse, adds, -adds) if is_signed else adds
    can = problem.configurable
    np.testing.assert_allclose(scores[can], promise[can], rtol=1e-5)
    assert (scores[~can] == -np.inf).all()
    alike = np.asarray(local_advantage.uniform(can)(jnp.int32(fuse)))
    assert (alike[can] == 0).all() and (alike[~can] == -np.inf).all()


def test_a_walk_changes_the_decision_and_some_near_it():
    _, problem, found = case()
    can = problem.configurable
    near = {}
    for maker, reader in uses_of(problem):
        near.setdefault(maker, set()).add(reader)
        near.setdefault(reader, set()).add(maker)
    op = max(np.flatnonzero(can), key=lambda op: len(near.get(op, ())))
    others = set()
    for steps in (0, 1):
        change = jax.jit(local_advantage.walk(found, can, steps=steps))
        for k in range(40):
            changed = np.asarray(change(jax.random.key(k), jnp.zeros(32, jnp.int32), op))
            assert changed[op] == 1
            found_others = set(np.flatnonzero(changed)) - {op}
            assert len(found_others) <= steps
            others |= found_others
    assert others == {other for other in near[op] if can[other]}


@pytest.mark.parametrize("seed", range(2))
def test_a_shift_moves_the_end_of_a_kernel_by_one_op(seed):
    """What an op reads, or what reads it, is decided as it was, and the op the other way."""
    _, problem, found = case(seed)
    can, rows = np.asarray(problem.configurable), len(problem.compute)
    makers: dict = {op: set() for op in range(rows)}
    readers: dict = {op: set() for op in range(rows)}
    for maker, reader in uses_of(problem):
        makers[reader].add(maker)
        readers[maker].add(reader)
    decisions = np.random.default_rng(seed).integers(0, 2, rows) * can
    for near, move in zip((makers, readers), local_advantage.shifts(found, can), strict=True):
        moved = jax.jit(move)
        for op in np.flatnonzero(can):
            expected = decisions.copy()
            expected[[other for other in near[op] if can[other]]] = decisions[op]
            expected[op] = 1 - decisions[op]
            np.testing.assert_array_equal(moved(jax.random.key(0), decisions, op), expected)
        none = moved(jax.random.key(0), decisions, rows)
        np.testing.assert_array_equal(none, decisions)


def test_the_network_that_ships_is_of_this_version_and_of_the_default_settings(tmp_path):
    params, settings = local_advantage.load()
    assert settings == local_advantage.Settings()
    path = tmp_path / "network.npz"
    local_advantage.save(path, params, dataclasses.replace(settings, width=16))
    with pytest.raises(ValueError, match="parameters of other shapes"):
        local_advantage.load(path)
    path.write_bytes(b"no network")
    with pytest.raises(ValueError, match="does not hold weights"):
        local_advantage.load(path)
