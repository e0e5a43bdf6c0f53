"""Read and write single cells of arrays, for loops over scalars.

XLA updates a carried array in place only if nothing else can read its old value after the write
starts. One copy of an array in a loop takes about a hundred times as long as the rest of a step. So
these loops write first and read the written value back, or carry the value to write to the start of
the next step.
"""

import jax
import jax.numpy as jnp
from jax import lax


def load(array: jax.Array, index: jax.Array) -> jax.Array:
    """Return `array[index]` of a vector; the index must be in bounds."""
    return lax.dynamic_slice(array, (_unsigned(index),), (1,))[0]


def store(array: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    """Return the vector after `array[index] = value`; the index must be in bounds."""
    return lax.dynamic_update_slice(array, value[None], (_unsigned(index),))


def if_negative(number: jax.Array, value: jax.Array) -> jax.Array:
    """Return `value` if the int32 number is negative, else 0, without a branch.

    XLA compiles comparisons to branches, which are slow if the condition is hard to predict.
    """
    return (number >> 31) & value


def _unsigned(index: jax.Array) -> jax.Array:
    # XLA clamps indices to the array's bounds; for unsigned ones it checks only the upper bound.
    return index.astype(jnp.uint32)
