"""Randomly wired networks, all of whose tensors have one size, and the least that any order needs.

Wirings are those of `gopt.sources.synthetic.small_world`, as in RandWire (Xie et al., 2019).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.heuristics.solvers.exact_peak import least_peak
from gopt.sources.synthetic import small_world
from gopt.workloads.cases import Case, floats

NODES, NEIGHBOURS, REWIRING = 32, 4, 0.75

# Activations outweigh by far what XLA needs beside them: 64 KiB of rows, 128 KiB of an image.
ROWS, COLUMNS = 256, 64
SIDE, CHANNELS = 32, 32


class Wiring(NamedTuple):
    """Nodes that each node reads (none: the input), and the nodes that are returned."""

    reads: tuple[tuple[int, ...], ...]
    ends: tuple[int, ...]


def wiring(seed: int) -> Wiring:
    """Return the wiring of a seed."""
    edges = small_world(np.random.default_rng(seed), NODES, NEIGHBOURS, REWIRING).tolist()
    reads = tuple(tuple(u for u, v in edges if v == node) for node in range(NODES))
    return Wiring(reads, tuple(sorted(set(range(NODES)) - {u for u, _ in edges})))


def plain(seed: int) -> Case:
    """Return a network of nodes `relu(sum of inputs) @ w`."""
    return _network(seed, jax.numpy.matmul, floats(ROWS, COLUMNS), floats(COLUMNS, COLUMNS))


def convolutional(seed: int) -> Case:
    """Return a network of nodes ReLU of the sum of inputs, 3x3 convolution, batch norm."""
    weights = floats(3, 3, CHANNELS, CHANNELS), *[floats(CHANNELS)] * 4
    return _network(seed, _convolution, floats(1, SIDE, SIDE, CHANNELS), weights)


KINDS: dict[str, Callable[[int], Case]] = {"plain": plain, "convolutional": convolutional}


def optimum(seed: int, case: Case) -> int:
    """Return the bytes beside arguments that the network of a seed needs in its best order.

    A node is two steps: a sum, which may write over what it is the last to read, and a product,
    which may not. Nodes that read the same may share their sum, all or none of them; in the first
    case those that begin with the same may share what it adds up to. What XLA needs while it
    computes a product is left out, and so are vectors of single channels.
    """
    shape, read_by = case.args[0], wiring(seed)
    size = shape.size * shape.dtype.itemsize
    beginnings = Counter(
        read[:length] for read in read_by.reads for length in range(2, len(read) + 1)
    )
    common = [begin for begin, count in beginnings.items() if count > 1]
    least = _least_tensors(read_by, False, ())
    for count in range(len(common) + 1):
        for chosen in itertools.combinations(common, count):
            least = min(least, _least_tensors(read_by, True, chosen))
    return size * least


def _network(seed: int, layer: Callable[..., jax.Array], shape: Any, weights: Any) -> Case:
    """Return the network of a seed, with a layer behind the sum of each node."""
    reads, ends = wiring(seed)

    def network(x: jax.Array, weights: Sequence[Any]) -> list[jax.Array]:
        made: list[jax.Array] = []
        for read, w in zip(reads, weights, strict=True):
            inputs = [made[u] for u in read] or [x]
            made.append(layer(jax.nn.relu(sum(inputs[1:], inputs[0])), w))
        return [made[node] for node in ends]

    return Case(network, (shape, [weights] * len(reads)))


def _convolution(x: jax.Array, weights: Sequence[jax.Array]) -> jax.Array:
    kernel, scale, offset, mean, variance = weights
    x = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return (x - mean) * (scale * jax.lax.rsqrt(variance + 1e-3)) + offset


def _least_tensors(wiring: Wiring, shared: bool, begun: Collection[tuple[int, ...]]) -> int:
    """Return the most tensors that are held at once in the best order.

    Args:
      wiring: of the network.
      shared: whether nodes that read the same share their sum.
      begun: beginnings of what nodes read that are added up once for all of them.
    """
    reads: list[list[int]] = []  # of steps
    sums: dict[Any, int] = {}  # steps
    product: list[int] = []  # steps, by node

    def add(read: tuple[int, ...], most: int) -> int:
        """Append the step that adds up some nodes, of which `most` may have been begun."""
        length = next((k for k in range(most, 1, -1) if read[:k] in begun), 0)
        begin = [begin_with(read[:length])] if length else []
        reads.append(begin + [product[u] for u in read[length:]])
        return len(reads) - 1

    def begin_with(begin: tuple[int, ...]) -> int:
        if ("begin", begin) not in sums:
            sums["begin", begin] = add(begin, len(begin) - 1)
        return sums["begin", begin]

    for node, read in enumerate(wiring.reads):
        key = read if shared and read else node
        if key not in sums:
            sums[key] = add(read, len(read))
        product.append(len(reads))
        reads.append([sums[key]])
    kept = [product[node] for node in wiring.ends]
    return least_peak([1] * len(reads), reads, kept, over=sums.values())
