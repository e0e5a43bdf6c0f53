"""Features of configurations, and rates fitted to times."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.rules import RULES
from gopt.fusion import Rates, count_work, fit_rates
from gopt.graph.tracing import trace

RATES = Rates(3e-11, 1e-10, 2e-9, 4e-11, 1e-6)


def model(x, w):
    y = jnp.tanh(x @ w) * x + 1
    for _ in range(3):
        y = jnp.exp(-y) * jnp.sum(y, axis=1, keepdims=True) + x
    return y


@pytest.fixture(scope="module")
def graph():
    return trace(model, jnp.ones((32, 16)), jnp.ones((16, 16))).graph


def configurations(problem, count=12):
    rng = np.random.default_rng(0)
    return rng.random((count, len(problem.compute))) < np.linspace(0, 1, count)[:, None]


@pytest.mark.parametrize("allow_duplication", [False, True])
def test_features_times_rates_are_the_cost(graph, allow_duplication):
    rules = replace(RULES["cpu"], allow_duplication=allow_duplication)
    problem = RATES.problem(graph, rules=rules)
    fuse = configurations(problem)
    found = jax.vmap(fusion_cost, (None, 0))(problem, fuse) * float(problem.tick)
    expected = count_work(graph, fuse, rules=rules) @ np.array(RATES)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len(set(np.asarray(found).tolist())) > 6


def test_by_hand(graph):
    """Nothing fused: every op reads and writes, and the product is counted apart."""
    fuse = np.zeros((1, len(RATES.problem(graph).compute)), bool)
    byte, flop, function, product, kernel = count_work(graph, fuse)[0]
    n, (big, column, square) = int(graph.num_ops), (4 * 32 * 16, 4 * 32, 4 * 16 * 16)
    assert product == pytest.approx(2 * 32 * 16 * 16, rel=1e-4)
    assert function == pytest.approx(4 * 32 * 16, rel=1e-4)  # one tanh, three exponentials
    assert kernel == n - 2
    # x @ w, tanh, mul, add; then neg, exp, sum, mul with a column, add.
    assert byte == pytest.approx(
        (2 * big + square)
        + 2 * big
        + 3 * big
        + 2 * big
        + 3 * (2 * big + 2 * big + (big + column) + (2 * big + column) + 3 * big),
        rel=1e-4,
    )
    assert flop == pytest.approx(32 * 16 * (2 + 3 * 3) + 3 * 32 * 15, rel=1e-4)


@pytest.mark.parametrize("function", [jnp.exp, jax.lax.erfc, jax.lax.logistic, jax.lax.sinh])
def test_functions_count_by_element_however_they_are_expanded(function):
    graph = trace(function, jnp.ones((8, 5))).graph
    fuse = np.zeros((1, len(RATES.problem(graph).compute)), bool)
    found = count_work(graph, fuse)[0]
    np.testing.assert_allclose(found, [2 * 4 * 40, 0, 40, 0, 1], rtol=1e-4)


def test_rates_are_found_again(graph):
    fuse = configurations(RATES.problem(graph))
    joined = replace(RULES["cpu"], allow_duplication=False)
    counts = np.concatenate([count_work(graph, fuse, rules=r) for r in (joined, RULES["cpu"])])
    rng = np.random.default_rng(0)
    counts = counts * rng.uniform(0.1, 10, counts.shape)  # the features of one graph are dependent
    found = fit_rates(counts, counts @ np.array(RATES))
    np.testing.assert_allclose(found, RATES, rtol=1e-6)
    assert min(fit_rates(counts, rng.uniform(1, 2, len(counts)))) >= 0


def test_what_takes_no_time_is_left_out(graph):
    problem = Rates(0.0, 0.0, 0.0, 0.0, 1.0).problem(graph)
    fuse = np.zeros(len(problem.compute), bool)
    assert float(fusion_cost(problem, fuse) * problem.tick) == int(graph.num_ops) - 2


def test_bad_times_are_refused():
    with pytest.raises(ValueError, match=r"counts has shape \(2, 3\): expected \(2, 5\)"):
        fit_rates(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match=r"seconds\[1\] is inf"):
        fit_rates(np.ones((2, 5)), np.array([1, np.inf]))
    with pytest.raises(ValueError, match="seconds is empty"):
        fit_rates(np.ones((0, 5)), np.ones(0))
    for bad in (np.nan, -1):
        counts = np.ones((3, 5))
        counts[2, 1] = bad
        with pytest.raises(ValueError, match=r"counts\[2, 1\] is"):
            fit_rates(counts, np.ones(3))


def test_what_ends_at_the_largest_cost_is_no_feature():
    def repeat(x):
        for _ in range(50):
            x = x * x
        return x[:, None] + jnp.ones(200)

    graph = trace(repeat, jnp.ones(1000)).graph
    fuse = np.ones((1, len(RATES.problem(graph).compute)), bool)
    with pytest.raises(ValueError, match=r"fuse\[0\] computes too much"):
        count_work(graph, fuse)
