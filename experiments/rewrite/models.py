"""The models of the papers on rewriting, as functions of weights and inputs.

Of the transformers there are two kinds. "Matrices alone" are after the graphs of X-RLflow:
attention without softmax, no norms, no offsets. What they leave open is our choice, and so are two
changes. In its BERT nothing reads what attention returns; here the next layer does. Products of
queries and keys are divided by the root of their mean square, for without softmax values would be
cubed in each layer. The others are as people use them. Convolutional networks that `gopt.workloads`
lacks are here as well; norms are by running averages.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from experiments.cases import Case, floats, forward

Weights = dict[str, Any]


def _dense(inputs: int, outputs: int) -> Weights:
    return {"kernel": floats(inputs, outputs), "bias": floats(outputs)}


def _apply(weights: Weights, x: jax.Array) -> jax.Array:
    return x @ weights["kernel"] + weights["bias"]


def _heads(x: jax.Array, heads: int) -> jax.Array:
    """Returns `[heads, length, width]` of `[length, hidden]`."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def _mixed(query: jax.Array, key: jax.Array, value: jax.Array, heads: int, scores: Any) -> Any:
    """Returns what each query gathers, `[length, hidden]`, by a function of its products."""
    query, key, value = (_heads(x, heads) for x in (query, key, value))
    weights = scores(query @ key.transpose(0, 2, 1))
    return (weights @ value).transpose(1, 0, 2).reshape(len(query[0]), -1)


# Transformers of matrices alone.


def _square(hidden: int) -> Weights:
    return {name: floats(hidden, hidden) for name in ("query", "key", "value", "out")}


def _bare_attention(weights: Weights, x: jax.Array, heads: int, mask: Any = 0.0) -> jax.Array:
    query, key, value = (x @ weights[name] for name in ("query", "key", "value"))

    def scores(products: jax.Array) -> jax.Array:
        return products * lax.rsqrt(len(x) * jnp.square(products).mean()) + mask

    return _mixed(query, key, value, heads, scores) @ weights["out"]


def bare_attention(*, layers: int, length: int, hidden: int, heads: int) -> Case:
    """Returns layers of attention, one after another: X-RLflow's BERT."""

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
    """Returns layers of attention and of two matrices, each added to what it reads."""

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
    """Returns layers with a mask on their scores and a gate beside their activation: its DALL-E."""

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
    """Returns encoders of sound and of labels, side by side before two matrices: its T-T."""
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
    dense = {name: _dense(hidden, hidden) for name in names}
    if gated:
        dense["gate"] = _dense(hidden, inner)
    norms = {name: {"scale": floats(hidden), "bias": floats(hidden)} for name in ("first", "then")}
    return dense | norms | {"up": _dense(hidden, inner), "down": _dense(inner, hidden)}


