"""Random operations that work element by element, products and sources of arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.fuzz.operations.bodies import MAPS, kind_of
from tests.fuzz.operations.values import Step, Values


def unary(values: Values) -> Step:
    k = values.pick("float int bool complex")
    return Step((k,), values.rng.choice(MAPS[kind_of(values.types[k])]))


_BINARY: dict[str, list[Callable[..., Any]]] = {
    "float": [
        *(jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.arctan2),
        *(jnp.less, jnp.equal, jnp.hypot, jnp.heaviside, lambda x, y: x / (1 + y * y)),
    ],
    "int": [
        *(jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.bitwise_xor, jnp.less_equal),
        *(jnp.floor_divide, jnp.remainder, jnp.not_equal, jnp.left_shift, jnp.true_divide),
    ],
    "bool": [jnp.logical_and, jnp.logical_or, jnp.not_equal, jnp.add],
    "complex": [jnp.add, jnp.subtract, jnp.multiply, jnp.equal],
}
_SCALARS = {"float": [2.0, -0.5, 3, True], "int": [2, 1, True, -1], "bool": [True, False]}
_SCALARS["complex"] = [2.0, 1j, 3]


def binary(values: Values) -> Step:
    """Return an operation on a value and a scalar, a captured array or another value."""
    rng, k = values.rng, values.pick("float int bool complex")
    x = values.types[k]
    kind = kind_of(x)
    operation, way = rng.choice(_BINARY[kind]), rng.randrange(3)
    if way == 0:
        scalar = rng.choice(_SCALARS[kind])
        if scalar == -1 and jnp.issubdtype(x.dtype, jnp.unsignedinteger):
            scalar = 1
        return Step((k,), lambda x: operation(x, scalar))
    if way == 1:
        shape = [rng.choice([1, n]) for n in x.shape[rng.randint(0, len(x.shape)) :]]
        constant = values.constant(shape, x.dtype)
        return Step((k,), lambda x: operation(x, constant))
    other = values.pick(kind)
    if rng.random() < 0.5:
        return Step((k, other), operation)
    return Step((k, other), lambda x, y: operation(x[..., None], y))


def choose(values: Values) -> Step:
    where, k = values.pick("bool"), values.pick("float int complex")
    scalar = values.rng.choice([0, 1, 2.5])
    return Step((where, k), lambda b, x: jnp.where(b, x, scalar))


def convert(values: Values) -> Step:
    k = values.pick("float int bool complex")
    dtype = values.rng.choice(
        ["float32", "bfloat16", "int32", "uint8", "int4", "bool", "complex64"]
    )

    def function(x: Any) -> Any:
        x = jnp.real(x) if jnp.iscomplexobj(x) and dtype != "complex64" else x
        if kind_of(x) == "float" and dtype in ("int32", "uint8", "int4"):
            # Numbers out of range have no defined value, and roundings near whole ones differ.
            x = jnp.round(jnp.clip(jnp.nan_to_num(x), 0, 7) * 3.3)
            x = jnp.minimum(x, 7)
        return x.astype(dtype)

    return Step((k,), function)


def source(values: Values) -> Step:
    """Return an operation without operands."""
    rng = values.rng
    shape = tuple(rng.choice([0, 1, 2, 3]) for _ in range(rng.randint(0, 2)))
    dtype = rng.choice(["float32", "int32", "bfloat16", "complex64"])
    constant, axis = values.constant(shape, dtype), rng.randrange(max(len(shape), 1))
    ways: list[Callable[[], Any]] = [
        lambda: jnp.zeros(shape, dtype),
        lambda: jnp.full(shape, 2),
        lambda: lax.iota(jnp.int32, 3),
        lambda: lax.broadcasted_iota(jnp.int32, shape, axis),
        lambda: jnp.asarray(constant),
        lambda: jnp.asarray(2.0) * 3.0,
        lambda: lax.broadcast(2.0, shape) * 3.0,
        lambda: jnp.linspace(0, 1, 5),
        lambda: jnp.eye(2, 3),
        lambda: jax.random.key(7),
        lambda: jax.random.normal(jax.random.key(3), shape),
    ]
    return Step((), rng.choice(ways))


def product(values: Values) -> Step:
    rng, k = values.rng, values.pick("float int complex", rank=1)
    x = values.types[k]
    last = x.shape[-1]
    precision = rng.choice([None, "highest"])
    matrix = values.constant((last, rng.randint(1, 3)), x.dtype)
    ways: list[Callable[..., Any]] = [
        lambda x: jnp.matmul(x, matrix, precision=precision),
        lambda x: jnp.einsum("...i,...j->...ij", x, x),
        lambda x: jnp.einsum("...i,...i->...", x, x, precision=precision),
        lambda x: jnp.tensordot(x, x, axes=((0,), (0,))),
    ]
    if len(x.shape) > 1:
        batched = (((len(x.shape) - 1,), (len(x.shape) - 1,)), ((0,), (0,)))
        wide = jnp.int32 if kind_of(x) == "int" else None
        ways += [
            lambda x: lax.dot_general(x, x, batched, preferred_element_type=wide),
            lambda x: x @ jnp.swapaxes(x, -1, -2),
            lambda x: jnp.einsum("i...,j...->ij", x, x),
        ]
    return Step((k,), rng.choice(ways))


def convolution(values: Values) -> Step:
    rng, k = values.rng, values.pick("float", full=True)
    x = values.types[k]
    channels = rng.choice([c for c in (1, 2, 3, 4) if x.size % c == 0])
    groups = rng.choice([g for g in (1, channels) if channels % g == 0])
    kernel = values.constant((2 * groups, channels // groups, rng.randint(1, 3)), x.dtype)
    options = {
        "window_strides": (rng.randint(1, 2),),
        "padding": rng.choice(["SAME", "VALID", [(1, 2)], [(-1, 3)]]),
        "lhs_dilation": (rng.choice([1, 1, 2]),),
        "rhs_dilation": (rng.choice([1, 1, 2]),),
        "feature_group_count": groups,
    }
    if options["lhs_dilation"] != (1,):
        options["padding"] = [(1, 2)]

    def function(x: Any) -> Any:
        return lax.conv_general_dilated(x.reshape(1, channels, -1), kernel, **options)

    return Step((k,), function)


def decomposition(values: Values) -> Step:
    k = values.pick("float", rank=2, full=True)

    def function(x: Any) -> Any:
        square = jnp.einsum("...ij,...kj->...ik", x, x).astype(jnp.float32)
        return square / 10 + 2 * jnp.eye(square.shape[-1])

    ways: list[Callable[..., Any]] = [
        lambda x: jnp.linalg.cholesky(function(x)),
        lambda x: jnp.linalg.solve(function(x), x.astype(jnp.float32)),
        lambda x: jnp.linalg.det(function(x)),
        lambda x: jnp.linalg.eigvalsh(function(x)),
        lambda x: jnp.fft.rfft(x.astype(jnp.float32)),
    ]
    return Step((k,), values.rng.choice(ways))
