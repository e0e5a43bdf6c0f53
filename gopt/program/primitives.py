"""What primitives are to XLA: which it clones into kernels that read them, and what they take."""

# Each element of the result depends on the same element of the operands.
ELEMENT_WISE = frozenset(
    (
        *("abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2"),
        *("atanh", "cbrt", "ceil", "clamp", "clz", "convert_element_type", "copy", "cos", "cosh"),
        *("digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor"),
        *("ge", "gt", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic"),
        *("lt", "max", "min", "mul", "name", "ne", "neg", "nextafter", "not"),
        *("one_minus_square", "or", "polynomial", "population_count", "pow", "reduce_precision"),
        *("rem", "round", "rsqrt", "select_n"),
        *("shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh"),
        *("sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor"),
    )
)

# The result shows, places or repeats elements of the operands.
MOVES = frozenset(
    (
        *("bitcast_convert_type", "broadcast_in_dim", "concatenate", "dynamic_slice"),
        *("expand_dims", "iota", "pad", "reshape", "rev", "slice", "split", "squeeze"),
        *("transpose",),
    )
)

CLONED = ELEMENT_WISE | MOVES

# Operations for each element of the result, counted in XLA's expansions; all others take one.
EXPANDED = {
    "cosh": 5,
    "digamma": 78,
    "erf_inv": 39,
    "erfc": 63,
    "exp2": 2,
    "lgamma": 292,
    "logistic": 4,
    "nextafter": 24,
    "one_minus_square": 3,
    "sinh": 13,
    "asin": 5,
}
