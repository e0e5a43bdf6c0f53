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

    It is infinite where one is not finite and the other is something else, and where shapes or
    dtypes differ.
    """

    def difference(ours: Any, theirs: Any) -> float:
        if jnp.result_type(ours) != jnp.result_type(theirs):
            return np.inf
        a, b = _numbers(ours), _numbers(theirs)
        if a.shape != b.shape:
            return np.inf
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return np.inf
        if not finite.any():
            return 0.0
        a, b = a[finite], b[finite]
        return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(difference, ours, theirs)), default=0.0)


def tolerance(values: Tree) -> float:
    """Returns what `largest_difference` may be by rounding: the root of the coarsest precision.

    Integers are exact: of these alone it is zero.
    """
    dtypes = [jnp.result_type(x) for x in jax.tree.leaves(values)]
    inexact = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    return max((float(jnp.finfo(dtype).eps) ** 0.5 for dtype in inexact), default=0.0)


def is_telling(values: Tree, others: Tree) -> bool:
    """Returns whether values can tell functions apart.

    They can if each array is finite, and is not one number over and over.

    Args:
      values: of a function.
      others: of the same function, of other arguments.
    """

    def tells(value: Any, other: Any) -> bool:
        both = np.concatenate([_numbers(value).ravel(), _numbers(other).ravel()])
        return not both.size or bool(np.isfinite(both).all() and (both != both[0]).any())

    return all(jax.tree.leaves(jax.tree.map(tells, values, others)))


def _numbers(x: Any) -> np.ndarray:
    if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    kind = np.complex128 if jnp.issubdtype(jnp.result_type(x), jnp.complexfloating) else np.float64
    return np.asarray(x).astype(kind)
