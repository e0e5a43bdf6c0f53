"""Flop and bytes of single equations.

The counts follow XLA's analysis of unoptimised programs, with these differences:

- An element-wise function counts one flop per element. XLA counts transcendental ones apart.
- A function that XLA expands counts the operations of its expansion, one iteration of each loop.
- A cumulative reduction counts one flop per element, not the quadratic windows of its lowering.
- A sort counts comparisons along the sorted axis; `top_k` counts the comparisons of a heap.
- A Fourier transform of n complex numbers counts 5 n log2(n), and a real one half as much.
- Matrix decompositions count by `gopt.graph.linear_algebra_costs`. XLA cannot see into libraries.
- A grouped product counts each row once, in its group.
- A tensor that an equation reads twice is moved once.
- A transpose moves data; XLA's analysis counts it as free.
- A bitcast computes nothing; XLA counts one flop per element.

Integer and logical operations count as flop, as in XLA. So does a complex operation, as one.
"""

import math
from collections.abc import Callable
from typing import Any

from jax import lax
from jax.extend.core import JaxprEqn

from gopt.graph import linear_algebra_costs, product_costs
from gopt.program.primitives import ELEMENT_WISE, OPERATIONS_PER_ELEMENT

# Primitives that move, create or name data and compute nothing.
FREE = frozenset(
    (
        # Views and moves of elements.
        *("bitcast_convert_type", "broadcast_in_dim", "broadcast_to", "concatenate", "copy"),
        *("dynamic_slice", "dynamic_update_slice", "expand_dims", "iota", "iota_2x32_shape", "pad"),
        *("reshape", "rev", "slice", "split", "squeeze", "stack", "tile", "transpose", "unstack"),
        *("from_edtype", "to_edtype", "lu_pivots_to_permutation"),
        # Identities, and values without data.
        *("after_all", "create_linear", "create_token", "dce_sink", "dim_as_value"),
        *("dimension_size", "empty", "empty2", "name", "optimization_barrier", "pin", "stage"),
        *("stop_gradient", "tie", "unpin", "unreachable", "check", "shape_assertion"),
        "xla_metadata_value",
        *("random_clone", "random_unwrap", "random_wrap"),
        # Places and meshes.
        *("axis_index", "device_put", "inspect_sharding", "layout_constraint", "platform_index"),
        *("relayout", "reshard", "sharding_constraint", "with_memory_space_constraint"),
        *("pbroadcast", "pbroadcast_dynamic", "preduced", "pvary", "reduced_vary_cast"),
        *("reduced_vary_cast_p", "vary_unreduced_cast", "vary_unreduced_cast_p"),
        # Communication without arithmetic.
        *("all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all", "ppermute"),
        *("precv", "psend", "ragged_all_to_all"),
        *("all_gather_start", "all_gather_reduced_start", "all_to_all_start", "ppermute_start"),
        *("all_gather_done", "all_to_all_done", "ppermute_done", "psum_done"),
        *("reduce_scatter_done", "pbroadcast_start", "pbroadcast_done"),
        # References and places, inside kernels.
        *("get", "masked_load", "masked_swap", "multiple_of", "num_programs", "program_id", "swap"),
    )
)

# Primitives besides `ELEMENT_WISE` with the same count for each element of their results.
PER_ELEMENT = frozenset(
    (
        *("bessel_i0e", "bessel_i1e", "complex", "conj", "eq_to", "igamma", "igamma_grad_a"),
        *("igammac", "imag", "le_to", "log2", "lt_to", "mulhi", "polygamma", "random_gamma"),
        *("addupdate", "real", "reciprocal", "regularized_incomplete_beta", "zeta"),
        *("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"),
        *("random_seed", "rng_bit_generator", "rng_uniform"),
        # Sums over devices: one operation for each element of a result, as in XLA.
        *("pmax", "pmin", "psum", "psum_invariant", "reduce_scatter", "unreduced_pmax"),
        *("unreduced_pmin", "unreduced_psum", "unreduced_reduce_scatter"),
        *("psum_start", "psum_invariant_start", "reduce_scatter_start"),
        *("unreduced_psum_start", "unreduced_reduce_scatter_start"),
    )
)

# Primitives whose work the program does not show. They count one flop per element of the results.
# "custom_lin" stands for a derivative while JAX traces, and is in no program.
UNKNOWN = frozenset(
    (
        *("call_exported", "custom_lin", "debug_callback", "debug_print", "ffi_call"),
        *("io_callback", "mpmd_map", "pure_callback"),
    )
)

# Operations of a hash on one counter. Threefry-2x32 has 20 rounds of 5, and 15 to inject the key.
# The others are counted in JAX's unrolled code. A key's type names its hash.
_HASHES = {"threefry2x32": 115, "threefry4x32": 233, "philox2x32": 49, "philox4x32": 98}
_HASH_OF_KEY = {
    "key<fry>": "threefry2x32",
    "key<fry4>": "threefry4x32",
    "key<phx2>": "philox2x32",
    "key<phx4>": "philox4x32",
}

_COMBINING_SCATTERS = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")

