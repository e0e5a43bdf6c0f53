"""Random operations along axes, on shapes, by indices and on random keys."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.operations.bodies import kind_of
from tests.fuzz.operations.values import Step, Values


def reduction(values: Values) -> Step:
    rng, k = values.rng, values.pick("float int bool complex")
    kind, rank = kind_of(values.types[k]), len(values.types[k].shape)
    axis = None if not rank or rng.random() < 0.3 else rng.randrange(rank)
    keepdims = rng.random() < 0.3
    ways: list[Any] = {
        "float": [jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.var, jax.nn.logsumexp, jnp.argmax],
        "int": [jnp.sum, jnp.max, jnp.min, jnp.argmin, jnp.prod, jnp.any],
        "bool": [jnp.any, jnp.all, jnp.sum, jnp.count_nonzero],
        "complex": [jnp.sum, jnp.mean, jnp.prod],
    }[kind]
    return Step((k,), functools.partial(rng.choice(ways), axis=axis, keepdims=keepdims))


def along(values: Values) -> Step:
    """Return an operation that keeps an axis: sums so far, sorting, windows."""
    rng, k = values.rng, values.pick("float int", rank=1)
    x = values.types[k]
    axis, count = rng.randrange(len(x.shape)), rng.randint(0, max(x.shape[-1], 1))
    window = tuple(2 if i == axis else 1 for i in range(len(x.shape)))
    strides = (1,) * len(x.shape)
    zero = np.zeros((), x.dtype)
    ways: list[Callable[..., Any]] = [
        lambda x: jnp.cumsum(x, axis),
        lambda x: lax.cummax(x, axis, reverse=True),
        lambda x: jnp.sort(x, axis),
        lambda x: jnp.argsort(x, axis),
        lambda x: tuple(lax.top_k(x, count)),
        lambda x: lax.sort((x, lax.broadcasted_iota(jnp.int32, x.shape, axis)), dimension=axis),
        lambda x: lax.reduce_window(x, zero, lax.add, window, strides, "SAME"),
        lambda x: lax.associative_scan(jnp.add, x, axis=axis),
        lambda x: jnp.diff(x, axis=axis),
    ]
    return Step((k,), rng.choice(ways))


# Shapes and indices.


def shape(values: Values) -> Step:
    rng, k = values.rng, values.pick("float int bool complex key")
    x = values.types[k]
    rank = len(x.shape)
    permutation = rng.sample(range(rank), rank)
    starts = [rng.randint(0, n) for n in x.shape]
    slices = tuple(slice(a, None, rng.randint(1, 2)) for a in starts)
    axis = rng.randrange(max(rank, 1))
    ways: list[Callable[..., Any]] = [
        lambda x: x.reshape(-1),
        lambda x: x.reshape(*x.shape[::-1]),
        lambda x: x.transpose(permutation),
        lambda x: x[slices],
        lambda x: jnp.broadcast_to(x, (2, *x.shape)),
        lambda x: jnp.expand_dims(x, axis),
        lambda x: jnp.concatenate([x, x], axis),
        lambda x: jnp.stack([x, x]),
        lambda x: x.squeeze(),
    ]
    if kind_of(x) != "key":
        padding = [(rng.randint(-1, 2), rng.randint(0, 1), rng.randint(0, 1)) for _ in x.shape]
        ways += [
            lambda x: lax.rev(x, (axis,)),
            lambda x: lax.pad(x, jnp.asarray(0, x.dtype), padding),
            lambda x: jnp.tile(x, 2),
            lambda x: tuple(jnp.split(x, [1], axis)),
            lambda x: jnp.roll(x, 1),
            lambda x: lax.optimization_barrier(x),
        ]
    return Step((k,), rng.choice(ways))


def join(values: Values) -> Step:
    k, other = values.pick("float int", rank=1), values.pick("float int", rank=1)
    axis = values.rng.randrange(len(values.types[k].shape))
    return Step((k, other), lambda x, y: jnp.concatenate([x, y], axis))


def index(values: Values) -> Step:
    """Return a gather, a scatter, or a dynamic slice or update."""
    rng, k, by = values.rng, values.pick("float int bool complex", rank=1), values.pick("int")
    size = values.types[k].shape[0]
    mode, count = rng.choice(["clip", "fill", "wrap"]), rng.randint(0, size)
    update = rng.choice(["add", "set", "max", "multiply"])

    def position(i: Any) -> Any:
        return i.astype(jnp.int32)

    def scatter(x: Any, i: Any) -> Any:
        i = position(i).ravel()[:1] if update == "set" else position(i)
        return getattr(x.at[i], update)(1, mode="drop")

    ways: list[Callable[..., Any]] = [
        lambda x, i: jnp.take(x, position(i), axis=0, mode=mode),
        scatter,
        lambda x, i: lax.dynamic_slice_in_dim(x, position(i).sum(), count),
        lambda x, i: lax.dynamic_update_slice_in_dim(x, x[:1], position(i).sum(), 0),
        lambda x, i: x[position(i).sum()],
        lambda x, i: jax.nn.one_hot(position(i), 3),
    ]
    return Step((k, by), rng.choice(ways))


# Random numbers.


def draw(values: Values) -> Step:
    rng, k = values.rng, values.pick("key", full=True)
    shape, bits = (
        tuple(rng.choice([0, 1, 2, 3]) for _ in range(rng.randint(0, 2))),
        rng.randint(0, 9),
    )

    def on_first(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda key: function(key.ravel()[0] if key.shape else key)

    ways: list[Callable[..., Any]] = [
        lambda key: jax.random.split(key, 2),
        lambda key: jax.random.fold_in(key, bits),
        lambda key: jax.random.normal(key, shape),
        lambda key: jax.random.uniform(key, shape, jnp.bfloat16),
        lambda key: jax.random.randint(key, shape, 0, 5),
        lambda key: jax.random.bernoulli(key, 0.5, shape),
        lambda key: jax.random.permutation(key, 4),
        lambda key: jax.random.categorical(key, jnp.zeros((2, 3))),
    ]
    whole: list[Callable[..., Any]] = [jax.random.key_data, jax.random.clone]
    return Step((k,), rng.choice([*map(on_first, ways), *whole]))
