"""A problem for searches that is not ours, and a record of what they evaluate."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TEMPLATE = {"a": jax.ShapeDtypeStruct((3,), jnp.float32), "b": (jnp.zeros((2, 2)),)}


def cost(keys: dict[str, Any]) -> jax.Array:
    """Squared distance to 0.3 in `a` and to 0.9 in `b`."""
    a, b = keys["a"], keys["b"][0]
    return jnp.sum((a - 0.3) ** 2, -1) + jnp.sum((b - 0.9) ** 2, (-1, -2))


def genes(keys: dict[str, Any]) -> np.ndarray:
    """All genes of a population, `[P, 7]`."""
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(keys)], 1)


def population(genes: Any) -> dict[str, Any]:
    """The population with these genes, `[P, 7]`."""
    genes = jnp.asarray(genes, jnp.float32)
    return {"a": genes[:, :3], "b": (genes[:, 3:].reshape(-1, 2, 2),)}


class Watched:
    """A cost, with a record of all that was evaluated, in order."""

    def __init__(self, of: Callable[[Any], jax.Array] = cost) -> None:
        self.of = of
        self.costs: list[np.ndarray] = []
        self.genes: list[np.ndarray] = []

    def __call__(self, keys: dict[str, Any]) -> jax.Array:
        value = self.of(keys)
        jax.debug.callback(self._note, keys, value, ordered=True)
        return value

    def _note(self, keys: dict[str, Any], value: jax.Array) -> None:
        self.genes.append(genes(jax.tree.map(np.array, keys)))
        self.costs.append(np.array(value))

    def assert_matches(self, result: Any, blocks: list[int]) -> None:
        """The result is the best of exactly what was evaluated, and its history says so."""
        jax.effects_barrier()
        assert [len(block) for block in self.costs] == blocks
        every = np.concatenate(self.costs)
        best = np.concatenate(self.genes)[np.argmin(every)]
        np.testing.assert_array_equal(
            genes(jax.tree.map(lambda leaf: leaf[None], result.best))[0], best
        )
        assert result.cost == every.min()
        lowest = np.minimum.accumulate([block.min() for block in self.costs])
        np.testing.assert_array_equal(result.history, lowest)
        np.testing.assert_array_equal(result.evaluations, np.cumsum(blocks))
        assert result.evaluations.dtype == jnp.int32
        assert jax.tree.map(jnp.shape, result.best) == {"a": (3,), "b": ((2, 2),)}
