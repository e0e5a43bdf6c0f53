"""Randomly wired networks with tensors of one size, and the least memory that any order needs.

Wirings come from `gopt.sources.synthetic.small_world`, as in RandWire (Xie et al., 2019).
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

# Large activations, so that XLA's other memory is small: 64 KiB of rows, 128 KiB of an image.
ROWS, COLUMNS = 256, 64
SIDE, CHANNELS = 32, 32


class Wiring(NamedTuple):
    """Connections of a network's nodes."""

    reads: tuple[tuple[int, ...], ...]  # nodes that each node reads; empty if it reads the input
    ends: tuple[int, ...]  # nodes whose tensors are returned


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
    """Return the bytes, without arguments, that the network of a seed needs in its best order.

    A node is two steps: a sum and a product. The sum may write over a tensor that it reads last;
    the product may not. Nodes that read the same tensors may share their sum, either all such nodes
    or none. If they share, nodes whose reads start alike may also share the partial sum. Temporary
    memory of XLA's products and vectors of single channels are left out.
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
    """Return the network of a seed, with a layer after the sum of each node."""
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
    """Return the peak number of tensors held at once in the best order.

    Args:
      wiring: wiring of the network.
      shared: whether nodes that read the same tensors share their sum.
      begun: prefixes of reads that are summed once for all nodes.
    """
    reads: list[list[int]] = []  # reads of each step
    sums: dict[Any, int] = {}  # sum steps
    product: list[int] = []  # product step of each node

    def add(read: tuple[int, ...], most: int) -> int:
        """Append a step that sums nodes; the first `most` may be a shared partial sum."""
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
