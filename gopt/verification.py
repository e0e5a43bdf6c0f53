"""Whether functions have the same values: random arguments, and how far results are apart."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any


def random_arguments(shapes: Tree, seed: int = 0) -> Tree:
    """Returns random arrays that keep the scale of what runs through a network.

    Matrices and kernels are normal, with the deviation that keeps that of what they are multiplied
    by. Vectors (scales, offsets, variances) are from 0.5 to 1, integers 0 and 1, predicates both.

    Args:
      shapes: arrays or `jax.ShapeDtypeStruct`s, in any pytrees.
      seed: of the numbers.
    """
    rng = np.random.default_rng(seed)

    def draw(shape: Any) -> Any:
        dtype = shape.dtype
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(seed), shape.shape)
        if not jnp.issubdtype(dtype, jnp.floating):
            return jnp.asarray(rng.integers(0, 2, shape.shape), dtype)
        if len(shape.shape) < 2:
            return jnp.asarray(rng.uniform(0.5, 1, shape.shape), dtype)
        deviation = max(np.prod(shape.shape[:-1]), 1) ** -0.5
        return jnp.asarray(deviation * rng.standard_normal(shape.shape, np.float32), dtype)

    return jax.tree.map(draw, shapes)


def largest_difference(ours: Tree, theirs: Tree) -> float:
    """Returns how far trees of arrays are apart, as a share of the largest value of an array.

    It is infinite where one is finite and the other is not.
    """

    def difference(ours: Any, theirs: Any) -> float:
        a, b = (np.asarray(x, np.float64) for x in (ours, theirs))
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return np.inf
        if not finite.any():
            return 0.0
        a, b = a[finite], b[finite]
        return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(difference, ours, theirs)), default=0.0)


def is_telling(values: Tree) -> bool:
    """Returns whether arrays can tell functions apart: some differ within, and all are finite."""
    arrays = [np.asarray(x, np.float64) for x in jax.tree.leaves(values)]
    return all(np.isfinite(x).all() for x in arrays) and any(
        x.size > 1 and np.ptp(x) > 1e-6 * np.abs(x).max() for x in arrays
    )
