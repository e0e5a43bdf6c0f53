"""Transformers of two kinds, as functions of weights and inputs.

"Bare" ones are after the graphs of X-RLflow: attention without softmax, no norms, no offsets. What
they leave open is our choice, and so are two changes. In its BERT nothing reads what attention
returns; here the next layer does. Products of queries and keys are divided by the root of their
mean square, for without softmax values would be cubed in each layer. The others are as people use
them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gopt.workloads.cases import Case, floats
from gopt.workloads.rewriting.dense import Weights, apply, dense


def _heads(x: jax.Array, heads: int) -> jax.Array:
    """Return `[heads, length, width]` of `[length, hidden]`."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def _mixed(query: jax.Array, key: jax.Array, value: jax.Array, heads: int, scores: Any) -> Any:
    """Return what each query gathers, `[length, hidden]`, by a function of its products."""
    query, key, value = (_heads(x, heads) for x in (query, key, value))
    weights = scores(query @ key.transpose(0, 2, 1))
    return (weights @ value).transpose(1, 0, 2).reshape(len(query[0]), -1)


# Bare transformers, of matrices alone.


def _square(hidden: int) -> Weights:
    return {name: floats(hidden, hidden) for name in ("query", "key", "value", "out")}


def _bare_attention(weights: Weights, x: jax.Array, heads: int, mask: Any = 0.0) -> jax.Array:
    query, key, value = (x @ weights[name] for name in ("query", "key", "value"))

    def scores(products: jax.Array) -> jax.Array:
        return products * lax.rsqrt(len(x) * jnp.square(products).mean()) + mask

    return _mixed(query, key, value, heads, scores) @ weights["out"]


def bare_attention(*, layers: int, length: int, hidden: int, heads: int) -> Case:
    """Return layers of attention, one after another: X-RLflow's BERT."""

    def run(weights: list[Weights], x: jax.Array) -> jax.Array:
        for layer in weights:
            x = _bare_attention(layer, x, heads)
        return x

    return Case(run, ([_square(hidden)] * layers, floats(length, hidden)))


def bare_transformer(
    *,
    layers: int,
    length: int,
    hidden: int,
    inner: int,
    heads: int,
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
) -> Case:
    """Return layers of attention and of two matrices, each added to what it reads."""

    def run(weights: list[Weights], x: jax.Array) -> jax.Array:
        for layer in weights:
            x = x + _bare_attention(layer, x, heads)
            x = x + activation(x @ layer["up"]) @ layer["down"]
        return x

    layer = _square(hidden) | {"up": floats(hidden, inner), "down": floats(inner, hidden)}
    return Case(run, ([layer] * layers, floats(length, hidden)))


def bare_gated_transformer(
    *, layers: int, length: int, hidden: int, inner: int, heads: int
) -> Case:
    """Return layers with a mask on their scores and a gate beside their activation: its DALL-E."""

    def run(weights: list[Weights], x: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.full((length, length), 1 / length))
        for layer in weights:
            x = x + _bare_attention(layer, x, heads, mask)
            x = x + (jax.nn.relu(x @ layer["up"]) * (x @ layer["gate"])) @ layer["down"]
        return x

    wide = {name: floats(hidden, inner) for name in ("up", "gate")}
    layer = _square(hidden) | wide | {"down": floats(inner, hidden)}
    return Case(run, ([layer] * layers, floats(length, hidden)))


def bare_transducer(
    *, layers: int, labels: int, length: int, hidden: int, inner: int, heads: int, outputs: int
) -> Case:
    """Return encoders of sound and of labels, side by side before two matrices: its T-T."""
    sizes: dict[str, Any] = {"length": length, "hidden": hidden, "inner": inner, "heads": heads}
    sound = bare_transformer(layers=layers, **sizes)
    words = bare_transformer(layers=labels, **sizes)

    def run(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = sound.fn(weights["sound"], x), words.fn(weights["words"], y)
        return jax.nn.relu(jnp.concatenate([x, y], -1) @ weights["joint"]) @ weights["out"]

    weights = {
        "sound": sound.args[0],
        "words": words.args[0],
        "joint": floats(2 * hidden, hidden),
        "out": floats(hidden, outputs),
    }
    return Case(run, (weights, sound.args[1], words.args[1]))


# Transformers as people use them.


def _layer_shapes(hidden: int, inner: int, gated: bool) -> Weights:
    names = ("query", "key", "value", "out")
    found = {name: dense(hidden, hidden) for name in names}
    if gated:
        found["gate"] = dense(hidden, inner)
    norms = {name: {"scale": floats(hidden), "bias": floats(hidden)} for name in ("first", "then")}
    return found | norms | {"up": dense(hidden, inner), "down": dense(inner, hidden)}


def _norm(weights: Weights, x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return (
        x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * weights["scale"]
        + weights["bias"]
    )


def _layer(weights: Weights, x: jax.Array, heads: int, mask: Any) -> jax.Array:
    y = _norm(weights["first"], x)
    query, key, value = (apply(weights[name], y) for name in ("query", "key", "value"))
    width = x.shape[-1] // heads

    def scores(products: jax.Array) -> jax.Array:
        return jax.nn.softmax(products * width**-0.5 + mask)

    x = x + apply(weights["out"], _mixed(query, key, value, heads, scores))
    y = _norm(weights["then"], x)
    inner = jax.nn.gelu(apply(weights["up"], y))
    if "gate" in weights:
        inner = inner * apply(weights["gate"], y)
    return x + apply(weights["down"], inner)


def transformer(
    *,
    layers: int,
    length: int,
    hidden: int,
    inner: int,
    heads: int,
    causal: bool = False,
    gated: bool = False,
) -> Case:
    """Return a transformer whose layers normalise what they read."""

    def run(weights: list[Weights], x: jax.Array) -> jax.Array:
        mask = jnp.triu(jnp.full((length, length), -1e9), 1) if causal else 0.0
        for layer in weights:
            x = _layer(layer, x, heads, mask)
        return x

    return Case(run, ([_layer_shapes(hidden, inner, gated)] * layers, floats(length, hidden)))


def transducer(
    *,
    layers: int,
    labels: int,
    length: int,
    hidden: int,
    inner: int,
    heads: int,
    predicted: int,
    vocabulary: int,
) -> Case:
    """Return a transformer transducer: encoders, and logits for each frame and each label.

    Zhang et al., "Transformer Transducer", ICASSP 2020, section 3, without its input features.
    """
    sizes: dict[str, Any] = {"hidden": hidden, "inner": inner, "heads": heads}
    sound = transformer(layers=layers, length=length, **sizes)
    words = transformer(layers=labels, length=predicted, causal=True, **sizes)
    joint = {name: dense(hidden, hidden) for name in ("sound", "words")}

    def run(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
        x = apply(weights["joint"]["sound"], sound.fn(weights["encoder"], x))
        y = apply(weights["joint"]["words"], words.fn(weights["labels"], y))
        return apply(weights["out"], jnp.tanh(x[:, None] + y[None]))

    weights = {
        "encoder": sound.args[0],
        "labels": words.args[0],
        "joint": joint,
        "out": dense(hidden, vocabulary),
    }
    return Case(run, (weights, sound.args[1], words.args[1]))
