"""Gibbs sampling draws from the distribution that it says."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.search import gibbs

DRAWS = 20_000
LARGE = 2**30 - 10  # a float32 of this size is a multiple of 64


def table(rng, nodes, values, start=0, spread=8):
    """A cost of decisions, looked up; and its table."""
    costs = start + rng.permutation(values**nodes).reshape((values,) * nodes) % spread
    costs = jnp.asarray(costs, jnp.int32)
    return (lambda decisions: costs[tuple(decisions.T)]), np.asarray(costs)


def recorded(cost):
    """The cost, and the decisions and costs of all that it evaluates."""
    seen = []

    def watched(decisions):
        value = cost(decisions)
        jax.debug.callback(
            lambda d, c: seen.extend(zip(np.array(d).tolist(), np.array(c).tolist(), strict=True)),
            decisions,
            value,
            ordered=True,
        )
        return value

    return watched, seen


def chances(costs, temperature):
    """Of Boltzmann; in float64, of costs less their least one."""
    weight = np.exp(-(np.asarray(costs, np.float64) - np.min(costs)) / temperature)
    return weight / weight.sum()


def assert_drawn(counts, expected):
    """That so many draws are within five standard deviations of what they should be."""
    total = np.sum(counts)
    deviation = np.sqrt(expected * (1 - expected) * total)
    assert (np.abs(counts - expected * total) <= 5 * deviation + 1e-3).all()


@pytest.mark.parametrize("start", [0, LARGE])
@pytest.mark.parametrize("own", range(3))
@pytest.mark.parametrize("values", [2, 3])
def test_a_visit_draws_from_the_conditional_distribution(values, own, start):
    cost, costs = table(np.random.default_rng(0), 3, values, start)
    state = gibbs.init(jnp.array([1, own % values, 0]), cost)
    visit = partial(gibbs.visit, node=1, cost=cost, temperature=2.0, values=values)
    after = jax.jit(jax.vmap(visit, (0, None)))(jax.random.split(jax.random.key(0), DRAWS), state)
    row = costs[1, :, 0]
    assert_drawn(np.bincount(after.decisions[:, 1], minlength=values), chances(row, 2.0))
    assert len(set(row)) == values  # the test would notice a wrong temperature
    assert (after.decisions[:, [0, 2]] == jnp.array([1, 0])).all()
    np.testing.assert_array_equal(after.cost, cost(after.decisions))
    # All values are evaluated, and the least is kept, whatever is drawn.
    assert (after.best_cost == row.min()).all()
    np.testing.assert_array_equal(after.best, np.tile([1, row.argmin(), 0], (DRAWS, 1)))


@pytest.mark.slow
def test_what_is_met_later_and_no_better_does_not_replace_the_best():
    cost, costs = table(np.random.default_rng(0), 3, 3)
    best = jnp.array([2, 2, 2])
    for best_cost in (-1, int(costs[1, :, 0].min())):
        state = gibbs.init(jnp.array([1, 0, 0]), cost)
        state = state._replace(best=best, best_cost=jnp.int32(best_cost))
        after = gibbs.visit(jax.random.key(0), state, 1, cost, temperature=1.0, values=3)
        assert after.best.tolist() == [2, 2, 2] and int(after.best_cost) == best_cost


@pytest.mark.parametrize("start", [0, LARGE])
@pytest.mark.parametrize("own", range(3))
def test_near_temperature_zero_the_least_is_taken(own, start):
    cost, costs = table(np.random.default_rng(1), 3, 3, start)
    visit = partial(gibbs.visit, node=1, cost=cost, temperature=1e-6, values=3)
    state = gibbs.init(jnp.array([1, own, 0]), cost)
    after = jax.vmap(visit, (0, None))(jax.random.split(jax.random.key(0), 100), state)
    assert (after.decisions[:, 1] == costs[1, :, 0].argmin()).all()
    assert np.isfinite(after.cost).all()


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float32])
@pytest.mark.parametrize("own", range(4))
def test_where_differences_overflow_the_least_is_taken(own, dtype):
    """They are 1e44 temperatures and more, and a float32 ends at 3e38."""
    costs = jnp.array([2**30, 2**29, 1, 2**29], dtype)

    def cost(decisions):
        return costs[decisions[:, 0]]

    state = gibbs.init(jnp.array([own]), cost)

    def visit(key, temperature):
        return gibbs.visit(key, state, 0, cost, temperature=temperature, values=4)

    keys, temperature = jax.random.split(jax.random.key(0), 100), jnp.full(100, 1e-35)
    after = jax.jit(jax.vmap(visit))(keys, temperature)
    assert (after.decisions == 2).all() and (after.cost == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "values"), [(3, 2), (2, 3)])
def test_chains_have_the_distribution_of_boltzmann(nodes, values):
    cost, costs = table(np.random.default_rng(1), nodes, values)
    order = jnp.arange(nodes)

    def chain(key):
        def step(state, key):
            found = gibbs.sweep(key, state, order, nodes, cost, temperature=3.0, values=values)
            return found, None

        state = gibbs.init(jnp.zeros(nodes, jnp.int32), cost)
        return jax.lax.scan(step, state, jax.random.split(key, 30))[0]

    last = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), DRAWS))
    counts = np.zeros_like(costs)
    np.add.at(counts, tuple(np.asarray(last.decisions).T), 1)
    assert_drawn(counts, chances(costs, 3.0))
    # Costs are carried, not computed anew, and the best is the least that there is.
    np.testing.assert_array_equal(last.cost, cost(last.decisions))
    np.testing.assert_array_equal(last.best_cost, cost(last.best))
    assert (last.best_cost == costs.min()).mean() > 0.99


def test_a_sweep_visits_nodes_in_turn_each_once_and_no_padding():
    cost, seen = recorded(lambda decisions: 1e6 * jnp.sum(decisions, -1))  # no change is taken
    state = gibbs.init(jnp.zeros(6, jnp.int32), cost)
    nodes = jnp.array([4, 0, 2, 5, 5])
    gibbs.sweep(jax.random.key(0), state, nodes, 3, cost, temperature=1e-3)
    jax.effects_barrier()
    tried = [np.flatnonzero(decisions).tolist() for decisions, _ in seen]
    assert tried == [[], [4], [0], [2]]


def test_a_sweep_goes_on_from_what_was_drawn():
    cost, seen = recorded(lambda decisions: -1e6 * jnp.sum(decisions, -1))  # each change is taken
    state = gibbs.init(jnp.zeros(4, jnp.int32), cost)
    last = gibbs.sweep(jax.random.key(0), state, jnp.arange(4), 3, cost, temperature=1e-3)
    jax.effects_barrier()
    assert [sum(decisions) for decisions, _ in seen] == [0, 1, 2, 3]
    assert last.decisions.tolist() == [1, 1, 1, 0] and float(last.cost) == -3e6


def test_visits_of_a_sweep_are_drawn_apart():
    """At a high temperature, all 16 configurations are as likely after a sweep."""

    def cost(decisions):
        return jnp.zeros(len(decisions))

    state = gibbs.init(jnp.zeros(4, bool), cost)
    sweep = partial(gibbs.sweep, state=state, nodes=jnp.arange(4), num_nodes=4, cost=cost)
    run = jax.jit(jax.vmap(partial(sweep, temperature=1.0)))
    last = run(jax.random.split(jax.random.key(0), DRAWS)).decisions
    assert last.dtype == jnp.int32  # of bools, too
    assert_drawn(np.bincount(last @ 2 ** jnp.arange(4), minlength=16), np.full(16, 1 / 16))


@pytest.mark.parametrize(("values", "evaluations"), [(2, 1), (2, 40), (3, 1), (3, 40), (3, 41)])
def test_a_run_keeps_the_best_of_all_that_it_evaluates(values, evaluations):
    of, costs = table(np.random.default_rng(2), 4, values, spread=80)
    cost, seen = recorded(of)
    start = np.array(np.unravel_index(costs.argmax(), costs.shape))
    found = gibbs.minimize(
        jax.random.key(0),
        cost,
        jnp.asarray(start, jnp.int32),
        jnp.array([3, 1, 0, 2, 2]),
        3,
        evaluations=evaluations,
        temperature=20.0,
        values=values,
    )
    jax.effects_barrier()
    assert len(seen) == 1 + (evaluations - 1) // (values - 1) * (values - 1)
    least = min(cost for _, cost in seen)
    assert (found.decisions.tolist(), int(found.cost)) in seen and int(found.cost) == least
    # The best after each visit is that after each evaluation, from the last visit's last on.
    assert found.history.shape == (evaluations,) and (np.diff(found.history) <= 0).all()
    costs = [cost for _, cost in seen]
    for k in range(0, len(seen), values - 1):
        assert int(found.history[k]) == min(costs[: k + 1])
    assert found.history[-1] == found.cost
    assert evaluations == 1 or len(set(found.history.tolist())) > 3
    # Nodes in turn, again and again; what is padding, or after the count, stays.
    visited = [decisions for decisions, _ in seen[1:]]
    assert all(decisions[2] == start[2] for decisions in visited)
    for decisions in visited[: values - 1]:
        assert np.flatnonzero(np.array(decisions) != start).tolist() == [3]


def test_the_steps_of_a_run_are_drawn_apart():
    cost, seen = recorded(lambda decisions: jnp.zeros(len(decisions)))
    gibbs.minimize(
        jax.random.key(0),
        cost,
        jnp.zeros(1, jnp.int32),
        jnp.zeros(1, jnp.int32),
        1,
        evaluations=201,
        temperature=1.0,
    )
    jax.effects_barrier()
    ones = sum(decisions[0] for decisions, _ in seen)
    assert 60 < ones < 140


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


@pytest.mark.slow
def test_chains_side_by_side_are_those_one_by_one():
    cost, _ = table(np.random.default_rng(3), 3, 2)
    run = partial(
        gibbs.minimize,
        cost=cost,
        start=jnp.zeros(3, jnp.int32),
        nodes=jnp.arange(3),
        num_nodes=3,
        evaluations=20,
    )
    keys, temperature = jax.random.split(jax.random.key(0), 5), jnp.float32([0.1, 1, 1, 3, 10])
    many = jax.jit(jax.vmap(lambda key, t: run(key, temperature=t)))(keys, temperature)
    for k, key in enumerate(keys):
        alone = run(key, temperature=temperature[k])
        np.testing.assert_array_equal(many.history[k], alone.history)
        np.testing.assert_array_equal(many.decisions[k], alone.decisions)


KNOWN = {"evaluations": 3, "num_nodes": 2, "temperature": 1.0, "values": 2}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"evaluations": 0}, "evaluations is 0: expected 1 at least"),
        ({"num_nodes": 0}, "num_nodes is 0: expected 1.."),
        ({"num_nodes": np.int32(-1)}, "num_nodes is -1: expected 1.."),
        ({"values": 1}, "values is 1: expected 2 at least"),
        ({"temperature": 0}, "temperature is 0: expected more than 0"),
        ({"temperature": np.float32(-0.5)}, "temperature is -0.5: expected more than 0"),
        ({"temperature": float("nan")}, "temperature is nan: expected more than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, message):
    cost, key, nodes = partial(jnp.sum, axis=-1), jax.random.key(0), jnp.arange(2)
    with pytest.raises(ValueError, match=message):
        gibbs.minimize(key, cost, jnp.zeros(2), nodes, **KNOWN | wrong)
    if not {"values", "temperature"} & set(wrong):
        return
    state = gibbs.init(jnp.zeros(2), cost)
    rest = {name: (KNOWN | wrong)[name] for name in ("temperature", "values")}
    with pytest.raises(ValueError, match=message):
        gibbs.visit(key, state, jnp.int32(0), cost, **rest)
    with pytest.raises(ValueError, match=message):
        gibbs.sweep(key, state, nodes, 2, cost, **rest)


def test_what_is_traced_is_not_asked():
    cost = partial(jnp.sum, axis=-1)

    def run(num_nodes, temperature):
        args = jax.random.key(0), cost, jnp.ones(2, jnp.int32), jnp.arange(2), num_nodes
        return gibbs.minimize(*args, evaluations=3, temperature=temperature)

    assert jax.jit(run)(2, 1e-3).decisions.tolist() == [0, 0]
