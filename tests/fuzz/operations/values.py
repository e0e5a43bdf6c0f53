"""Values of a random program by type, and steps on them.

Everything random is drawn before a step is traced, so that each trace of it is the same.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from tests.fuzz.operations.bodies import kind_of


class UnsuitableError(Exception):
    """No value has a type that the operation takes."""


class Step(NamedTuple):
    """An operation on values of a program.

    Attributes:
      operands: numbers of the values that it reads.
      function: function of these values; it returns an array or a tuple of arrays.
    """

    operands: tuple[int, ...]
    function: Callable[..., Any]


class Values:
    """Types of the values of a program so far, to draw operands from."""

    def __init__(self, rng: Random, types: Sequence[Any]):
        self.rng, self.types = rng, list(types)

    def pick(self, kinds: str, *, rank: int = 0, full: bool = False) -> int:
        """Return the number of a value: later ones are drawn more often.

        Args:
          kinds: kinds of elements.
          rank: smallest number of axes.
          full: whether it has an element.
        """
        fits = [
            k
            for k, x in enumerate(self.types)
            if kind_of(x) in kinds.split() and len(x.shape) >= rank and (x.size or not full)
        ]
        if not fits:
            raise UnsuitableError
        return max(self.rng.choice(fits), self.rng.choice(fits))

    def constant(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return a captured array: of NumPy or of JAX."""
        rng = np.random.default_rng(self.rng.randrange(2**32))
        array = random_array(rng, shape, dtype)
        return array if self.rng.random() < 0.5 else jnp.asarray(array)


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return a random array of NumPy: numbers near 0, of both signs where the type has them."""
    dtype = np.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.bool_):
        return rng.random(shape) < 0.5
    if jnp.issubdtype(dtype, jnp.integer):
        low = 0 if jnp.issubdtype(dtype, jnp.unsignedinteger) else -3
        return rng.integers(low, 6, shape).astype(dtype)
    values = rng.uniform(-2, 2, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(-2, 2, shape)
    return np.asarray(values).astype(dtype)
