"""The fixed vocabulary of op kinds: names of JAX primitives, and of other ops."""

UNKNOWN, INPUT = 0, 1

# Add new names at the end: trained weights depend on the positions.
KINDS: tuple[str, ...] = (
    "unknown",
    "input",
    "constant",
    # Contractions.
    *("dot_general", "conv_general_dilated", "ragged_dot"),
    # Element-wise arithmetic.
    *("add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "max", "min", "pow", "integer_pow"),
    *("square", "sqrt", "rsqrt", "cbrt", "floor", "ceil", "round", "clamp", "select_n"),
    *("convert_element_type", "reduce_precision", "nextafter", "copy", "add_any", "stop_gradient"),
    # Element-wise functions.
    *("exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos", "tan", "erf"),
    *("erf_inv", "erfc", "lgamma", "digamma", "asin", "acos", "atan", "atan2", "sinh", "cosh"),
    # Comparison and logic.
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "is_finite"),
    *("shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz"),
    # Reductions and scans.
    *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"),
    *("argmax", "argmin", "reduce", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
    *("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"),
    *("select_and_scatter_add", "select_and_gather_add"),
    # Layout and movement.
    *("reshape", "squeeze", "expand_dims", "bitcast_convert_type", "broadcast_in_dim"),
    *("transpose", "rev", "pad", "concatenate", "split", "slice", "dynamic_slice"),
    *("dynamic_update_slice", "gather", "scatter", "scatter_add", "scatter_mul", "scatter_min"),
    *("scatter_max", "sort", "top_k", "iota", "tile"),
    # Random numbers.
    *("random_seed", "random_wrap", "random_unwrap", "random_bits", "random_fold_in"),
    *("random_split", "threefry2x32", "rng_bit_generator"),
    # Control flow and calls.
    *("while", "cond", "scan", "custom_call", "fusion"),
    # Linear algebra and transforms.
    *("fft", "cholesky", "triangular_solve", "qr", "eigh", "svd", "lu"),
    # Communication.
    *("psum", "all_gather", "all_to_all", "ppermute", "reduce_scatter"),
)

_INDEX = {name: index for index, name in enumerate(KINDS)}


def kind_index(name: str) -> int:
    """Return the index of a kind in `KINDS`; `UNKNOWN` (0) for any other name.

    A hyphen in the name counts as an underscore.
    """
    return _INDEX.get(name.replace("-", "_"), UNKNOWN)
