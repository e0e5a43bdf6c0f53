"""Random functions of one array that keep its shape and type, for bodies of loops and calls."""

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def kind_of(x: Any) -> str:
    """Return the kind of elements: "float", "int", "bool", "complex" or "key"."""
    for kind, dtypes in {
        "key": jax.dtypes.prng_key,
        "bool": jnp.bool_,
        "int": jnp.integer,
        "complex": jnp.complexfloating,
    }.items():
        if jnp.issubdtype(x.dtype, dtypes):
            return kind
    return "float"


def small_count(x: Any) -> Any:
    """Return a number from 0 to 3 that depends on the elements of an array."""
    return (jnp.sum(x > 0, dtype=jnp.int32) if x.size else jnp.int32(1)) % 4


def _mixed(x: Any) -> Any:
    return (x * jnp.arange(x.size, dtype=x.dtype).reshape(x.shape) if x.size else x) + 1


MAPS: dict[str, list[Callable[[Any], Any]]] = {
    "float": [
        jnp.tanh,
        jnp.sin,
        jnp.negative,
        jnp.square,
        jnp.floor,
        jax.nn.relu,
        jax.nn.sigmoid,
        jax.nn.gelu,
        lax.erf,
        lax.stop_gradient,
        lambda x: x * 0.5 + 1,
        lambda x: jnp.exp(-x * x),
        lambda x: jnp.sqrt(jnp.abs(x) + 1),
        lambda x: jnp.log(x),  # NaN for negative numbers
        lambda x: x / (1 + x * x),
        lambda x: x - x.mean(),
        lambda x: x + x.sum(),
        lambda x: jax.nn.softmax(x, -1),
        lambda x: jnp.cumsum(x, -1),
        lambda x: lax.reduce_precision(x, 8, 7),
        lambda x: jnp.where(x > 0, x, 0.1 * x),
        lambda x: (x**3 + 2).astype(x.dtype),
        lambda x: x.T.reshape(x.shape),
        lambda x: jnp.clip(x, -1, 1),
        lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)[0],
        lambda x: lax.cond(small_count(x) > 1, jnp.tanh, jnp.cos, x),
        lambda x: lax.fori_loop(0, small_count(x), lambda i, y: y * 0.5 + i, x),
        lambda x: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(x),
        lambda x: lax.map(jnp.tanh, x),
    ],
    "int": [
        jnp.negative,
        jnp.bitwise_not,
        jnp.abs,
        lambda x: x + 1,
        lambda x: x * 3 - x,
        lambda x: x // 2,
        lambda x: jnp.bitwise_xor(x, 5),
        lambda x: jnp.cumsum(x, -1, dtype=x.dtype),
        lambda x: lax.population_count(x),
        lambda x: lax.shift_right_arithmetic(x, jnp.ones_like(x)),
        lambda x: jnp.sign(x),
        lambda x: jnp.clip(x, 0, 3),
        lambda x: lax.fori_loop(0, small_count(x), lambda _, y: y + 1, x),
        lambda x: lax.switch(small_count(x), [lambda x: x, jnp.negative, lambda x: x - 1], x),
    ],
    "bool": [
        jnp.logical_not,
        lambda x: x ^ True,
        lambda x: jnp.roll(x, 1),
        lambda x: x & ~x,
    ],
    "complex": [
        jnp.conj,
        lambda x: x * 1j,
        lambda x: x.real + 1j * jnp.abs(x),
        lambda x: jnp.exp(1j * x.real),
        lambda x: x - x.mean(),
    ],
}
MAPS["float"].append(_mixed)
MAPS["int"].append(_mixed)


def body(rng: Random, x: Any) -> Callable[[Any], Any]:
    """Return a random function of an array like `x` to one with its shape and type."""
    maps = rng.choices(MAPS[kind_of(x)], k=rng.randint(1, 3))

    def function(x: Any) -> Any:
        found = x
        for each in maps:
            found = each(found)
        return jnp.asarray(found, x.dtype)

    return function
