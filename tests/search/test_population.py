import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gopt.search import brkga, local, random
from gopt.search.population import uniforms
from tests.search.watched import TEMPLATE, cost, genes


def test_uniforms_are_independent_and_fill_the_unit_interval():
    drawn = genes(uniforms(jax.random.key(0), TEMPLATE, 2000))
    assert drawn.shape == (2000, 7) and drawn.dtype == np.float32
    assert drawn.min() >= 0 and drawn.max() < 1
    assert all(stats.kstest(gene, "uniform").statistic < 0.05 for gene in drawn.T)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(7)).max() < 0.1


@pytest.mark.parametrize("search", [brkga, local, random], ids=lambda search: search.__name__)
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
