"""Single cells of arrays: reads and writes for loops over scalars.

XLA updates a carried array in place only if nothing reads its old value after, or beside, the
write; one copy of an array in a loop costs a hundred times the rest. So loops here write first
and read the written value back, or carry what is to be written to the start of the next step.
"""

import jax
import jax.numpy as jnp
from jax import lax


def load(array: jax.Array, index: jax.Array) -> jax.Array:
    """Returns `array[index]` of a vector; the index must be in bounds."""
    return lax.dynamic_slice(array, (_unsigned(index),), (1,))[0]


def store(array: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    """Returns the vector with `array[index] = value`; the index must be in bounds."""
    return lax.dynamic_update_slice(array, value[None], (_unsigned(index),))


def if_negative(number: jax.Array, value: jax.Array) -> jax.Array:
    """Returns `value` if the int32 number is negative, else 0.

    For conditions that are hard to predict: made of comparisons they would be compiled to branches.
    """
    return (number >> 31) & value


def _unsigned(index: jax.Array) -> jax.Array:
    # XLA clamps indices to the bounds of the array: unsigned ones at one end only.
    return index.astype(jnp.uint32)
