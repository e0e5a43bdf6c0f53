"""GO's policy: what it may say, what follows from it, and that training follows the reward."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.joint.problem import prepare_joint
from gopt.cost.schedule import objectives
from gopt.cost.schedule.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, Shape, from_ops
from gopt.graph.tracing import trace
from gopt.heuristics.schedule.baselines import heuristic_keys, tried
from gopt.learning import train
from gopt.learning.weights import load_weights, save_weights
from gopt.sources.synthetic import layered
from gopt.systems import go
from gopt.systems.go import scheduling
from tests.reference import go as reference
from tests.strategies import NASTY

SHAPE, ROWS = Shape(96, 96, 256), (256, 1024)  # of all graphs, so that few programs are compiled
SETTINGS = go.Settings(
    **dict(tasks=go.TASKS, width=16, rounds=1, heads=2, segment=16, levels=(4, 16)),
    **dict(samples=6, explore=0.3),
)
LIGHT = dataclasses.replace(SETTINGS, layers=0, task_layers=0)  # it is compiled sooner
BARE = dataclasses.replace(LIGHT, levels=(8,))  # and this one even sooner
SMALL = dataclasses.replace(BARE, tasks=("placement",), iterations=3)


def layers(x, y, weight):
    """Two chains of products, with element-wise ops that may be fused."""
    for _ in range(4):
        x = x + jnp.tanh(x @ weight) * jax.nn.sigmoid(x)
        y = jnp.tanh(y @ weight - y)
    return x + y


def traced(name):
    """The graph of `layers`, or of a function whose broadcasts are no uses of the joint problem."""
    if name == "layers":
        return trace(layers, *3 * [np.ones((8, 8))]).graph

    def normalised(x, weight):
        for _ in range(3):
            x = jnp.tanh(x - x.mean(1, keepdims=True)) / (1 + (x**2).sum(0)) @ weight
        return x

    return trace(normalised, *2 * [np.ones((8, 8))]).graph


@cache
def case(name, devices, more=0, settings=SETTINGS):
    """A joint problem, its graph as the policy reads it, and random parameters."""
    graph = NASTY[name]() if name in NASTY else traced(name)
    graph = padding.pad(graph, Shape(*(rows + more for rows in SHAPE)))
    machine = unit_rate_devices(
        devices, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4, launch=0.1
    )
    joint = prepare_joint(graph, machine, rules=RULES["gpu"], rows=tuple(r + more for r in ROWS))
    return joint, go.inputs(graph, joint, settings=settings), parameters(settings)


@cache
def parameters(settings):
    graph = padding.pad(layered(0, 20))
    inputs = go.inputs(graph, prepare(graph, unit_rate_devices(2)), settings=settings)
    init = partial(go.init, jax.random.key(0), settings=settings)
    params = jax.eval_shape(init, inputs)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: rng.normal(scale=0.3, size=x.shape).astype(np.float32), params)


def random_decision(joint, devices):
    rows, n = joint.schedule.shape.ops, int(joint.schedule.num_ops)
    rng = np.random.default_rng(0)
    values = zip(go.TASKS, (devices, len(go.SHIFTS), go.FUSIONS), strict=True)
    decided = {task: rng.integers(0, count, rows).astype(np.int32) for task, count in values}
    decided["placement"][n:] = 0
    return go.OpDecisions(**decided)


@partial(jax.jit, static_argnames="settings")
def said(params, problem, inputs, decision, settings):
    """Returns what the policy makes of a graph, sees, and says of each kind of moves."""
    timing = go.simulator_of(problem, "makespan").timing(decision)
    embedding = go.embed(params, inputs, settings=settings)
    groups = go.observe(inputs, decision, timing, settings=settings)
    return embedding, timing, groups, go.moves(params, embedding, groups, settings=settings)


def about(inputs, decision):
    """Returns which ops a task is about, their values, and how many values there are."""
    is_real = np.arange(len(decision.placement)) < int(inputs.graphs.n_node[0])
    is_about = is_real, inputs.runs, inputs.fusible
    counts = inputs.allowed.shape[1], len(go.SHIFTS), go.FUSIONS
    return [*zip(is_about, decision, counts, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices", "settings"),
    [*((name, 5, SETTINGS) for name in ("layers", *NASTY)), ("layers", 1, BARE)],
)
def test_groups_get_other_values_and_the_odds_are_as_said(name, devices, settings):
    joint, inputs, params = case(name, devices, settings=settings)
    decision, levels = random_decision(joint, devices), len(settings.levels)
    biases = {task: np.float32(k + 0.5 * np.arange(levels)) for k, task in enumerate(go.TASKS)}
    heads = {
        f"head_{task}": params["params"][f"head_{task}"]
        | {"budget": {"kernel": np.zeros((settings.width, levels), np.float32), "bias": bias}}
        for task, bias in biases.items()
    }
    params = {"params": params["params"] | heads}
    *_, found = said(params, joint, inputs, decision, settings)
    for (task, level), (logits, entropy) in zip(settings.moves, found, strict=True):
        is_about, value, values = about(inputs, decision)[task]
        logits, count = np.asarray(logits), int(inputs.count[level])
        assert np.isfinite(logits[:, 0]).all() and 0 <= entropy < 1 + 1e-5
        can = logits[:, 1:] > -1e29
        assert can.shape[1] == values
        for group in range(len(logits)):
            members = np.flatnonzero((inputs.group[level] == group) & is_about)
            for to in range(values):
                assert can[group, to] == (group < count and (value[members] != to).any())
        if not can.any():
            continue
        likely = np.exp(logits[:, 1:][can])
        assert likely.sum() == pytest.approx(1, rel=1e-4)
        assert likely.min() >= 0.999 * settings.explore / can.sum()
        odds = np.exp(logits[:, 1:] - logits[:, :1])  # against staying
        changes = settings.changes * np.exp(biases[go.TASKS[task]][level])
        assert odds.sum() == pytest.approx(changes, rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layers", "broadcasts", "chain", "hub"])
def test_groups_are_seen_as_by_the_reference(name):
    joint, inputs, params = case(name, 5)
    decision = random_decision(joint, 5)
    _, timing, found, _ = said(params, joint, inputs, decision, SETTINGS)
    assert (np.asarray(timing.slack) > 0).any() == (name != "chain")
    for (task, level), groups in zip(SETTINGS.moves, found, strict=True):
        is_about, value, values = about(inputs, decision)[task]
        args = inputs.group[level], value, values, is_about, timing
        expected = reference.state(joint.schedule, inputs, *args)
        for group, columns in expected.items():
            np.testing.assert_allclose(groups.state[group], columns, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_before_training_all_moves_are_alike_and_as_many_as_is_said():
    joint, inputs, _ = case("layers", 5)
    params = go.init(jax.random.key(0), inputs, settings=SETTINGS)
    embedding, _, _, found = said(params, joint, inputs, random_decision(joint, 5), SETTINGS)
    np.testing.assert_allclose(np.exp(embedding.changes), SETTINGS.changes, rtol=1e-6)
    for logits, entropy in found:
        score = logits[:, 1:][logits[:, 1:] > -1e29]
        np.testing.assert_allclose(np.exp(score), 1 / len(score), rtol=1e-4)
        assert entropy == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_the_tasks_have_moves():
    joint, inputs, params = case("layers", 5)
    *_, found = said(params, joint, inputs, random_decision(joint, 5), SETTINGS)
    assert all((logits[:, 1:] > -1e29).sum() > 4 for logits, _ in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layers", "chain"])
def test_padding_changes_nothing(name):
    joint, inputs, params = case(name, 5)
    decision = random_decision(joint, 5)
    *_, found = said(params, joint, inputs, decision, SETTINGS)
    wide = jax.tree.map(lambda x: np.pad(x, (0, 9)), decision)
    *_, padded = said(params, *case(name, 5, more=9)[:2], wide, SETTINGS)
    for (_, level), one, other in zip(SETTINGS.moves, found, padded, strict=True):
        count = int(inputs.count[level])
        np.testing.assert_allclose(one.logits[:count], other.logits[:count], atol=1e-3)
        np.testing.assert_allclose(one.entropy, other.entropy, atol=1e-4)


sample = jax.jit(go.sample, static_argnums=2)
log_prob = jax.jit(go.log_prob)
act = jax.jit(go.apply_action, static_argnames=("name", "level"))


def test_samples_follow_the_probabilities_and_move_something():
    logits = jnp.float32([[0.5, -1e30, 0.3], [1.0, 0.2, -1e30], [2.0, -1e30, -1e30]])
    action = np.asarray(sample(jax.random.key(0), logits, 20_000))
    assert (action != 0).any(1).all()
    assert not np.isin(action[:, 0], [1]).any() and not np.isin(action[:, 1], [2]).any()
    assert not action[:, 2].any()
    # As often as is said, the one that is drawn because none was included.
    drawn, count = np.unique(action, axis=0, return_counts=True)
    said = np.exp(np.asarray(log_prob(logits, drawn)))
    assert len(drawn) == 3 and said.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(count / len(action), said, atol=0.015)


def test_nothing_is_moved_where_nothing_can_be():
    logits = jnp.float32([[0.0, -1e30], [0.0, -1e30]])
    action = sample(jax.random.key(0), logits, 5)
    assert not np.asarray(action).any()
    np.testing.assert_allclose(log_prob(logits, action), 0, atol=1e-6)


@pytest.mark.parametrize("name", go.TASKS)
def test_actions_change_whole_groups_by_one_task(name):
    value = jnp.int32([0, 1, 2, 0, 1])
    inputs = case("layers", 5)[1]._replace(
        group=jnp.int32([[0, 1, 0, 2, 9]]),  # the last is padding
        graphs=case("one op", 5)[1].graphs._replace(nodes={"kind": np.zeros(5)}),
        allowed=jnp.ones((5, 3), bool),
        runs=jnp.ones(5, bool),
        fusible=jnp.bool_([False, True, True, True, True]),
    )
    inputs = inputs._replace(graphs=inputs.graphs._replace(n_node=jnp.int32([4, 1])))
    action = jnp.int32([[0, 0, 0], [2, 0, 3], [0, 1, 0]])
    before = go.OpDecisions(value, value + 1, value + 2)
    after = act(inputs, before, action, name=name, level=0)
    base = go.TASKS.index(name)
    expected = np.array([[0, 1, 2, 0, 1], [1, 1, 1, 2, 1], [0, 0, 2, 0, 1]])
    kept = np.array(action[:, inputs.group[0] % 3] == 0)
    expected = np.where(kept, value + base, expected)
    expected[:, 4] = value[4] + base
    if name == "fusion":
        expected[:, 0] = 2
    for task in go.TASKS:
        found = np.asarray(getattr(after, task))
        if task == name:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_array_equal(found, np.tile(getattr(before, task), (3, 1)))


def started(joint, order):
    simulator = go.simulator_of(joint, "makespan", order)
    devices = joint.schedule.num_devices
    return simulator, go.begin(joint, jnp.arange(joint.schedule.shape.ops) % devices, simulator)


@jax.jit
def roll(key, params, joint, inputs, order):
    simulator, start = started(joint, order)
    run = partial(go.rollout, key, params, inputs, start, simulator)
    return start, run(iterations=5, settings=LIGHT)


@jax.jit
def cost_of(joint, decisions, order):
    return go.simulator_of(joint, "makespan", order).cost(decisions)


@cache
def rolled(name, devices):
    joint, inputs, _ = case(name, devices)
    order, params = go.critical_path_order(joint), parameters(LIGHT)
    start, found = roll(jax.random.key(0), params, joint, inputs, order)
    return joint, inputs, params, order, start, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layers", "one op", "chain"])
def test_a_rollout_keeps_the_best_that_it_has_drawn(name):
    joint, inputs, _, order, start, (state, taken, history) = rolled(name, 3)
    costs = np.concatenate([[start.cost], history])
    assert (np.diff(costs) <= 0).all() and history[-1] == state.cost
    decided = jax.tree.map(lambda x: np.stack(SETTINGS.samples * [x]), state.decision)
    assert (cost_of(joint, decided, order) == state.cost).all()
    for step in range(5):
        lowest = float(np.asarray(taken.ratio)[step].min()) * costs[step]
        assert costs[step + 1] == pytest.approx(min(costs[step], lowest), rel=1e-6)
        before = jax.tree.map(lambda x, step=step: x[step], taken.decision)
        for k, (task, level) in enumerate(SETTINGS.moves):
            name = SETTINGS.tasks[task]
            drawn = act(inputs, before, taken.action[k][step], name=name, level=level)
            found = np.asarray(cost_of(joint, drawn, order))
            ratio = np.where(found == costs[step], 1, found / max(costs[step], 1e-30))
            np.testing.assert_allclose(taken.ratio[step, k], ratio, rtol=1e-5)


def test_inputs_are_in_the_group_of_their_first_reader():
    ops = [Op("input", outputs=(Output(1.0),)) for _ in range(3)]
    ops += [Op(outputs=(Output(500.0),), flops=1.0), Op(inputs=((1, 0),), flops=2.0)]
    ops += [Op(inputs=((0, 0), (1, 0), (3, 0)), flops=3.0)]
    graph = from_ops(ops)
    settings = dataclasses.replace(SETTINGS, levels=(4, 8, 32))
    inputs = go.inputs(graph, prepare(graph, unit_rate_devices(2)), settings=settings)
    for group, count in zip(inputs.group, inputs.count, strict=True):
        assert group[0] == group[5] and group[1] == group[4]
        assert np.unique(group[:6]).tolist() == list(range(count))
        assert group[6:].tolist() == [32]
    # As many as there are single ops; one input is unread.
    assert len(set(inputs.group[2][:6])) == 4


@pytest.mark.slow
def test_ops_go_only_where_they_may():
    graph = padding.pad(layered(0, 60), SHAPE)
    allowed = np.ones((60, 3), bool)
    allowed[:, 2] = False
    problem = prepare(graph, unit_rate_devices(3), allowed=allowed)
    begin = jax.jit(lambda device: go.begin(problem, device, go.simulator_of(problem, "makespan")))
    decision = begin(jnp.full(SHAPE.ops, 2, jnp.int32)).decision
    assert not np.asarray(decision.placement[:60]).any()
    inputs = go.inputs(graph, problem, settings=BARE)
    *_, found = said(parameters(BARE), problem, inputs, decision, BARE)
    for (task, level), (logits, _) in zip(BARE.moves, found, strict=True):
        can = np.asarray(logits)[: inputs.count[level], 1:] > -1e29
        if go.TASKS[task] == "placement":
            assert can.any(0).tolist() == [False, True, False]
        assert can.any() == (go.TASKS[task] != "fusion")  # without a problem of fusion


def small(devices=3):
    """A problem of placement, and what the policy reads of it."""
    graph = padding.pad(layered(0, 60), SHAPE)
    machine = unit_rate_devices(devices, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)
    problem = prepare(graph, machine)
    return problem, go.inputs(graph, problem, settings=SMALL)


@jax.jit
def roll_small(key, params, problem, inputs):
    simulator = go.simulator_of(problem, "makespan")
    start = go.begin(problem, jnp.zeros(SHAPE.ops, jnp.int32), simulator)
    run = partial(go.rollout, key, params, inputs, start, simulator)
    return start, run(iterations=3, settings=SMALL)


@pytest.mark.slow
def test_64_bit_mode_keeps_types():
    args = jax.random.key(0), parameters(SMALL), *small()
    with jax.enable_x64(True):  # what is drawn is something else
        _, (state, _, history) = roll_small(*args)
    assert state.cost.dtype == jnp.float32 and history[-1] == state.cost
    assert all(value.dtype == jnp.int32 for value in state.decision)


def test_another_graph_than_that_of_the_problem_raises():
    problem = prepare(layered(0, 30), unit_rate_devices(2))
    with pytest.raises(ValueError, match=r"problem has shape Shape\(ops=.*: expected that of the"):
        go.inputs(layered(0, 40), problem, settings=SETTINGS)
    with pytest.raises(ValueError, match=r"problem has shape Shape\(ops=96, .*: expected that"):
        go.inputs(layered(0, 30), case("chain", 1)[0], settings=SETTINGS)


@pytest.mark.slow
def test_costs_that_are_no_numbers_are_never_the_best():
    params, (problem, inputs) = parameters(SMALL), small()
    zeros = jnp.zeros(SHAPE.ops, jnp.int32)
    start = go.State(go.OpDecisions(zeros, zeros, zeros), jnp.float32(5))

    @jax.jit
    def state_after(costs):
        embedding = go.embed(params, inputs, settings=SMALL)
        timing = go.simulator_of(problem, "makespan").timing
        simulator = go.Simulator(lambda drawn: costs, timing)
        step = partial(go.iterate, jax.random.key(0), params, embedding, inputs, start)
        return step(simulator, settings=SMALL)[0]

    nothing = jnp.full(SMALL.evaluations_per_iteration - 1, jnp.nan)
    after = state_after(nothing.at[2].set(4))
    assert after.cost == 4 and (np.asarray(after.decision.placement) != 0).any()
    after = state_after(nothing)
    assert after.cost == 5
    jax.tree.map(np.testing.assert_array_equal, after.decision, start.decision)


def test_the_reward_is_that_of_the_paper_where_a_decision_is_better():
    ratio = jnp.float32([0.25, 0.81, 1.0, 1.01, 5.0, jnp.inf, jnp.nan])
    np.testing.assert_allclose(go.reward(ratio), [-0.5, -0.9, -1, -1, -1, -1, -1], rtol=1e-6)


@pytest.mark.slow
def test_training_follows_what_was_better():
    _, inputs, params, _, _, (_, taken, _) = rolled("layers", 3)
    value = np.asarray(go.reward(taken.ratio), np.float64)  # [T, M, S]
    others = (value.sum(-1, keepdims=True) - value) / (LIGHT.samples - 1)
    advantage = (value - others) / (np.sqrt(np.mean((value - others) ** 2)) + LIGHT.advantage_floor)
    assert (np.abs(advantage).reshape(-1, 3, 2, LIGHT.samples).max((0, 2, 3)) > 0.1).all()

    @jax.jit
    def gradient(entropy):
        settings = dataclasses.replace(LIGHT, entropy=entropy)
        return jax.value_and_grad(go.loss, has_aux=True)(
            params, go.Batch(inputs, taken), settings=settings
        )

    @jax.jit
    @partial(jax.grad, has_aux=True)
    def expected_of(params):  # nothing is clipped yet
        said = chances(params, inputs, taken)
        return -jnp.mean(advantage * jnp.exp(said - taken.log_prob)), said

    (without, watched), found = jax.device_get(gradient(0.0))
    expected, said = jax.device_get(expected_of(params))
    np.testing.assert_allclose(said, taken.log_prob, atol=1e-3)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-3 * largest), found, expected)
    (value, _), slopes = gradient(LIGHT.entropy)
    bonus = LIGHT.entropy * watched["entropy"]
    assert value == pytest.approx(float(without - bonus), abs=1e-5) and bonus > 0.001
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def chances(params, inputs, taken):
    """Returns the log-probabilities of what was taken, `[T, M, S]`."""
    embedding = go.embed(params, inputs, settings=LIGHT)

    def one(row):
        groups, actions = row
        every = go.moves(params, embedding, groups, settings=LIGHT)
        return jnp.stack([go.log_prob(f.logits, a) for f, a in zip(every, actions, strict=True)])

    return jax.lax.map(one, (taken.groups, taken.action))


@pytest.mark.slow
def test_an_epoch_is_a_step_with_what_was_drawn_before():
    # Steps of Adam would be as large for rounding errors.
    params, (problem, inputs) = parameters(SMALL), small()
    _, (_, taken, _) = roll_small(jax.random.key(0), params, problem, inputs)
    batch = jax.tree.map(
        lambda x: np.stack([x, x]), go.Batch(inputs, taken)
    )  # two graphs are as one
    slopes, expected = jax.jit(jax.grad(partial(go.loss, settings=SMALL), has_aux=True))(
        params, go.Batch(inputs, taken)
    )
    once, twice = (
        jax.jit(partial(go.improve, settings=dataclasses.replace(SMALL, epochs=epochs)))
        for epochs in (1, 2)
    )
    start = train.start(params, optax.sgd(100.0))
    first, seen = once(start, batch)
    second, _ = once(first, batch)
    found, watched = twice(start, batch)
    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-3)
    jax.tree.map(close, first.params, jax.tree.map(lambda x, g: x - 100 * g, params, slopes))
    jax.tree.map(close, seen, expected)
    jax.tree.map(close, found.params, second.params)
    jax.tree.map(close, watched, seen)  # before the first
    for one, other in ((first.params, params), (second.params, first.params)):
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), one, other)
        assert max(jax.tree.leaves(moved)) > 0.1


@pytest.mark.slow
def test_tuning_searches_and_learns_meanwhile():
    params, (problem, inputs) = parameters(SMALL), small()
    # The first step is a rollout with the parameters before.
    first = jax.random.split(jax.random.key(0), 4)[0]
    start, (_, _, costs) = roll_small(first, params, problem, inputs)
    state = go.start(params, settings=SMALL)
    simulator = go.simulator_of(problem, "makespan")
    run = jax.jit(partial(go.tune, simulator=simulator, steps=4, settings=SMALL))
    tuned, best, history = run(jax.random.key(0), state, inputs, start)
    assert history.shape == (12,) and (np.diff(history) <= 0).all() and history[-1] == best.cost
    again = cost_of(problem, jax.tree.map(lambda x: x[None], best.decision), None)
    assert again[0] == best.cost < start.cost
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), tuned.params, params)
    assert 0 < max(jax.tree.leaves(moved)) < 0.1
    np.testing.assert_array_equal(costs, history[:3])


def test_a_policy_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "policy.npz"
    go.save(path, parameters(SMALL), SMALL, origin={"seed": 1})
    params, settings = go.load(path)
    assert settings == SMALL
    jax.tree.map(np.testing.assert_array_equal, params, parameters(SMALL))
    with pytest.raises(FileNotFoundError):
        go.load(tmp_path / "none.npz")
    go.save(path, parameters(SMALL), dataclasses.replace(SMALL, width=32))
    with pytest.raises(ValueError, match="parameters of other shapes than its settings say"):
        go.load(path)
    params, values = load_weights(path)
    for wrong, message in (
        (dict(system="regal"), "with system 'regal': expected 'go'"),
        (dict(version=0), "with version 0: expected"),
        (dict(shifts=[0.0]), "holds weights for other shifts than this version"),
        (dict(kinds=["other"]), "holds weights for other kinds than this version"),
        (
            dict(settings={"levels": [4], "tasks": ["fusion"], "depth": 3}),
            "holds no settings of go",
        ),
    ):
        save_weights(path, params, values | wrong)
        with pytest.raises(ValueError, match=message):
            go.load(path)


@partial(jax.jit, static_argnames="objective")
def scheduled_costs(problem, every, keys, objective):
    """Returns what the heuristics' schedules cost, and then another one."""
    both = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), every, keys)
    return objectives.population_cost(problem, objective)(both)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layered", "layers", "one op", "hub"])
