"""Gibbs sampling draws from the distribution that it says."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.search import gibbs


def table(rng, nodes, values):
    """A cost of decisions, looked up; and its table."""
    costs = jnp.asarray(rng.integers(0, 6, (values,) * nodes), jnp.int32)
    return (lambda decisions: costs[tuple(decisions.T)]), np.asarray(costs)


@pytest.mark.parametrize("values", [2, 3])
def test_a_visit_draws_from_the_conditional_distribution(values):
    cost, costs = table(np.random.default_rng(0), 3, values)
    state = gibbs.init(jnp.array([1, 0, 1]), cost)
    visit = partial(gibbs.visit, node=1, cost=cost, temperature=2.0, values=values)
    after = jax.vmap(visit, (0, None))(jax.random.split(jax.random.key(0), 20_000), state)
    found = np.bincount(after.decisions[:, 1], minlength=values) / 20_000
    expected = np.exp(-costs[1, :, 1] / 2.0)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=0.015)  # four deviations
    assert (after.decisions[:, [0, 2]] == jnp.array([1, 1])).all()
    np.testing.assert_array_equal(after.cost, cost(after.decisions))


def test_chains_have_the_distribution_of_boltzmann():
    cost, costs = table(np.random.default_rng(1), 3, 2)

    def chain(key):
        def step(state, key):
            return gibbs.sweep(key, state, jnp.arange(3), 3, cost, temperature=1.5), None

        state = gibbs.init(jnp.zeros(3, jnp.int32), cost)
        return jax.lax.scan(step, state, jax.random.split(key, 30))[0]

    last = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 20_000)).decisions
    found = np.zeros((2, 2, 2))
    np.add.at(found, tuple(np.asarray(last).T), 1 / 20_000)
    expected = np.exp(-costs / 1.5)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=0.015)


def test_a_sweep_visits_each_node_once_and_no_padding():
    visited = []

    def cost(decisions):
        jax.debug.callback(lambda d: visited.append(np.array(d)), decisions, ordered=True)
        return jnp.zeros(len(decisions))

    state = gibbs.init(jnp.zeros(6, jnp.int32), cost)
    nodes = jnp.array([4, 0, 2, 5, 5])
    gibbs.sweep(jax.random.key(0), state, nodes, 3, cost, temperature=1e-9)
    jax.effects_barrier()
    assert len(visited) == 4
    changed = [
        np.flatnonzero((b != a).any(0)) for a, b in itertools.pairwise([v[:1] for v in visited])
    ]
    assert {int(i) for each in changed for i in each} <= {4, 0, 2}


def test_what_is_kept_is_the_least_that_was_evaluated():
    rng = np.random.default_rng(2)
    cost, costs = table(rng, 4, 3)
    run = partial(
        gibbs.minimize, cost=cost, nodes=jnp.arange(4), num_nodes=4, evaluations=2000, values=3
    )
    found = run(jax.random.key(0), start=jnp.zeros(4, jnp.int32), temperature=3.0)
    assert int(found.cost) == costs.min() == int(cost(found.decisions[None])[0])
    assert found.history.shape == (2000,) and int(found.history[0]) == costs[0, 0, 0, 0]
    assert (np.diff(found.history) <= 0).all() and found.history[-1] == found.cost


def test_without_temperature_it_goes_down_even_by_one_of_a_billion():
    """Costs of int32 differ by less than a float32 of that size tells apart."""

    def cost(decisions):
        return 2**30 - 1 - jnp.sum(decisions, -1).astype(jnp.int32)

    found = gibbs.minimize(
        jax.random.key(0),
        cost,
        jnp.zeros(8, jnp.int32),
        jnp.arange(8),
        8,
        evaluations=9,
        temperature=1e-6,
    )
    assert found.decisions.tolist() == [1] * 8
    assert found.history.tolist() == [2**30 - 1 - k for k in range(9)]


def test_chains_run_side_by_side():
    cost, _ = table(np.random.default_rng(3), 3, 2)
    run = partial(
        gibbs.minimize,
        cost=cost,
        start=jnp.zeros(3, jnp.int32),
        nodes=jnp.arange(3),
        num_nodes=3,
        evaluations=20,
        temperature=1.0,
    )
    keys = jax.random.split(jax.random.key(0), 5)
    many = jax.jit(jax.vmap(run))(keys)
    for k, key in enumerate(keys):
        np.testing.assert_array_equal(many.history[k], run(key).history)


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="evaluations is 0"):
        gibbs.minimize(
            jax.random.key(0), jnp.sum, jnp.zeros(2), jnp.arange(2), 2, evaluations=0, temperature=1
        )
