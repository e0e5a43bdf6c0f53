"""Populations: pytrees of keys in [0, 1] whose first axis is the candidate."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

Tree = Any
Cost = Callable[[Tree], jax.Array]  # keys [P, ...] to costs [P], to be minimised


def uniforms(key: jax.Array, template: Tree, count: int) -> Tree:
    """Returns independent uniforms in [0, 1) for each gene of `count` candidates, `[count, ...]`.

    Args:
      key: random key.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      count: how many candidates.
    """
    leaves, structure = jax.tree.flatten(template)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        jax.random.uniform(k, (count, *jnp.shape(leaf)), jnp.float32)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def assert_a_cost_each(keys: Tree, cost: jax.Array) -> None:
    """Raises `AssertionError` unless costs are `[P]` for keys `[P, ...]`.

    A column `[P, 1]` would be sorted along the wrong axis without a word.
    """
    chex.assert_rank(cost, 1)
    chex.assert_equal_shape_prefix([*jax.tree.leaves(keys), cost], 1)
