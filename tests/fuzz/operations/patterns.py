"""Random operations in groups that rules rewrite, that kernels fuse, or that occur twice."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.operations.bodies import MAPS
from tests.fuzz.operations.values import Step, UnsuitableError, Values


def products(values: Values) -> Step:
    """Return products that associate, distribute or share an operand."""
    rng, k = values.rng, values.pick("float", rank=1)
    x = values.types[k]
    n, m = x.shape[-1], rng.randint(1, 3)
    a, b = (values.constant((n, m), x.dtype) for _ in range(2))
    c, d = values.constant((m, n), x.dtype), values.constant((n,), x.dtype)
    scale = rng.choice([2.0, 0.5])
    ways: list[Callable[..., Any]] = [
        lambda x: x @ a @ c,
        lambda x: (x @ a, x @ b),
        lambda x: x @ a + x @ b,
        lambda x: jnp.tanh(x @ a) + jnp.tanh(x @ b),
        lambda x: jnp.concatenate([x @ a, x @ b], -1),
        lambda x: (x * scale) @ a,
        lambda x: (x * d + d) @ a,
        lambda x: (x @ a) @ (c @ b),
        lambda x: jnp.swapaxes(jnp.asarray(a).T @ jnp.swapaxes(x[None], -1, -2), -1, -2),
        lambda x: jax.nn.relu(jax.nn.relu(x) @ a),
        lambda x: jnp.split(x @ jnp.concatenate([jnp.asarray(a), jnp.asarray(b)], 1), 2, -1),
        lambda x: jax.nn.softmax(x @ a @ c, -1) @ a,
        lambda x: (x + d - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1),
    ]
    return Step((k,), rng.choice(ways))


def images(values: Values) -> Step:
    """Return convolutions of images that share an operand, with norms, or pooled."""
    rng, k = values.rng, values.pick("float", full=True)
    x = values.types[k]
    if x.size % 2:
        raise UnsuitableError
    size = rng.choice([1, 2, 3])
    a, b = (values.constant((size, size, 2, 2), x.dtype) for _ in range(2))
    wide, scale = values.constant((1, 1, 2, 3), x.dtype), values.constant((2,), x.dtype)
    padding = rng.choice(["SAME", ((1, 1), (2, 2))])
    zero = np.asarray(-np.inf, x.dtype)

    def conv(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(
            x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, zero, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")

    ways: list[Callable[..., Any]] = [
        lambda x: (conv(x, a), conv(x, b)),
        lambda x: conv(x, a) + conv(x, b),
        lambda x: conv(x, a) * scale + scale,
        lambda x: jnp.concatenate([conv(x, a), conv(x, wide)], -1) if size == 1 else conv(x, wide),
        lambda x: conv(conv(x, a), wide),
        lambda x: jax.nn.relu(conv(x, a)) + x,
        lambda x: pool(conv(x, a)),
        lambda x: pool(jnp.concatenate([x, x], -1)),
        lambda x: jax.grad(lambda x: pool(x).astype(jnp.float32).sum())(x),
        lambda x: jax.grad(lambda x: conv(x, a).astype(jnp.float32).sum())(x),
        lambda x: conv(x.transpose(0, 2, 1, 3), b).transpose(0, 2, 1, 3),
    ]
    way = rng.choice(ways)
    return Step((k,), lambda x: way(x.reshape(1, 1, -1, 2)))


def algebra(values: Values) -> Step:
    """Return sums, products and selections that simplify."""
    rng, k = values.rng, values.pick("float int")
    x = values.types[k]
    factor = jnp.asarray(rng.choice([0, 1, 2]), x.dtype)
    ways: list[Callable[..., Any]] = [
        lambda x: x * factor + x * factor,
        lambda x: (x + factor) - factor,
        lambda x: x - x,
        lambda x: jnp.negative(-x),
        lambda x: jnp.maximum(jnp.maximum(x, factor), factor),
        lambda x: jnp.where(x > factor, x, x),
        lambda x: x.T.T + x,
        lambda x: x.reshape(-1).reshape(x.shape) * factor,
        lambda x: (x + x, x + x),
        lambda x: jnp.broadcast_to(x, (1, *x.shape)).sum(0),
        lambda x: jnp.concatenate([x[None], x[None]]).max(0),
        lambda x: x[::-1][::-1],
        lambda x: jnp.stack([x, x * factor])[1],
        lambda x: (x.sum(), x.sum() * factor, x.max()),
    ]
    return Step((k,), rng.choice(ways))


def chain(values: Values) -> Step:
    """Return a chain of maps with several readers of each."""
    rng, k = values.rng, values.pick("float", rank=1)
    maps = rng.choices(MAPS["float"], k=3)

    def function(x: Any) -> Any:
        first = maps[0](x)
        second = maps[1](first)
        third = maps[2](second + first)
        return first.sum(-1), second * third.sum(-1, keepdims=True), third

    return Step((k,), function)
