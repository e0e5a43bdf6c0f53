"""Random loops, branches, calls and transformations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.operations.bodies import body, small_count
from tests.fuzz.operations.values import Step, Values


def loop(values: Values) -> Step:
    """Return a scan or a while loop; a while loop runs three times at most."""
    rng, k = values.rng, values.pick("float int complex bool")
    x = values.types[k]
    inner, reverse, length = body(rng, x), rng.random() < 0.3, rng.choice([0, 1, 3])
    unroll = rng.choice([1, 2])
    other = values.pick("float int", rank=1)

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        new = inner(carry)
        return new, (new.ravel()[:1], None if row is None else row + 1)

    def scan(x: Any, rows: Any) -> Any:
        last, collected = lax.scan(step, x, rows, reverse=reverse, unroll=unroll)
        return (last, *jax.tree.leaves(collected))

    def counted(x: Any, rows: Any) -> Any:
        return scan(x, None) if rows is None else lax.fori_loop(0, length, lambda _, y: inner(y), x)

    def data_dependent(x: Any, other: Any) -> Any:
        count = small_count(other)
        state = lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, inner(s[1])), (0, x))
        return state if reverse else state[1]

    def dynamic(x: Any, other: Any) -> Any:
        return lax.fori_loop(0, small_count(other), lambda i, y: inner(y), x)

    def without_rows(x: Any, other: Any) -> Any:
        return lax.scan(lambda c, _: (inner(c), None), x, None, length=length)[0]

    return Step((k, other), rng.choice([scan, counted, data_dependent, dynamic, without_rows]))


def branch(values: Values) -> Step:
    rng, k = values.rng, values.pick("float int complex bool")
    x, by = values.types[k], values.pick("float int bool", full=True)
    branches = [body(rng, x) for _ in range(rng.randint(2, 3))]
    as_index = rng.random() < 0.5

    def function(x: Any, by: Any) -> Any:
        if as_index:
            return lax.switch(small_count(by), branches, x)
        return lax.cond(small_count(by) > 1, branches[0], branches[1], x)

    return Step((k, by), function)


def call(values: Values) -> Step:
    """Return a body behind a call: jit, checkpoint, a custom rule, or a map."""
    rng, k = values.rng, values.pick("float")
    x = values.types[k]
    inner, other = body(rng, x), values.pick("float")
    donate, axis = rng.random() < 0.3, rng.randrange(max(len(x.shape), 1))
    with_rule = jax.custom_jvp(inner)
    with_rule.defjvp(lambda given, tangents: (inner(*given), 2 * tangents[0]))
    with_backward = jax.custom_vjp(inner)
    with_backward.defvjp(lambda x: (inner(x), x), lambda x, g: (g * jnp.cos(x),))

    def summed(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: jnp.sum(function(x).astype(jnp.float32))

    def closed(x: Any, y: Any) -> Any:
        return jax.jit(lambda x: inner(x) + jnp.sum(y).astype(x.dtype))(x)

    ways: list[Callable[..., Any]] = [
        lambda x, _: jax.jit(inner, donate_argnums=0 if donate else ())(-x),  # not an argument
        lambda x, _: jax.jit(inner, inline=True)(x),
        lambda x, _: jax.checkpoint(inner)(x),
        lambda x, _: with_rule(x),
        lambda x, _: with_backward(x),
        lambda x, _: jax.vmap(inner, in_axes=axis, out_axes=axis)(x),
        lambda x, _: lax.map(inner, x),
        closed,
        lambda x, _: jax.grad(summed(inner))(x),
        lambda x, _: jax.grad(summed(jax.checkpoint(inner)))(x),
        lambda x, _: jax.grad(summed(with_rule))(x),
        lambda x, _: jax.grad(summed(with_backward))(x),
        lambda x, _: jax.vjp(inner, x)[1](x)[0],
        lambda x, _: jax.jvp(inner, (x,), (x,)),
        lambda x, _: jax.linearize(inner, x)[1](x),
        lambda x, _: jax.vmap(jax.grad(summed(inner)))(x),
        lambda x, _: jax.pure_callback(
            lambda x: np.asarray(x), jax.ShapeDtypeStruct(x.shape, x.dtype), x
        ),
    ]
    weights = [2] * (len(ways) - 1) + [1]
    return Step((k, other), rng.choices(ways, weights)[0])


def scan_of_all(values: Values) -> Step:
    """Return a scan that carries several values of other types, and a key."""
    rng = values.rng
    first, second = values.pick("float int complex bool"), values.pick("float int bool key")
    k = values.pick("float int", rank=1)
    x = values.types[first]
    inner, reverse = body(rng, x), rng.random() < 0.5
    draws = rng.random() < 0.5

    def function(x: Any, other: Any, rows: Any) -> Any:
        key = jax.random.key(1)

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            x, other, key = carry["x"], carry["other"], carry["key"]
            out: dict[str, Any] = {"row": row, "none": None, "closed": rows.sum()}
            if draws:
                key, now = jax.random.split(key)
                out["drawn"] = jax.random.uniform(now, (2,))
            new = lax.cond(small_count(row) > 1, inner, lambda x: x, x)
            return {"x": new, "other": other, "key": key}, out

        start = {"x": x, "other": other, "key": key}
        last, collected = lax.scan(step, start, rows, reverse=reverse)
        return last["x"], last["other"], collected

    return Step((first, second, k), function)


def transformed(values: Values) -> Step:
    """Return a gradient or a map of a function with a loop, a branch or a product in it."""
    rng, k = values.rng, values.pick("float", rank=1)
    x = values.types[k]
    inner, other = body(rng, x), body(rng, x)
    matrix = values.constant((x.shape[-1], 2), x.dtype)

    def scanned(x: Any) -> Any:
        return lax.scan(lambda c, _: (inner(c), c.sum()), x, None, length=2)

    def branched(x: Any) -> Any:
        return lax.cond(small_count(x) > 1, inner, other, x)

    def repeated(x: Any) -> Any:
        count = small_count(x)
        return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, inner(s[1])), (0, x))[1]

    def mixed(x: Any) -> Any:
        return jnp.tanh(inner(x) @ matrix)

    @jax.custom_batching.custom_vmap
    def with_map(x: Any) -> Any:
        return inner(x)

    @with_map.def_vmap
    def _(size: int, is_batched: Any, x: Any) -> Any:
        return jax.vmap(inner)(x), True

    function = rng.choice([scanned, branched, mixed, jax.checkpoint(mixed), jax.jit(mixed)])

    def loss(x: Any) -> Any:
        leaves = jax.tree.leaves(function(x))
        return sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in leaves)

    ways: list[Callable[..., Any]] = [
        jax.grad(loss),
        lambda x: jax.value_and_grad(loss)(x),
        jax.vmap(repeated),
        jax.vmap(branched),
        jax.vmap(scanned),
        jax.vmap(with_map),
        with_map,
        lambda x: jax.jvp(jax.grad(loss), (x,), (x,)),
        jax.vmap(jax.value_and_grad(loss)),
        lambda x: jax.lax.map(branched, x, batch_size=2),
        lambda x: jax.hessian(loss)(x).ravel()[:20],
        lambda x: lax.reduce(x, np.zeros((), x.dtype), lambda a, b: a + b * 1, (0,)),
    ]
    return Step((k,), rng.choice(ways))
