"""Populations: pytrees of keys in [0, 1] whose first axis is the candidate."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray

Tree = Any
KeysCost = Callable[[Tree], jax.Array]  # keys [P, ...] to costs [P], to be minimised
DecisionCost = Callable[[jax.Array], jax.Array]  # decisions [P, N] to costs [P], to be minimised


def uniforms(key: PRNGKeyArray, template: Tree, count: int) -> Tree:
    """Return independent uniforms in [0, 1) for each gene of `count` candidates.

    Args:
      key: random key.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      count: number of candidates.

    Returns:
      Pytree like the template, leaves float32 `[count, ...]`.
    """
    leaves, structure = jax.tree.flatten(template)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        jax.random.uniform(k, (count, *jnp.shape(leaf)), jnp.float32)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def coins(key: PRNGKeyArray, template: Tree, count: int, bias: Tree | float) -> Tree:
    """Return independent biased coins for each gene of `count` candidates.

    Each coin uses one random byte, because drawing numbers takes most of a search's time besides
    evaluation. So the probability is `bias` rounded to a multiple of 1/256.

    Args:
      key: random key.
      template: one candidate, or its `jax.ShapeDtypeStruct`s.
      count: number of candidates.
      bias: probability of True. One number, or a pytree like the candidate whose leaves broadcast
        against the candidate's.

    Returns:
      Pytree like the template, leaves bool `[count, ...]`.

    Raises:
      ValueError: a concrete bias is not in 0..1.
    """
    leaves, structure = jax.tree.flatten(template)
    keys = jax.tree.unflatten(structure, jax.random.split(key, len(leaves)))
    check_probabilities(bias, "bias")
    is_one = jax.tree_util.treedef_is_leaf(jax.tree.structure(bias))
    biases = jax.tree.map(lambda _: bias, template) if is_one else bias

    def flip(leaf: Any, key: jax.Array, bias: Any) -> jax.Array:
        shape = jnp.shape(leaf)
        size = math.prod(shape)
        words = jax.random.bits(key, (count, -(-size // 4)), jnp.uint32)
        drawn = lax.bitcast_convert_type(words, jnp.uint8).reshape(count, 4 * words.shape[1])
        drawn = drawn[:, :size].astype(jnp.int32)
        threshold = jnp.round(256 * jnp.asarray(bias, jnp.float32)).astype(jnp.int32)
        return drawn.reshape(count, *shape) < jnp.broadcast_to(threshold, shape)[None]

    return jax.tree.map(flip, template, keys, biases)


def is_concrete(value: Any) -> bool:
    """Return whether the value of a number or an array is known, so that it can be checked."""
    return not isinstance(value, jax.core.Tracer)


def check_probabilities(tree: Tree, name: str) -> None:
    """Raise `ValueError` if a concrete number of a pytree is not in 0..1, or not a number."""
    for leaf in filter(is_concrete, jax.tree.leaves(tree)):
        values = np.ravel(np.asarray(leaf))
        wrong = ~((values >= 0) & (values <= 1))
        if wrong.any():
            raise ValueError(f"{name} is {values[wrong][0]}: expected 0..1")


def assert_one_cost_per_candidate(keys: Tree, cost: jax.Array) -> None:
    """Raise `AssertionError` unless costs are `[P]` for keys `[P, ...]`.

    A column `[P, 1]` would be sorted along the wrong axis without an error.
    """
    chex.assert_rank(cost, 1)
    chex.assert_equal_shape_prefix([*jax.tree.leaves(keys), cost], 1)


class DecisionResult(NamedTuple):
    """The best decisions that a search found.

    Attributes:
      decisions: best decisions, `[N]`.
      cost: cost of the best decisions, `[]`.
      history: lowest cost after each evaluation, `[evaluations]`.
    """

    decisions: jax.Array
    cost: jax.Array
    history: jax.Array
