"""Operators of terms: their functions and shape rules.

Rules know these operators:

- `matmul`: product of `[..., M, K]` and `[..., K, N]`; `...` is empty, or one axis of both.
- `conv`: convolution of images `[B, H, W, C]` with a kernel `[h, w, C / groups, O]`. Attributes are
  `strides`, `padding` (low and high, for each axis), `dilation` of the kernel, and `groups`.
- `concat`: concatenation along `axis`.
- `slice`: part of `axis` from `start` to `stop`.
- `transpose`: axes reordered by `permutation`.
- `reshape`: the same entries in another `shape`.
- `pad`: zeros added before and after each axis, by `widths`.
- `pair_groups`: kernel of a convolution in `groups` groups, turned into the kernel of an equal
  convolution in half as many. Each new group reads the channels of two old groups.
- `depthwise`: convolution of each channel with its own kernel `[h, w, 1, C]`, computed as a sum of
  shifted images times kernel entries.
- `sum_pool`: sums over windows of images, with `window` size, `strides` and `padding`.
- `spread`: a kernel of one pixel, repeated over a `window`.
- `identity`: a kernel of another kernel's shape, of odd size, whose convolution keeps images
  unchanged.
- `add`, `sub`, `mul`, `relu`, `inverse`: element-wise functions; `inverse` is 1 / x.
- `number`: an array literal of the program.

Any other op is an `equation`: a JAX primitive with its parameters. `result` selects one of several
results.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from gopt.program.equations import run_equation

Shapes = jax.ShapeDtypeStruct | tuple[jax.ShapeDtypeStruct, ...]
Attributes = tuple[tuple[str, Any], ...]


class _Keyed:
    """Base class for objects that are equal if their keys are equal."""

    _key: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Literal(_Keyed):
    """An array literal of a program; equal shape, dtype and bytes make equal literals."""

    def __init__(self, value: Any, dtype: Any = None):
        self.value = np.asarray(value, dtype)
        self.value.setflags(write=False)
        self._key = (self.value.shape, self.value.dtype, self.value.tobytes())

    def __repr__(self) -> str:
        return f"Literal({self.value})"


class Equation(_Keyed):
    """An equation of a program; equal primitive and parameters make equal equations.

    Equations with parameters that cannot be hashed equal only themselves.
    """

    def __init__(self, equation: JaxprEqn):
        self.equation = equation
        self._key = (equation.primitive.name, tuple(sorted(equation.params.items())))
        try:
            hash(self._key)
        except TypeError:  # a parameter cannot be hashed
            self._key = id(self)

    def __repr__(self) -> str:
        return f"Equation({self.equation.primitive.name})"


def _matmul(x: Any, y: Any, *, precision: Any, dtype: Any) -> Any:
    batch = tuple(range(x.ndim - 2))
    dimensions = (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch))
    return lax.dot_general(x, y, dimensions, precision, dtype)


def _conv(
    x: Any,
    kernel: Any,
    *,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    precision: Any,
    dtype: Any,
) -> Any:
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
        precision=precision,
        preferred_element_type=dtype,
    )


def _depthwise(x: Any, kernel: Any, *, strides: Any, padding: Any, dilation: Any) -> Any:
    """Return a depthwise convolution; on a CPU tens of times as fast as XLA's convolution."""
    dtype = x.dtype
    if jnp.issubdtype(dtype, jnp.floating):  # narrow floats are summed in float32
        x, kernel = (each.astype(jnp.promote_types(dtype, jnp.float32)) for each in (x, kernel))
    x = lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), *((*p, 0) for p in padding), (0, 0, 0)))
    reach = (d * (n - 1) for n, d in zip(kernel.shape[:2], dilation, strict=True))
    height, width = (max(n - r, 0) for n, r in zip(x.shape[1:3], reach, strict=True))

    def shifted(top: int, left: int) -> Any:
        stop = (x.shape[0], top + height, left + width, x.shape[3])
        return lax.slice(x, (0, top, left, 0), stop, (1, *strides, 1))

    products = (
        shifted(i * dilation[0], j * dilation[1]) * kernel[i, j, 0]
        for i, j in np.ndindex(kernel.shape[:2])
    )
    return functools.reduce(jnp.add, products).astype(dtype)


