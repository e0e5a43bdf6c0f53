"""Properties of every search."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.search.watched import TEMPLATE, cost


def assert_vmappable(minimize: Callable[..., Any]) -> None:
    """Assert that searches on three problems at once equal searches on one at a time."""

    def solve(key: jax.Array, scale: jax.Array) -> Any:
        return minimize(key, lambda keys: scale * cost(keys), TEMPLATE, evaluations=50)

    keys, scales = jax.random.split(jax.random.key(0), 3), jnp.float32([1, 2, 4])
    together = jax.jit(jax.vmap(solve))(keys, scales)
    for row in range(3):
        alone = jax.jit(solve)(keys[row], scales[row])
        jax.tree.map(
            lambda got, expected, row=row: np.testing.assert_array_equal(got[row], expected),
            together,
            alone,
        )


def assert_seeded(run: Callable[[jax.Array], Any]) -> None:
    """Assert that the same key gives the same result, and that another one does not."""
    one, same, other = (run(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    assert one.cost != other.cost
