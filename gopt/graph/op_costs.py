"""Flop and bytes of single equations.

The counts follow XLA's analysis of unoptimised programs, with these differences:

- An element-wise function counts one flop per element. XLA counts transcendental ones apart.
- A cumulative reduction counts one flop per element, not the quadratic windows of its lowering.
- A sort counts comparisons along the sorted axis.
- A tensor that an equation reads twice is moved once.
- A transpose moves data; XLA's analysis counts it as free.
- A bitcast computes nothing; XLA counts one flop per element.

Integer and logical operations count as flop, as in XLA.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from gopt.program.primitives import OPERATIONS_PER_ELEMENT

# Primitives that move or create data and compute nothing.
_FREE = (
    *("bitcast_convert_type", "broadcast_in_dim", "concatenate", "dynamic_slice"),
    *("dynamic_update_slice", "iota", "pad", "reshape", "rev", "scatter", "slice", "split"),
    *("stack", "transpose", "unstack"),
)

# Threefry-2x32 on a pair of words: 20 rounds of 5 operations, and 15 to inject the key.
_THREEFRY = 115

_COMBINING_SCATTERS = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")

# Primitives whose result is the first operand with a few elements replaced.
IN_PLACE = frozenset(("dynamic_update_slice", "scatter", *_COMBINING_SCATTERS))


def num_bytes(aval: Any) -> float:
    """Return the size of an array with this abstract value, in bytes."""
    return float(aval.size * aval.dtype.itemsize)


def flops(eqn: JaxprEqn) -> float:
    """Return the floating-point operations of an equation without control flow.

    A primitive that is not listed here counts one per element of its results, times its entry in
    `gopt.program.primitives.OPERATIONS_PER_ELEMENT`.
    """
    name = eqn.primitive.name
    if name in _FLOPS:
        return float(_FLOPS[name](eqn))
    return float(
        OPERATIONS_PER_ELEMENT.get(name, 1)
        * sum(_out(eqn, k).size for k in range(len(eqn.outvars)))
    )


def bytes_moved(eqn: JaxprEqn) -> float | None:
    """Return the bytes moved by an equation that touches only parts of its operands, else `None`.

    `None` means that all operands and results are moved, each once. Slices and gathers read the
    elements they return. Updates read and write the elements they replace.
    """
    name = eqn.primitive.name
    if name == "slice":
        return 2 * num_bytes(_out(eqn))
    if name in ("dynamic_slice", "gather"):
        return 2 * num_bytes(_out(eqn)) + _indices(eqn, 1)
    if name == "dynamic_update_slice":
        return 2 * num_bytes(_in(eqn, 1)) + _indices(eqn, 2)
    if name in IN_PLACE:
        return 3 * num_bytes(_in(eqn, 2)) + num_bytes(_in(eqn, 1))
    return None


def _in(eqn: JaxprEqn, index: int = 0) -> Any:
    return eqn.invars[index].aval


def _out(eqn: JaxprEqn, index: int = 0) -> Any:
    return eqn.outvars[index].aval


def _indices(eqn: JaxprEqn, first: int) -> float:
    return sum(num_bytes(atom.aval) for atom in eqn.invars[first:])


def _dot_general(eqn: JaxprEqn) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    return 2 * _out(eqn).size * math.prod(_in(eqn).shape[axis] for axis in contracted)


def _convolution(eqn: JaxprEqn) -> float:
    """Return two flop per product, without products with padding or with dilation holes."""
    params, lhs, rhs, out = eqn.params, _in(eqn), _in(eqn, 1), _out(eqn)
    numbers = params["dimension_numbers"]
    products = math.prod(
        _window_products(
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


def _window_products(
    size: int,
    kernel: int,
    out: int,
    *,
    stride: int,
    padding: int,
    input_dilation: int,
    kernel_dilation: int,
) -> int:
    """Return the number of (output, kernel) pairs along one axis that meet an input element."""
    position = np.arange(out)[:, None] * stride + np.arange(kernel) * kernel_dilation - padding
    inside = (position >= 0) & (position <= (size - 1) * input_dilation)
    return int(np.count_nonzero(inside & (position % input_dilation == 0)))


def _gather(eqn: JaxprEqn) -> float:
    """Return the index checks and selections of a gather that fills out-of-bounds elements."""
    if eqn.params["mode"] != lax.GatherScatterMode.FILL_OR_DROP:
        return 0
    *rows, axes = _in(eqn, 1).shape
    return _out(eqn).size + math.prod(rows) * max(4 * axes - 1, 0)


def _reduction(eqn: JaxprEqn) -> float:
    return max(_in(eqn).size - _out(eqn).size, 0)


def _general_reduction(eqn: JaxprEqn) -> float:
    return _reduction(eqn) * _body_size(eqn)


def _arg_reduction(eqn: JaxprEqn) -> float:
    return 9 * _reduction(eqn)  # nine operations to compare and select a (value, index) pair


def _reduce_window(eqn: JaxprEqn) -> float:
    return _out(eqn).size * (_window(eqn) - 1)


def _general_reduce_window(eqn: JaxprEqn) -> float:
    return _reduce_window(eqn) * _body_size(eqn)


def _body_size(eqn: JaxprEqn) -> int:
    body = eqn.params["jaxpr"]
    return len(getattr(body, "jaxpr", body).eqns)


def _window(eqn: JaxprEqn) -> int:
    return math.prod(eqn.params["window_dimensions"])


def _sort(eqn: JaxprEqn) -> float:
    length = max(_in(eqn).shape[eqn.params["dimension"]], 1)
    return _in(eqn).size * math.ceil(math.log2(length))


def _integer_pow(eqn: JaxprEqn) -> float:
    power = abs(eqn.params["y"])
    multiplications = power.bit_length() + power.bit_count() - 2
    return _out(eqn).size * (max(multiplications, 0) + (eqn.params["y"] < 0))


def _polynomial(eqn: JaxprEqn) -> float:
    """Return the flop of Horner's rule: a product and a sum per coefficient except the last."""
    return 2 * _out(eqn).size * max(len(eqn.invars) - 2, 0)