def _pair_groups(kernel: Any, *, groups: int) -> Any:
    h, w, i, o = kernel.shape
    both = kernel.reshape(h, w, 1, i, groups // 2, 2, o // groups)
    mine = jnp.eye(2, dtype=bool).reshape(2, 1, 1, 2, 1)  # channels of its own group
    return jnp.where(mine, both, jnp.zeros_like(kernel, shape=())).reshape(h, w, 2 * i, o)


def _spread(kernel: Any, *, window: tuple[int, int]) -> Any:
    return jnp.broadcast_to(kernel, (*window, *kernel.shape[2:]))


def _identity(kernel: Any) -> Any:
    h, w, i, o = kernel.shape
    return jnp.zeros_like(kernel).at[h // 2, w // 2].set(jnp.eye(i, o, dtype=kernel.dtype))


def _sum_pool(x: Any, *, window: Any, strides: Any, padding: Any) -> Any:
    around = ((0, 0), *padding, (0, 0))
    zero = jnp.zeros((), x.dtype)
    return lax.reduce_window(x, zero, lax.add, (1, *window, 1), (1, *strides, 1), around)


def _reshape(x: Any, *, shape: tuple[int, ...]) -> Any:
    if math.prod(shape) != math.prod(x.shape):  # tracing does not check the size
        raise ValueError(f"{x.shape} has no shape {shape}")
    return lax.reshape(x, shape)


def _equation(*values: Any, equation: Equation) -> Any:
    found = run_equation(equation.equation, values)
    return tuple(found) if equation.equation.primitive.multiple_results else found[0]


OPERATORS: dict[str, Any] = {
    "matmul": _matmul,
    "conv": _conv,
    "concat": lambda *parts, axis: lax.concatenate(parts, axis),
    "slice": lambda x, *, axis, start, stop: lax.slice_in_dim(x, start, stop, axis=axis),
    "transpose": lambda x, *, permutation: lax.transpose(x, permutation),
    "reshape": _reshape,
    "pad": lambda x, *, widths: jnp.pad(x, widths),
    "pair_groups": _pair_groups,
    "depthwise": _depthwise,
    "sum_pool": _sum_pool,
    "spread": _spread,
    "identity": _identity,
    "relu": lambda x: lax.max(x, lax.full_like(x, 0)),
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "inverse": lambda x: 1 / x,
    "number": lambda *, value: value.value,
    "equation": _equation,
    "result": lambda results, *, index: results[index],
}


def run(operator: str, attributes: Attributes, values: Sequence[Any]) -> Any:
    """Return the value of a term, given the values of its inputs.

    Args:
      operator: key of `OPERATORS`.
      attributes: names and values of the operator's attributes.
      values: values of the inputs.

    Returns:
      An array; a tuple of arrays for an equation with several results.
    """
    return OPERATORS[operator](*values, **dict(attributes))


def shapes_of(operator: str, attributes: Attributes, shapes: tuple[Shapes, ...]) -> Shapes:
    """Return the shapes and dtypes of a term's results.

    Args:
      operator: key of `OPERATORS`.
      attributes: names and values of the operator's attributes.
      shapes: shapes and dtypes of the inputs.

    Raises:
      ValueError: the operator does not apply to inputs of these shapes.
    """
    return _shapes_of(operator, attributes, shapes, jax.dtypes.canonicalize_dtype(np.float64))


@functools.lru_cache(maxsize=100_000)
def _shapes_of(
    operator: str, attributes: Attributes, shapes: tuple[Shapes, ...], widest: Any
) -> Shapes:
    """Return `shapes_of`, cached by the widest float dtype too, because that setting can change."""
    del widest
    try:
        return jax.eval_shape(lambda *values: run(operator, attributes, values), *shapes)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{operator} does not apply to {shapes}: {error}") from error
