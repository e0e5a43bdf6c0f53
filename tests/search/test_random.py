from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from gopt.search import random
from gopt.search.loop import LoopResult
from tests.search.checks import assert_seeded
from tests.search.watched import TEMPLATE, Watched, cost


def run(key: jax.Array, cost: Any, **settings: Any) -> LoopResult:
    return jax.jit(lambda key: random.minimize(key, cost, TEMPLATE, **settings))(key)


@pytest.mark.parametrize(
    ("evaluations", "block", "blocks"),
    [
        (1, 100, [1]),
        (37, 100, [37]),
        (101, 100, [1, 100]),
        (230, 100, [30, 100, 100]),
        (5, 1, [1] * 5),
    ],
)
def test_the_budget_is_exact_and_the_best_of_all_is_returned(evaluations, block, blocks):
    watched = Watched()

    result = run(jax.random.key(1), watched, evaluations=evaluations, block=block)
    watched.assert_matches(result, blocks)
    assert len(np.unique(np.concatenate(watched.costs))) == evaluations
    assert result.last.cost.shape == (1,) and result.last.cost[0] == result.cost


def test_keys_are_uniform():
    watched = Watched()
    run(jax.random.key(0), watched, evaluations=4000, block=1000)
    jax.effects_barrier()
    drawn = np.ravel(np.concatenate(watched.genes))
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, 10, (0, 1))[0]
    assert np.abs(counts / len(drawn) - 0.1).max() < 0.01
    np.testing.assert_allclose(np.corrcoef(drawn[:-1], drawn[1:])[0, 1], 0, atol=0.03)


def test_the_same_key_gives_the_same_result_and_another_one_does_not():
    assert_seeded(partial(run, cost=cost, evaluations=250))


@pytest.mark.slow
def test_candidates_come_from_the_proposal():
    def near(u: dict[str, Any]) -> dict[str, Any]:
        return {"a": 0.3 + 0.01 * u["a"], "b": (0.9 + 0.01 * u["b"][0],)}

    far = run(jax.random.key(0), cost, evaluations=50, block=20)
    close = run(jax.random.key(0), cost, evaluations=50, block=20, proposal=near)
    assert close.cost < 7 * 0.01**2 < far.cost
    assert (close.best["a"] >= 0.3).all()


@pytest.mark.parametrize("settings", [{"evaluations": 0}, {"evaluations": 5, "block": 0}])
def test_settings_out_of_range_raise(settings):
    name = list(settings)[-1]
    with pytest.raises(ValueError, match=f"{name} is 0: expected 1 at least"):
        random.minimize(jax.random.key(0), cost, TEMPLATE, **settings)
