"""Flop of products: contractions, convolutions and attention; two per product of two elements.

A product with padding, or with a hole of a dilation, does not count.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn

_LONGEST = 2**24  # places of a window, or places that it is at


def window_products(
    size: int,
    kernel: int,
    out: int,
    *,
    stride: int,
    padding: int,
    input_dilation: int,
    kernel_dilation: int,
) -> int:
    """Return the number of (output, kernel) pairs along one axis that meet an input element.

    Args:
      size: elements of the input.
      kernel: elements of the kernel.
      out: elements of the result.
      stride: step between two windows.
      padding: elements before the input, negative if some are cut off.
      input_dilation: step between two input elements, 1 without holes.
      kernel_dilation: step between two kernel elements, 1 without holes.

    Raises:
      ValueError: both `kernel` and `out` are more than 2²⁴.
    """
    # Of the two axes the shorter one is listed; on the other one the pairs are counted.
    (listed, step), (counted, other) = sorted([(kernel, kernel_dilation), (out, stride)])
    if listed > _LONGEST:
        raise ValueError(f"a window of {kernel} at {out} places: expected {_LONGEST} at most")
    first = np.arange(listed, dtype=np.int64) * step - padding
    # The places k in 0..counted - 1 with first + k · other = 0, holes, ..., (size - 1) · holes.
    common = math.gcd(other, input_dilation)
    period = input_dilation // common
    least = np.maximum(0, -(first // other))
    most = np.minimum(counted - 1, ((size - 1) * input_dilation - first) // other)
    offset = (-first // common) * pow(other // common, -1, period) % period
    found = (most - offset) // period - (least - 1 - offset) // period
    return int(np.where(first % common == 0, np.maximum(found, 0), 0).sum())


def _in(eqn: JaxprEqn, index: int = 0) -> Any:
    return eqn.invars[index].aval


def _out(eqn: JaxprEqn, index: int = 0) -> Any:
    return eqn.outvars[index].aval


def _dot(eqn: JaxprEqn) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    return 2 * _out(eqn).size * math.prod(_in(eqn).shape[axis] for axis in contracted)


def _sparse_dot(eqn: JaxprEqn) -> float:
    """Return the flop of a product with a sparse left side, whose stored elements count."""
    (_, contracted), (_, batch) = eqn.params["dimension_numbers"]
    right = _in(eqn, 2).shape
    rest = (size for axis, size in enumerate(right) if axis not in (*contracted, *batch))
    return 2 * _in(eqn).size * math.prod(rest)


def _ragged_dot(eqn: JaxprEqn) -> float:
    """Return the flop of a product of groups; every row belongs to one group.

    JAX's lowering to dense products computes more on backends without grouped ones.
    """
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = numbers.dot_dimension_numbers
    each = 2 * _out(eqn).size * math.prod(_in(eqn).shape[axis] for axis in contracted)
    if set(numbers.lhs_ragged_dimensions) <= set(contracted):
        return each / max(_in(eqn, 2).shape[-1], 1)  # the groups share the contracted axis
    return each


def _scaled_matmul(eqn: JaxprEqn) -> float:
    return 2 * _out(eqn).size * _in(eqn).shape[-1]


def _convolution(eqn: JaxprEqn) -> float:
    params, lhs, rhs, out = eqn.params, _in(eqn), _in(eqn, 1), _out(eqn)
    numbers = params["dimension_numbers"]
    products = math.prod(
        window_products(
            lhs.shape[numbers.lhs_spec[axis + 2]],
            rhs.shape[numbers.rhs_spec[axis + 2]],
            out.shape[numbers.out_spec[axis + 2]],
            stride=params["window_strides"][axis],
            padding=params["padding"][axis][0],
            input_dilation=params["lhs_dilation"][axis],
            kernel_dilation=params["rhs_dilation"][axis],
        )
        for axis in range(len(lhs.shape) - 2)
    )
    features = rhs.shape[numbers.rhs_spec[0]] * rhs.shape[numbers.rhs_spec[1]]
    return 2 * out.shape[numbers.out_spec[0]] * features * products


def _attention(products: int) -> Callable[[JaxprEqn], float]:
    """Return the rule for fused attention with this number of products, of any mask."""

    def rule(eqn: JaxprEqn) -> float:
        query, key = _in(eqn), _in(eqn, 1)
        keys = key.shape[-3 if eqn.params["layout"] == _BTNH else -2]
        return 2 * products * query.size * keys

    return rule


_BTNH = 0  # value of the parameter `layout` for [batch, time, head, feature]

RULES: dict[str, Callable[[JaxprEqn], float]] = {
    "bcoo_dot_general": _sparse_dot,
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "ragged_dot_general": _ragged_dot,
    "scaled_dot": _dot,
    **dict.fromkeys(("scaled_matmul", "scaled_matmul_wrapper"), _scaled_matmul),
    **{
        f"dot_product_attention_{name}{suffix}": _attention(products)
        for name, products in (("fwd", 2), ("bwd", 5), ("fp8_fwd", 2), ("fp8_bwd", 5))
        for suffix in ("", "_wrapper")
    },
}