def test_schedules_cost_what_was_found_and_are_never_worse_than_heuristics(name, monkeypatch):
    reached, search = [], scheduling._whole

    def record(*args, **settings):
        found = search(*args, **settings)
        reached.append(float(found[1]))
        return found

    monkeypatch.setattr(scheduling, "_whole", record)
    params = parameters(BARE)
    graph = {"layered": lambda: layered(0, 60), "layers": lambda: traced("layers"), **NASTY}[name]()
    graph = padding.pad(graph, SHAPE)
    machine = unit_rate_devices(3, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4)
    # All transfers share a link, and keep devices busy.
    shared = machine._replace(channel=np.zeros((3, 3), np.int32), synchronous=True)
    problem = prepare(graph, shared)
    given = dict(problem=problem, params=params, settings=BARE)
    given["inputs"] = go.inputs(graph, problem, settings=BARE)
    run = partial(go.search, **given, objective="capped_makespan", evaluations=500)
    result = run(jax.random.key(0))
    keys = result.best
    *every, found = scheduled_costs(problem, heuristic_keys(problem), keys, "capped_makespan")
    best = min(every)
    assert found == min(best, *reached) == result.cost == result.history[-1]
    assert len(reached) == 1
    if name == "layered":
        assert found < best
        same, other = run(jax.random.key(0)).best, run(jax.random.key(1)).best
        np.testing.assert_array_equal(keys.priority, same.priority)
        assert not np.array_equal(keys.priority, other.priority)


