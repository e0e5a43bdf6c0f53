"""Single cells of arrays, for loops over scalars, and computations that stay in one piece.

XLA updates a carried array in place only if nothing reads its old value after, or beside, the
write; one copy of an array in a loop costs a hundred times the rest. So loops here write first
and read the written value back, or carry what is to be written to the start of the next step.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

try:
    from jax.experimental.scheduling_groups import xla_metadata_call
except ImportError:  # costs are the same without it, and take longer
    xla_metadata_call = None  # type: ignore[assignment]

Fn = TypeVar("Fn", bound=Callable)


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


def unit(fn: Fn) -> Fn:
    """Returns `fn` as a computation that XLA calls, and neither inlines nor mixes with others.

    A hint for CPUs: XLA's runtime there runs the steps of a short computation one after another.
    It hands those of a long one out to threads, which costs more than the steps themselves where
    they are small.
    """
    if xla_metadata_call is None:
        return fn
    return xla_metadata_call(fn, inlineable="false")


def check_units() -> None:
    """Checks that a `unit` stays one.

    Raises:
      RuntimeError: this version of JAX has no calls that XLA does not inline.
    """
    if xla_metadata_call is None:
        raise RuntimeError("this version of JAX has no xla_metadata_call: XLA would merge kernels")
