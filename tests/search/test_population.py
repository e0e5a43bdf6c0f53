import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gopt.search import annealing, brkga, random
from gopt.search.population import coins, uniforms
from tests.search.watched import TEMPLATE, cost, genes


def test_uniforms_are_independent_and_fill_the_unit_interval():
    drawn = genes(uniforms(jax.random.key(0), TEMPLATE, 2000))
    assert drawn.shape == (2000, 7) and drawn.dtype == np.float32
    assert drawn.min() >= 0 and drawn.max() < 1
    assert all(stats.kstest(gene, "uniform").statistic < 0.05 for gene in drawn.T)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(7)).max() < 0.1


@pytest.mark.parametrize("bias", [0.0, 0.3, 0.7, 1.0])
def test_coins_are_independent_and_have_their_bias(bias):
    drawn = genes(coins(jax.random.key(0), TEMPLATE, 4000, bias))
    assert drawn.shape == (4000, 7) and drawn.dtype == bool
    spread = np.sqrt(bias * (1 - bias))
    np.testing.assert_allclose(drawn.mean(0), bias, atol=1 / 512 + 4 * spread / np.sqrt(4000))
    if spread:
        assert np.abs(np.corrcoef(drawn.T) - np.eye(7)).max() < 0.1


def test_each_leaf_may_have_a_bias_of_its_own():
    bias = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), TEMPLATE)
    leaves, structure = jax.tree.flatten(bias)
    bias = jax.tree.unflatten(structure, [leaves[0] + 1, *leaves[1:]])
    first, *rest = jax.tree.leaves(coins(jax.random.key(0), TEMPLATE, 50, bias))
    assert first.all()
    assert not any(leaf.any() for leaf in rest)


@pytest.mark.parametrize("search", [brkga, annealing, random], ids=lambda search: search.__name__)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda keys: cost(keys)[:, None], "rank"),
        (lambda keys: jnp.sum(cost(keys)), "rank"),
        (lambda keys: cost(keys)[1:], "shape"),
    ],
    ids=["a column", "a sum", "one short"],
)
def test_costs_that_are_not_one_for_each_candidate_raise(search, wrong, message):
    with pytest.raises(AssertionError, match=message):
        search.minimize(jax.random.key(0), wrong, TEMPLATE, evaluations=20)