# Primitives whose result is the first operand with a few elements replaced.
IN_PLACE = frozenset(("dynamic_update_slice", "scatter", *_COMBINING_SCATTERS))

# Bits of the types that XLA packs, also on CPUs. Others take whole bytes.
PACKED_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}


def num_bytes(aval: Any) -> float:
    """Return the size of an array with this abstract value, in bytes.

    Elements of 4 and 2 bits are packed, as XLA stores them. Sizes are rounded up to whole bytes.
    """
    bits = PACKED_BITS.get(aval.dtype.name, 8 * aval.dtype.itemsize)
    return float(-(-aval.size * bits // 8))


def flops(eqn: JaxprEqn) -> float:
    """Return the floating-point operations of an equation without bodies, a whole number.

    A primitive without a rule counts one per element of its results, times its entry in
    `gopt.program.primitives.OPERATIONS_PER_ELEMENT`. Equations with bodies are counted by
    `gopt.graph.bodies`.
    """
    name = eqn.primitive.name
    if name in FREE:
        return 0.0
    if name in RULES:
        return float(round(RULES[name](eqn)))
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


def _scatter(eqn: JaxprEqn) -> float:
    """Return the flop of the function that is applied to each element, if there is one."""
    return _in(eqn, 2).size * (_body_size(eqn, "update_jaxpr") if eqn.params["update_jaxpr"] else 0)


def _select_and_scatter(eqn: JaxprEqn) -> float:
    merged = (_window(eqn) - 1) * _body_size(eqn, "select_jaxpr")
    return _in(eqn, 1).size * (merged + _body_size(eqn, "scatter_jaxpr"))


def _body_size(eqn: JaxprEqn, parameter: str = "jaxpr") -> int:
    body = eqn.params[parameter]
    return len(getattr(body, "jaxpr", body).eqns)


def _window(eqn: JaxprEqn) -> int:
    return math.prod(eqn.params["window_dimensions"])


def _sort(eqn: JaxprEqn) -> float:
    length = max(_in(eqn).shape[eqn.params["dimension"]], 1)
    return _in(eqn).size * math.ceil(math.log2(length))


def _top_k(eqn: JaxprEqn) -> float:
    """Return the comparisons of a heap of `k` elements: log2(k), and 1 at least, per element."""
    return _in(eqn).size * max(math.ceil(math.log2(max(eqn.params["k"], 1))), 1)


def _integer_pow(eqn: JaxprEqn) -> float:
    power = abs(eqn.params["y"])
    multiplications = power.bit_length() + power.bit_count() - 2
    return _out(eqn).size * (max(multiplications, 0) + (eqn.params["y"] < 0))


def _polynomial(eqn: JaxprEqn) -> float:
    """Return the flop of Horner's rule: a product and a sum per coefficient except the last."""
    return 2 * _out(eqn).size * max(len(eqn.invars) - 2, 0)


def _fft(eqn: JaxprEqn) -> float:
    """Return 5 n log2(n) for n complex numbers, and half of it where one side is real."""
    length = math.prod(eqn.params["fft_lengths"])
    is_real = eqn.params["fft_type"] in (lax.FftType.RFFT, lax.FftType.IRFFT)
    numbers = max(_in(eqn).size, _out(eqn).size)
    return (2.5 if is_real else 5) * numbers * math.log2(max(length, 1))


def _random(eqn: JaxprEqn) -> float:
    """Return one hash per word or key. Generators of XLA count one flop per word, as in XLA."""
    hashes = _HASHES.get(_HASH_OF_KEY.get(_in(eqn).dtype.name, ""), 1)
    return hashes * _out(eqn).size


def _hash(eqn: JaxprEqn) -> float:
    return _HASHES[eqn.primitive.name] * _out(eqn).size


RULES: dict[str, Callable[[JaxprEqn], float]] = {
    **linear_algebra_costs.RULES,
    **product_costs.RULES,
    **dict.fromkeys(
        (
            *("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or"),
            "reduce_xor",
        ),
        _reduction,
    ),
    **dict.fromkeys(("argmax", "argmin"), _arg_reduction),
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min"), _reduce_window
    ),
    **dict.fromkeys(_COMBINING_SCATTERS, lambda eqn: _in(eqn, 2).size),
    **dict.fromkeys(("top_k", "approx_top_k"), _top_k),
    **dict.fromkeys(("random_bits", "random_fold_in", "random_split"), _random),
    **dict.fromkeys(_HASHES, _hash),
    "fft": _fft,
    "gather": _gather,
    "integer_pow": _integer_pow,
    "polynomial": _polynomial,
    "reduce": _general_reduction,
    "reduce_window": _general_reduce_window,
    "scatter": _scatter,
    # A comparison and two selections for each merged pair.
    "select_and_gather_add": lambda eqn: 3 * _reduce_window(eqn),
    "select_and_scatter": _select_and_scatter,
    "select_and_scatter_add": lambda eqn: _in(eqn).size * _window(eqn),
    "sort": _sort,
}

# Primitives with a count of their own, or counted by the element.
COUNTED = frozenset(RULES) | FREE | PER_ELEMENT | ELEMENT_WISE
