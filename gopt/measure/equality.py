"""Test whether functions have equal values: random arguments, and differences of results."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any


def random_arguments(shapes: Tree, seed: int = 0, *, for_timing: bool = False) -> Tree:
    """Return random arrays that keep the scale of values that pass through a network.

    - Floats of two or more axes, such as matrices and convolution kernels, are normal. Their
      standard deviation is 1 / √(product of all axes but the last). So a product keeps the
      deviation of its other operand.
    - Other floats, such as scales, offsets and variances, are uniform in [0.5, 1).
    - Integers are 0 or 1; booleans are False or True.
    - Random keys are split from `seed`.

    The time of some functions depends on their arguments. For timing, all floats are uniform in
    [0.5, 1), and booleans are True, like the result of a test whether such floats are positive.
    With random booleans a branch takes several times as long, and fusing the test would wrongly
    appear faster.

    Args:
      shapes: pytree of arrays or `jax.ShapeDtypeStruct`s.
      seed: seed of the random numbers.
      for_timing: whether functions of the arrays are only timed.
    """
    rng = np.random.default_rng(seed)

    def draw(shape: Any) -> Any:
        dtype = shape.dtype
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            key = jax.random.key(seed, impl=key_implementation(shape))
            return jax.random.split(key, shape.shape)
        if for_timing and jnp.issubdtype(dtype, jnp.bool_):
            return jnp.ones(shape.shape, bool)
        if not jnp.issubdtype(dtype, jnp.floating):
            return jnp.asarray(rng.integers(0, 2, shape.shape), dtype)
        if for_timing or len(shape.shape) < 2:
            return jnp.asarray(rng.uniform(0.5, 1, shape.shape), dtype)
        deviation = max(np.prod(shape.shape[:-1]), 1) ** -0.5
        return jnp.asarray(deviation * rng.standard_normal(shape.shape, np.float32), dtype)

    return jax.tree.map(draw, shapes)


def key_implementation(shape: Any) -> Any:
    """Return the generator of a random key, for `impl=` of `jax.random.key`."""
    found: list[Any] = []
    jax.eval_shape(lambda keys: found.append(jax.random.key_impl(keys)), shape)
    return found[0]


def arguments_near(args: Tree, drawn: Tree, seed: int = 0) -> Tree:
    """Return drawn arguments in which integers are near the given ones.

    Each entry is an entry of the given array, or one more. So indices, counts and tokens stay in
    their range, but for the largest.

    Args:
      args: pytree of arrays, Python scalars and `jax.ShapeDtypeStruct`s.
      drawn: random arguments, see `random_arguments`. Python scalars stay as they are given.
      seed: seed of the random numbers.
    """
    rng = np.random.default_rng(seed)

    def near(given: Any, other: Any) -> Any:
        if isinstance(given, complex | float | int):
            return given
        if isinstance(given, jax.ShapeDtypeStruct) or not jnp.issubdtype(other.dtype, jnp.integer):
            return other
        entries = np.asarray(given).astype(np.int64).ravel()
        if not entries.size:
            return other
        step = rng.integers(0, 2, given.shape)
        most = min(int(jnp.iinfo(other.dtype).max), np.iinfo(np.int64).max)
        found = np.minimum(rng.choice(entries, given.shape), most - step) + step
        return jnp.asarray(found, other.dtype)

    return jax.tree.map(near, args, drawn)


def largest_difference(ours: Tree, theirs: Tree) -> float:
    """Return the largest difference between two trees of arrays, relative to the second tree.

    The difference of two arrays is max |ours - theirs| / max |theirs|, over entries that are finite
    in both. It is infinite if shapes or dtypes differ, or if other entries are not equal.

    Args:
      ours: pytree of arrays.
      theirs: pytree of the same structure.

    Returns:
      The largest difference over arrays; 0 without arrays.
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
    """Return the largest `largest_difference` that rounding explains.

    It is the square root of the coarsest machine epsilon among the dtypes. It is 0 for integers
    alone, which are exact.

    Args:
      values: pytree of arrays.
    """
    dtypes = [jnp.result_type(x) for x in jax.tree.leaves(values)]
    inexact = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    return max((float(jnp.finfo(dtype).eps) ** 0.5 for dtype in inexact), default=0.0)


def is_telling(values: Tree, others: Tree) -> bool:
    """Return whether values can distinguish a function from others.

    They can if all entries are finite, and the entries of each array, over both trees, are not all
    equal. Empty arrays count as telling.

    Args:
      values: results of a function, a pytree of arrays.
      others: results of the same function for other arguments.
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
