import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gopt.search import brkga
from gopt.search.proposals import beta_quantiles, from_quantiles

BELLS = [(0.5, 0.28867513), (0.2, 0.1), (0.9, 0.05), (0.03, 0.02)]


def draw(mean, deviation):
    table = jnp.asarray(beta_quantiles([0.7, mean], [0.01, deviation]))
    u = jax.random.uniform(jax.random.key(0), (20_000,))
    return np.asarray(from_quantiles(table, jnp.int32(1), u))


@pytest.mark.parametrize(("mean", "deviation"), [*BELLS, (0.5, 0.45), (0.3, 0.4)])
def test_keys_have_the_moments_of_the_beta(mean, deviation):
    keys = draw(mean, deviation)
    assert keys.min() >= 0 and keys.max() <= 1
    assert keys.mean() == pytest.approx(mean, abs=0.01)
    assert keys.std() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize(("mean", "deviation"), BELLS)
def test_keys_have_the_distribution_of_the_beta(mean, deviation):
    weight = mean * (1 - mean) / deviation**2 - 1
    expected = stats.beta(mean * weight, (1 - mean) * weight)
    assert stats.kstest(draw(mean, deviation), expected.cdf).statistic < 0.02


def test_uniform_is_the_beta_of_a_half():
    quantiles = beta_quantiles(0.5, np.sqrt(1 / 12), points=5)
    np.testing.assert_allclose(quantiles, [1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8], atol=1e-5)


def test_levels_are_met_and_interpolated_between():
    table = jnp.float32([[0.5, 0.5, 0.6], [0, 0.2, 1]])
    row = jnp.int32([1, 0])
    u = jnp.float32([[0, 0], [0.5, 0.5], [0.25, 0.75], [1, 1]])
    np.testing.assert_allclose(
        from_quantiles(table, row, u), [[0, 0.5], [0.2, 0.5], [0.1, 0.55], [1, 0.6]], atol=1e-6
    )


def test_narrow_distributions_stay_narrow():
    keys = from_quantiles(
        jnp.asarray(beta_quantiles([0.5], 1e-3)), jnp.int32(0), jnp.linspace(0, 1, 1001)
    )
    assert np.abs(np.asarray(keys) - 0.5).max() < 0.005
    assert (np.diff(keys) >= 0).all()


@pytest.mark.slow
def test_genes_differ_in_a_search():
    """A proposal of a Beta for each gene, as mutants of the genetic algorithm."""
    means = np.float64([0.1, 0.5, 0.9])
    table, row = jnp.asarray(beta_quantiles(means, 0.02)), jnp.int32([[0, 1], [2, 0]])
    settings = brkga.Settings(population=400, elites=100, mutants=100)

    def proposal(u: jax.Array) -> jax.Array:
        return from_quantiles(table, row, u)

    template = jnp.zeros((2, 2))
    first = brkga.init(jax.random.key(0), template, settings=settings, proposal=proposal)
    state = brkga.sort(first, jnp.arange(400.0))
    mutants = brkga.ask(jax.random.key(1), state, settings=settings, proposal=proposal)[-100:]
    for drawn in (first, mutants):
        np.testing.assert_allclose(np.mean(drawn, 0), means[row], atol=0.01)
        np.testing.assert_allclose(np.std(drawn, 0), 0.02, atol=0.005)


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0), (0.5, 0.5), (0.1, 0.4), (np.nan, 0.1), (0.5, np.nan)],
)
def test_moments_that_no_beta_has_raise(mean, deviation):
    with pytest.raises(ValueError, match=r"at \(1,\): no Beta distribution has these"):
        beta_quantiles([0.5, mean], [0.1, deviation])
