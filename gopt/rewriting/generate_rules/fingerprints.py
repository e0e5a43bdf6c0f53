"""Evaluate expressions in batches, and hash their values."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.rewriting.generate_rules.domains import Shape
from gopt.rewriting.ir.operators import run
from gopt.rewriting.rules.patterns import Apply

# Values of the attributes that patterns leave open, when expressions are compared.
LIKE: dict[str, dict[str, Any]] = {
    "product": {"precision": None, "dtype": None},
    "conv": {
        "strides": (1, 1),
        "padding": ((0, 0), (0, 0)),
        "dilation": (1, 1),
        "groups": 1,
        "precision": None,
        "dtype": None,
    },
}


class Fingerprints:
    """Fingerprints of arrays: equal for equal shapes and values."""

    def __init__(self, rng: np.random.Generator):
        """Create fingerprints with weights drawn from `rng`."""
        self._rng = rng
        self._weights: dict[Shape, tuple[Any, Any]] = {}

    def of(self, shape: Shape, values: Any) -> Any:
        """Return the fingerprint of each array, uint64 `[B]`.

        Args:
          shape: shape of all arrays, in letters.
          values: int64 arrays `[B, ...]`.
        """
        flat = values.reshape(len(values), -1).view(np.uint64)
        if shape not in self._weights:
            drawn = self._rng.integers(0, 2**64, flat.shape[1] + 1, np.uint64)
            self._weights[shape] = drawn[1:], drawn[:1]
        weights, more = self._weights[shape]
        return (flat * weights).sum(1, dtype=np.uint64) + more


@functools.cache
def computed(pattern: Apply) -> Callable[..., Any]:
    """Return a function that computes an operator on arrays `[expressions, draws, *shape]`."""
    attributes = {**(LIKE[pattern.like] if pattern.like else {}), **dict(pattern.attributes)}

    def compute(*values: Any) -> Any:
        given = dict(attributes)
        if "axis" in given:
            given["axis"] %= values[0].ndim
        if pattern.operator == "conv":
            return _convolution(*values, groups=given["groups"])
        return run(pattern.operator, tuple(given.items()), values)

    return jax.jit(jax.vmap(jax.vmap(compute)))


def _convolution(x: Any, kernel: Any, *, groups: int) -> Any:
    """Compute a convolution with stride 1 and without padding; XLA's takes minutes for integers."""
    height, width = (n - k + 1 for n, k in zip(x.shape[1:3], kernel.shape[:2], strict=True))
    parts = zip(jnp.split(x, groups, -1), jnp.split(kernel, groups, -1), strict=True)
    made = [
        sum(part[:, i : i + height, j : j + width] @ k[i, j] for i, j in np.ndindex(k.shape[:2]))
        for part, k in parts
    ]
    return jnp.concatenate(made, -1)
