"""Operators of terms: their functions and shape rules.

Operators that rules know:

- `matmul`: `[..., M, K]` times `[..., K, N]`; `...` is nothing, or one axis of both.
- `conv`: images `[B, H, W, C]` and kernels `[h, w, C / groups, O]`; `strides`, `padding` (below and
  above, of each axis), `dilation` of the kernel, `groups`.
- `concat`: along `axis`; `slice`: from `start` to `stop` of `axis`.
- `transpose` by a `permutation`, `reshape` to a `shape`; `pad` with zeros, by `widths` before and
  after, of each axis.
- `pair_groups`: the kernel of a convolution in `groups` as that of one in half as many, of which
  each reads the channels of two.
- `depthwise`: a convolution of each channel with a kernel `[h, w, 1, C]` of its own, as the sum of
  shifted images, each times what the kernel has for it.
- `sum_pool`: sums of windows of images, of a size `window`, by `strides`, with `padding`; `spread`:
  a kernel of one pixel, over and over in a window; `identity`: a kernel of the same shape as
  another, of odd size, that leaves images as they are.
- `add`, `sub`, `mul`, `relu`, `inverse`; `number`, an array that was written in the program.

All others are an `equation`, a primitive of JAX with its parameters; `result` picks one of several
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
    """Something that is equal to what has the same key."""

    _key: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Literal(_Keyed):
    """An array that was written in the program; equal ones are equal."""

    def __init__(self, value: Any, dtype: Any = None):
        self.value = np.asarray(value, dtype)
        self.value.setflags(write=False)
        self._key = (self.value.shape, self.value.dtype, self.value.tobytes())

    def __repr__(self) -> str:
        return f"Literal({self.value})"


class Equation(_Keyed):
    """An equation of a program; equal ones have the same primitive and the same parameters."""

    def __init__(self, equation: JaxprEqn):
        self.equation = equation
        self._key = (equation.primitive.name, tuple(sorted(equation.params.items())))
        try:
            hash(self._key)
        except TypeError:  # not all parameters can be compared
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
    """Through XLA on a CPU this is tens of times as fast as the convolution."""
    dtype = x.dtype
    if jnp.issubdtype(dtype, jnp.floating):  # sums of narrow numbers are not narrow
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
    mine = jnp.eye(2, dtype=bool).reshape(2, 1, 1, 2, 1)  # what reads the channels of its group
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
    if math.prod(shape) != math.prod(x.shape):  # tracing does not check it
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
    """Returns what a term computes from the values of its inputs; of several results a tuple."""
    return OPERATORS[operator](*values, **dict(attributes))


def shapes_of(operator: str, attributes: Attributes, shapes: tuple[Shapes, ...]) -> Shapes:
    """Returns the shapes of a term's results.

    Raises:
      ValueError: the operator does not apply to inputs of these shapes.
    """
    return _shapes_of(operator, attributes, shapes, jax.dtypes.canonicalize_dtype(np.float64))


@functools.lru_cache(maxsize=100_000)
def _shapes_of(
    operator: str, attributes: Attributes, shapes: tuple[Shapes, ...], widest: Any
) -> Shapes:
    """See `shapes_of`; it depends on the widest dtype that JAX makes, which may be set anew."""
    del widest
    try:
        return jax.eval_shape(lambda *values: run(operator, attributes, values), *shapes)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{operator} does not apply to {shapes}: {error}") from error