def _norm(weights: Weights, x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return (
        x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * weights["scale"]
        + weights["bias"]
    )


def _layer(weights: Weights, x: jax.Array, heads: int, mask: Any) -> jax.Array:
    y = _norm(weights["first"], x)
    query, key, value = (_apply(weights[name], y) for name in ("query", "key", "value"))
    width = x.shape[-1] // heads

    def scores(products: jax.Array) -> jax.Array:
        return jax.nn.softmax(products * width**-0.5 + mask)

    x = x + _apply(weights["out"], _mixed(query, key, value, heads, scores))
    y = _norm(weights["then"], x)
    inner = jax.nn.gelu(_apply(weights["up"], y))
    if "gate" in weights:
        inner = inner * _apply(weights["gate"], y)
    return x + _apply(weights["down"], inner)


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
    """Returns a transformer whose layers normalise what they read."""

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
    """Returns a transformer transducer: encoders, and logits for each frame and each label.

    Zhang et al., "Transformer Transducer", ICASSP 2020, section 3, without its input features.
    """
    sizes: dict[str, Any] = {"hidden": hidden, "inner": inner, "heads": heads}
    sound = transformer(layers=layers, length=length, **sizes)
    words = transformer(layers=labels, length=predicted, causal=True, **sizes)
    joint = {name: _dense(hidden, hidden) for name in ("sound", "words")}

    def run(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
        x = _apply(weights["joint"]["sound"], sound.fn(weights["encoder"], x))
        y = _apply(weights["joint"]["words"], words.fn(weights["labels"], y))
        return _apply(weights["out"], jnp.tanh(x[:, None] + y[None]))

    weights = {
        "encoder": sound.args[0],
        "labels": words.args[0],
        "joint": joint,
        "out": _dense(hidden, vocabulary),
    }
    return Case(run, (weights, sound.args[1], words.args[1]))


# A recurrent cell, and convolutional networks.


def nas_rnn(*, steps: int, hidden: int) -> Case:
    """Returns the cell that Zoph and Le found, "Neural Architecture Search", ICLR 2017, unrolled.

    Its eight gates read the input and the state by matrices of their own. The graph of TASO that
    has this name combines the gates otherwise, and has no memory.
    """
    square = floats(hidden, hidden)
    sigmoid, tanh, relu = jax.nn.sigmoid, jnp.tanh, jax.nn.relu

    def cell(weights: Weights, x: jax.Array, state: jax.Array, memory: jax.Array) -> Any:
        a = [x @ w for w in weights["input"]]
        b = [state @ w for w in weights["state"]]
        first = (
            sigmoid(a[0] + b[0]),
            relu(a[1] + b[1]),
            sigmoid(a[2] + b[2]),
            relu(a[3] * b[3]),
            tanh(a[4] + b[4]),
            sigmoid(a[5] + b[5]),
            tanh(a[6] + b[6]),
            sigmoid(a[7] + b[7]),
        )
        second = (
            tanh(first[0] * first[1]),
            tanh(first[2] + first[3]),
            tanh(first[4] * first[5]),
            sigmoid(first[6] + first[7]),
        )
        memory = tanh(second[0] + memory) * second[1]
        return tanh(memory * tanh(second[2] + second[3])), memory

    def run(weights: Weights, inputs: jax.Array, state: jax.Array, memory: jax.Array) -> jax.Array:
        for x in inputs:
            state, memory = cell(weights, x, state, memory)
        return state

    weights = {"input": [square] * 8, "state": [square] * 8}
    first = floats(1, hidden)
    return Case(run, (weights, floats(steps, 1, hidden), first, first))


def _conv(x: jax.Array, kernel: jax.Array, strides: int = 1) -> jax.Array:
    """Pads as much on both sides, so that strides of 1 keep the size."""
    padding = [(n // 2, n // 2) for n in kernel.shape[:2]]
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (strides, strides), padding, dimension_numbers=numbers
    )


def _max_pool(x: jax.Array, size: int, strides: int, padding: int) -> jax.Array:
    around = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    window, step = (1, size, size, 1), (1, strides, strides, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, step, around)


def _conv_norm_shapes(size: int, inputs: int, outputs: int) -> Weights:
    names = ("mean", "variance", "scale", "bias")
    return {"kernel": floats(size, size, inputs, outputs)} | dict.fromkeys(names, floats(outputs))


def _conv_norm(weights: Weights, x: jax.Array, strides: int = 1) -> jax.Array:
    x = _conv(x, weights["kernel"], strides) - weights["mean"]
    # Weights are drawn from both sides of zero, variances are not.
    scale = lax.rsqrt(jnp.square(weights["variance"]) + 1e-5) * weights["scale"]
    return x * scale + weights["bias"]


def resnet18(*, batch: int = 1, size: int = 224) -> Case:
    """Returns ResNet-18: He et al., "Deep Residual Learning", CVPR 2016, table 1."""

    def block(weights: Weights, x: jax.Array, strides: int) -> jax.Array:
        y = jax.nn.relu(_conv_norm(weights["first"], x, strides))
        y = _conv_norm(weights["then"], y)
        if "beside" in weights:
            x = _conv_norm(weights["beside"], x, strides)
        return jax.nn.relu(x + y)

    def run(weights: Weights, x: jax.Array) -> jax.Array:
        x = _max_pool(jax.nn.relu(_conv_norm(weights["stem"], x, 2)), 3, 2, 1)
        for k, each in enumerate(weights["blocks"]):
            x = block(each, x, 2 if k in (2, 4, 6) else 1)
        return _apply(weights["out"], x.mean((1, 2)))

    blocks, inputs = [], 64
    for outputs in (64, 64, 128, 128, 256, 256, 512, 512):
        each = {
            "first": _conv_norm_shapes(3, inputs, outputs),
            "then": _conv_norm_shapes(3, outputs, outputs),
        }
        if inputs != outputs:
            each["beside"] = _conv_norm_shapes(1, inputs, outputs)
        blocks.append(each)
        inputs = outputs
    weights = {"stem": _conv_norm_shapes(7, 3, 64), "blocks": blocks, "out": _dense(512, 1000)}
    return Case(run, (weights, floats(batch, size, size, 3)))


def vgg19(*, batch: int = 1, size: int = 224) -> Case:
    """Returns VGG-19: Simonyan and Zisserman, ICLR 2015, table 1, column E."""
    stages = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))

    def run(weights: Weights, x: jax.Array) -> jax.Array:
        for stage in weights["stages"]:
            for each in stage:
                x = jax.nn.relu(_conv(x, each["kernel"]) + each["bias"])
            x = _max_pool(x, 2, 2, 0)
        x = x.reshape(batch, -1)
        for each in weights["dense"][:-1]:
            x = jax.nn.relu(_apply(each, x))
        return _apply(weights["dense"][-1], x)

    inputs, kernels = 3, list[list[Weights]]()
    for count, outputs in stages:
        kernels.append([])
        for _ in range(count):
            kernels[-1].append({"kernel": floats(3, 3, inputs, outputs), "bias": floats(outputs)})
            inputs = outputs
    flat = 512 * (size // 32) ** 2
    dense = [_dense(flat, 4096), _dense(4096, 4096), _dense(4096, 1000)]
    return Case(run, ({"stages": kernels, "dense": dense}, floats(batch, size, size, 3)))


_BERT: dict[str, Any] = {"layers": 8, "length": 64, "hidden": 1024, "heads": 16}
_DALLE: dict[str, Any] = {"layers": 8, "length": 16, "hidden": 768, "heads": 12, "inner": 2048}
_VIT: dict[str, Any] = {"layers": 12, "length": 64, "hidden": 768, "heads": 12, "inner": 3072}
_TT: dict[str, Any] = {
    **dict(layers=12, labels=2, length=80),
    **dict(hidden=512, heads=8, inner=2048),
}

MODELS: dict[str, Callable[[], Case]] = {
    "BERT": partial(forward, "bert", batch=1, inner=4096, **_BERT),
    "DALL-E": partial(transformer, causal=True, gated=True, **_DALLE),
    "T-T": partial(transducer, predicted=20, vocabulary=128, **_TT),
    "ViT": partial(forward, "vit"),
    "BERT, matrices alone": partial(bare_attention, **_BERT),
    "DALL-E, matrices alone": partial(bare_gated_transformer, **_DALLE),
    "T-T, matrices alone": partial(bare_transducer, outputs=10, **_TT),
    "ViT, matrices alone": partial(bare_transformer, activation=lambda x: x, **_VIT),
    "NasRNN": partial(nas_rnn, steps=5, hidden=512),
    "Inception-v3": partial(forward, "inception_v3"),
    "SqueezeNet": partial(forward, "squeezenet"),
    "ResNeXt-50": partial(forward, "resnext"),
    "ResNet-18": resnet18,
    "NASNet-A": partial(forward, "nasnet_a"),
    "VGG-19": vgg19,
}