@pytest.mark.slow
def test_what_heuristics_try_is_of_the_budget(monkeypatch):
    spent = []

    def record(*args, iterations, **settings):
        spent.append(iterations)
        return iterations, np.inf, None, None, 0

    monkeypatch.setattr(scheduling, "_whole", record)
    problem, _ = small()
    count = len(heuristic_keys(problem).priority)
    before = tried(problem) + 3 * count + 1  # each of them is a start in two orders, too
    one = SMALL.evaluations_per_iteration
    for evaluations in (1, before + one - 1, before + 2 * one):
        go.search(
            *(jax.random.key(0), problem, parameters(SMALL)),
            **dict(inputs=small()[1], objective="makespan", evaluations=evaluations),
            settings=SMALL,
        )
    assert spent == [2]


@pytest.mark.slow
def test_on_one_device_nothing_is_placed(monkeypatch):
    decided, search = [], scheduling._whole

    def record(*args, settings, **rest):
        decided.append(settings.tasks)
        return search(*args, settings=settings, **rest)

    monkeypatch.setattr(scheduling, "_whole", record)
    graph = padding.pad(layered(0, 60), SHAPE)
    problem = prepare(graph, unit_rate_devices(1))
    given = dict(problem=problem, objective="peak_memory", evaluations=500)
    for settings in (BARE, SMALL):  # the second only places
        given["inputs"] = go.inputs(graph, problem, settings=settings)
        run = partial(go.search, jax.random.key(0), settings=settings, **given)
        keys = run(params=parameters(settings)).best
        *every, found = scheduled_costs(problem, heuristic_keys(problem), keys, "peak_memory")
        assert found == min(every) if settings == SMALL else found <= min(every)
    assert decided == [("scheduling",)]


def test_a_policy_that_schedules_nothing_is_refused():
    problem, _ = small()
    settings = dataclasses.replace(SMALL, tasks=("fusion",))
    with pytest.raises(ValueError, match=r"decides \('fusion',\): expected some of"):
        go.search(
            *(jax.random.key(0), problem, {}),
            **dict(inputs=small()[1], objective="makespan", evaluations=300, settings=settings),
        )


def test_the_policy_that_ships_can_be_loaded():
    params, settings = go.load()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    assert settings.tasks == scheduling.TASKS
