"""The learned cost model and the shared policy, which learned advantages are compared with."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.problem import prepare_fusion
from gopt.systems import local_advantage
from gopt.systems.local_advantage import cost_model, policy
from tests.cost.fusion.test_cost import ROWS, machine, random_graph

SETTINGS = local_advantage.Settings(
    width=8, rounds=1, steps=200, configurations=16, learning_rate=1e-2
)


def data(seed=0, rows=ROWS[0]):
    """A random graph with configurations that random bits make."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 20)
    problem = prepare_fusion(graph, machine(rng), rows=rows)
    fuse = (rng.random((8, len(problem.compute))) < 0.5) & problem.configurable
    found = cost_model.Configurations(
        local_advantage.inputs(graph, problem, settings=SETTINGS), problem, fuse, np.float32(1)
    )
    return jax.tree.map(jnp.asarray, found._replace(spread=np.float32(np.std(costs(found)))))


fusion_costs = jax.jit(jax.vmap(fusion_cost, (None, 0)))


def costs(data, fuse=None):
    fuse = data.fuse if fuse is None else fuse
    return np.asarray(fusion_costs(data.problem, fuse), np.float64)


def cost_of(data):
    return lambda decisions: fusion_costs(data.problem, decisions > 0)


@pytest.fixture(scope="module")
def given():
    return data()


@pytest.fixture(scope="module")
def model(given):
    """A cost model that was trained on one graph, and its losses."""
    return trained(cost_model, given)


def trained(route, given):
    """The parameters of a route after all steps, and what each step returned."""
    params = route.init(jax.random.key(0), given.graphs, settings=SETTINGS)
    state = route.start(params, settings=SETTINGS)
    step = jax.jit(partial(route.step, settings=SETTINGS))
    found = []
    for key in jax.random.split(jax.random.key(1), SETTINGS.steps):
        state, metrics = step(state, key, given)
        (value,) = metrics.values()
        found.append(float(value))
    return state.params, found


@jax.jit
def predictions(params, given, fuse):
    nodes = local_advantage.encode(params, given.graphs, settings=SETTINGS)
    return jax.vmap(partial(cost_model.predicted, params, nodes, given.graphs))(fuse * 1.0)


@pytest.mark.slow
def test_a_cost_model_learns_what_configurations_cost(given, model):
    params, losses = model
    assert np.mean(losses[-20:]) < 0.3 * np.mean(losses[:20])
    rng = np.random.default_rng(5)
    fuse = (rng.random((40, given.fuse.shape[1])) < 0.5) & np.asarray(given.problem.configurable)
    found = np.corrcoef(predictions(params, given, fuse), costs(given, fuse))[0, 1]
    assert found > 0.7


@pytest.mark.slow
def test_padding_changes_no_prediction(given, model):
    params, _ = model
    other = data(rows=ROWS[1])
    longer = np.zeros((len(given.fuse), other.fuse.shape[1]), bool)
    longer[:, : given.fuse.shape[1]] = given.fuse
    np.testing.assert_allclose(
        predictions(params, other, longer), predictions(params, given, given.fuse), atol=1e-5
    )


@pytest.mark.slow
def test_the_loss_is_of_differences_in_deviations(given, model):
    """By hand; and what all costs have in common does not count."""
    params, _ = model
    cost = jnp.asarray(costs(given), jnp.int32)
    error = predictions(params, given, given.fuse) - costs(given) / float(given.spread)
    loss = jax.jit(partial(cost_model.loss, params, given, given.fuse, settings=SETTINGS))
    np.testing.assert_allclose(loss(cost), np.var(error), rtol=1e-4)
    np.testing.assert_allclose(loss(cost + 2**20), loss(cost), rtol=1e-6)


@pytest.mark.slow
def test_what_guides_is_the_slope_towards_the_other_decision(given, model):
    params, _ = model
    can = np.asarray(given.problem.configurable)
    guide = cost_model.guide(params, given.graphs, can, settings=SETTINGS)
    nodes = local_advantage.encode(params, given.graphs, settings=SETTINGS)
    cost = jax.jit(partial(cost_model.predicted, params, nodes, given.graphs))
    decisions = np.asarray(given.fuse[0], np.int32)
    scores = np.asarray(guide(jnp.asarray(decisions)))
    assert (scores[~can] == -np.inf).all() and np.isfinite(scores[can]).all()
    h = 1e-2
    for op in np.flatnonzero(can):
        toward = np.zeros(len(can), np.float32)
        toward[op] = h * (1 - 2 * decisions[op])
        slope = float(cost(decisions + toward) - cost(decisions - toward)) / (2 * h)
        assert scores[op] == pytest.approx(-slope, rel=0.05, abs=2e-3)


