"""A recurrent cell, and convolutional networks that `gopt.workloads` lacks.

Norms are by running averages.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gopt.workloads.cases import Case, floats
from gopt.workloads.rewriting.dense import Weights, apply, dense


def nas_rnn(*, steps: int, hidden: int) -> Case:
    """Return the cell that Zoph and Le found, "Neural Architecture Search", ICLR 2017, unrolled.

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
    """Pad as much on both sides, so that strides of 1 keep the size."""
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
    """Return ResNet-18: He et al., "Deep Residual Learning", CVPR 2016, table 1."""

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
        return apply(weights["out"], x.mean((1, 2)))

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
    weights = {"stem": _conv_norm_shapes(7, 3, 64), "blocks": blocks, "out": dense(512, 1000)}
    return Case(run, (weights, floats(batch, size, size, 3)))


def vgg19(*, batch: int = 1, size: int = 224) -> Case:
    """Return VGG-19: Simonyan and Zisserman, ICLR 2015, table 1, column E."""
    stages = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))

    def run(weights: Weights, x: jax.Array) -> jax.Array:
        for stage in weights["stages"]:
            for each in stage:
                x = jax.nn.relu(_conv(x, each["kernel"]) + each["bias"])
            x = _max_pool(x, 2, 2, 0)
        x = x.reshape(batch, -1)
        for each in weights["dense"][:-1]:
            x = jax.nn.relu(apply(each, x))
        return apply(weights["dense"][-1], x)

    inputs, kernels = 3, list[list[Weights]]()
    for count, outputs in stages:
        kernels.append([])
        for _ in range(count):
            kernels[-1].append({"kernel": floats(3, 3, inputs, outputs), "bias": floats(outputs)})
            inputs = outputs
    flat = 512 * (size // 32) ** 2
    flattened = [dense(flat, 4096), dense(4096, 4096), dense(4096, 1000)]
    return Case(run, ({"stages": kernels, "dense": flattened}, floats(batch, size, size, 3)))