def _fft(eqn: JaxprEqn) -> float:
    length = math.prod(eqn.params["fft_lengths"])
    return 5 * max(_in(eqn).size, _out(eqn).size) * math.log2(max(length, 2))


def _cholesky(eqn: JaxprEqn) -> float:
    return _in(eqn).size * _in(eqn).shape[-1] / 3


def _triangular_solve(eqn: JaxprEqn) -> float:
    return _in(eqn, 1).size * _in(eqn).shape[-1]


_FLOPS: dict[str, Callable[[JaxprEqn], float]] = {
    **dict.fromkeys(_FREE, lambda eqn: 0),
    **dict.fromkeys(
        (*("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"), "reduce_and", "reduce_or"),
        _reduction,
    ),
    **dict.fromkeys(("argmax", "argmin"), _arg_reduction),
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min"), _reduce_window
    ),
    **dict.fromkeys(_COMBINING_SCATTERS, lambda eqn: _in(eqn, 2).size),
    "cholesky": _cholesky,
    "conv_general_dilated": _convolution,
    "dot_general": _dot_general,
    "fft": _fft,
    "gather": _gather,
    "integer_pow": _integer_pow,
    "polynomial": _polynomial,
    "random_bits": lambda eqn: _THREEFRY * _out(eqn).size,
    "reduce": _general_reduction,
    "reduce_window": _general_reduce_window,
    "select_and_gather_add": lambda eqn: _out(eqn).size * _window(eqn),
    "select_and_scatter_add": lambda eqn: _in(eqn).size * _window(eqn),
    "sort": _sort,
    "threefry2x32": lambda eqn: _THREEFRY * _out(eqn).size,
    "top_k": lambda eqn: _in(eqn).size,
    "triangular_solve": _triangular_solve,
}