def test_configurations_are_drawn_as_often_as_the_log_odds_say(given):
    can = np.asarray(given.problem.configurable)
    logits = jnp.linspace(-2, 2, len(can))
    batch = policy.sample(jax.random.key(0), logits, can, cost_of(given), count=4000)
    np.testing.assert_allclose(
        batch.fuse.mean(0), np.where(can, jax.nn.sigmoid(logits), 0), atol=0.04
    )
    np.testing.assert_array_equal(batch.cost[:8], costs(given, batch.fuse[:8]))


def test_the_loss_of_a_policy_is_that_of_reinforce(given):
    """Each log-probability by hand, times how much cheaper than the mean of the others it is."""
    can = np.asarray(given.problem.configurable)
    params = policy.init(jax.random.key(3), given.graphs, settings=SETTINGS)
    batch = policy.Batch(given.fuse, jnp.asarray(costs(given), jnp.int32))
    p = np.float64(jax.nn.sigmoid(policy.logits(params, given.graphs, settings=SETTINGS)))
    drawn = np.asarray(given.fuse)
    log_prob = np.where(can, np.log(np.where(drawn, p, 1 - p)), 0).sum(1)
    reward = -costs(given) / np.std(costs(given))
    others = (reward.sum() - reward) / (len(reward) - 1)
    loss = jax.jit(partial(policy.loss, settings=SETTINGS))
    np.testing.assert_allclose(
        loss(params, given.graphs, can, batch),
        -np.mean((reward - others) * log_prob),
        rtol=1e-3,
    )


@pytest.mark.slow
def test_training_a_policy_lowers_what_it_draws(given):
    _, shares = trained(policy, given)
    least = np.min(costs(given)) / costs(given, given.fuse & False)[0]
    assert np.mean(shares[-10:]) < np.mean(shares[:10]) and np.mean(shares[-10:]) < 1.02 * least


@pytest.mark.slow
@pytest.mark.parametrize("best", [policy.best_of, policy.minimize])
@pytest.mark.parametrize("evaluations", [2, 100])
def test_as_many_are_drawn_as_asked_for(given, evaluations, best):
    can, counted = given.problem.configurable, []
    params = policy.init(jax.random.key(0), given.graphs, settings=SETTINGS)

    def cost(decisions):
        jax.debug.callback(lambda d: counted.append(len(d)), decisions)
        return cost_of(given)(decisions)

    start = given.fuse[0].astype(jnp.int32)
    found = best(
        jax.random.key(0),
        params,
        given.graphs,
        can,
        cost,
        start,
        evaluations=evaluations,
        settings=SETTINGS,
    )
    jax.effects_barrier()
    assert sum(counted) == evaluations and found.history.shape == (evaluations,)
    assert found.history[0] == costs(given)[0] and (np.diff(found.history) <= 0).all()
    assert found.history[-1] == found.cost == costs(given, found.decisions[None] > 0)[0]


@pytest.mark.slow
def test_a_fine_tuned_policy_draws_better_and_better(given):
    """What is drawn last is cheaper than what is drawn first, unless nothing is learned."""
    params = policy.init(jax.random.key(0), given.graphs, settings=SETTINGS)
    ratios = []
    for best in (policy.best_of, partial(policy.minimize, learning_rate=3e-2)):
        drawn = []

        def cost(decisions, drawn=drawn):
            found = cost_of(given)(decisions)
            jax.debug.callback(lambda c: drawn.append(np.mean(c)), found, ordered=True)
            return found

        best(
            jax.random.key(0),
            params,
            given.graphs,
            given.problem.configurable,
            cost,
            given.fuse[0].astype(jnp.int32),
            evaluations=2 + 16 * 60,
            settings=SETTINGS,
        )
        jax.effects_barrier()
        ratios.append(np.mean(drawn[-10:]) / np.mean(drawn[1:11]))
    assert ratios[1] < ratios[0] - 0.02


def test_a_budget_without_a_draw_is_refused(given):
    with pytest.raises(ValueError, match="evaluations is 1"):
        policy.minimize(
            jax.random.key(0),
            None,
            given.graphs,
            given.problem.configurable,
            cost_of(given),
            given.fuse[0],
            evaluations=1,
            settings=SETTINGS,
        )
