"""Groups of primitives by their role in XLA, and flop counts of expanded primitives."""

# Each result element depends on the operand elements at the same position.
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

# The result views, moves or repeats elements of the operands.
DATA_MOVEMENT = frozenset(
    (
        *("bitcast_convert_type", "broadcast_in_dim", "concatenate", "dynamic_slice"),
        *("expand_dims", "iota", "pad", "reshape", "rev", "slice", "split", "squeeze"),
        *("transpose",),
    )
)

DUPLICATED_BY_XLA = ELEMENT_WISE | DATA_MOVEMENT

# Operations per result element, counted in the expansions of JAX 0.12 and XLA, with one iteration
# of each loop. Other primitives take one.
OPERATIONS_PER_ELEMENT = {
    "acos": 5,
    "acosh": 11,
    "asin": 5,
    "asinh": 14,
    "atanh": 8,
    "bessel_i0e": 84,
    "bessel_i1e": 84,
    "cosh": 5,
    "cumlogsumexp": 10,
    "digamma": 78,
    "erf_inv": 39,
    "erfc": 63,
    "exp2": 2,
    "igamma": 429,
    "igamma_grad_a": 588,
    "igammac": 429,
    "lgamma": 292,
    "log2": 2,
    "logistic": 4,
    "nextafter": 24,
    "one_minus_square": 3,
    "polygamma": 281,
    "random_gamma": 411,
    "regularized_incomplete_beta": 1019,
    "sinh": 13,
    "zeta": 132,
}


# Roles of ops. "opaque" is all else: products, control flow, sorts, random numbers.
ROLES: tuple[str, ...] = ("opaque", "element-wise", "move", "reduction", "update")


ROLE_MEMBERS: dict[str, frozenset[str]] = {
    "element-wise": ELEMENT_WISE,
    "move": DATA_MOVEMENT | {"gather"},
    "reduction": frozenset(
        (
            *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"),
            *("argmax", "argmin", "reduce"),
        )
    ),
    "update": frozenset(
        (
            *("dynamic_update_slice", "scatter", "scatter_add", "scatter_mul"),
            *("scatter_min", "scatter_max"),
        )
    ),
}


def role_of(primitive: str) -> str:
    """Return the role of a primitive, one of `ROLES`."""
    return next((role for role, names in ROLE_MEMBERS.items() if primitive in names), "opaque")
