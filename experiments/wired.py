"""Randomly wired networks with tensors of one size.

Wirings come from `gopt.sources.synthetic.small_world`, as in RandWire (Xie et al., 2019).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gopt.sources.synthetic import small_world
from gopt.workloads.cases import Case, floats

NODES, NEIGHBOURS, REWIRING = 32, 4, 0.75

# Large activations, so that XLA's other memory is small: 64 KiB of rows, 128 KiB of an image.
ROWS, COLUMNS = 256, 64
SIDE, CHANNELS = 32, 32


def plain(seed: int) -> Case:
    """Return a network of nodes `relu(sum of inputs) @ w`."""
    return _network(seed, jax.numpy.matmul, floats(ROWS, COLUMNS), floats(COLUMNS, COLUMNS))


def convolutional(seed: int) -> Case:
    """Return a network of nodes ReLU of the sum of inputs, 3x3 convolution, batch norm."""
    weights = floats(3, 3, CHANNELS, CHANNELS), *[floats(CHANNELS)] * 4
    return _network(seed, _convolution, floats(1, SIDE, SIDE, CHANNELS), weights)


KINDS: dict[str, Callable[[int], Case]] = {"plain": plain, "convolutional": convolutional}


def _network(seed: int, layer: Callable[..., jax.Array], shape: Any, weights: Any) -> Case:
    """Return the network of a seed, with a layer after the sum of each node."""
    edges = small_world(np.random.default_rng(seed), NODES, NEIGHBOURS, REWIRING).tolist()
    reads = [[u for u, v in edges if v == node] for node in range(NODES)]  # empty: the input
    ends = sorted(set(range(NODES)) - {u for u, _ in edges})

    def network(x: jax.Array, weights: Sequence[Any]) -> list[jax.Array]:
        made: list[jax.Array] = []
        for read, w in zip(reads, weights, strict=True):
            inputs = [made[u] for u in read] or [x]
            made.append(layer(jax.nn.relu(sum(inputs[1:], inputs[0])), w))
        return [made[node] for node in ends]

    return Case(network, (shape, [weights] * NODES))


def _convolution(x: jax.Array, weights: Sequence[jax.Array]) -> jax.Array:
    kernel, scale, offset, mean, variance = weights
    x = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return (x - mean) * (scale * jax.lax.rsqrt(variance + 1e-3)) + offset
