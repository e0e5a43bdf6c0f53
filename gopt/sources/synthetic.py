"""Random graphs of several families with random orientation, for training and tests.

Every graph has `num_ops` ops: a source, which is an input op, one op per node of a random graph,
and a sink. The source feeds the ops without other inputs. The sink reads the tensors without other
consumers. Each op makes one tensor. Sizes and times are normal with a small spread, in the style of
the synthetic set of REGAL (Paliwal et al. 2020).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gopt.graph.graph import Graph, from_arrays
from gopt.graph.kinds import INPUT, UNKNOWN

Seed = int | np.random.Generator


@dataclass(frozen=True)
class Costs:
    """Costs of ops in a random graph: normal values, rounded, at least 1.

    Hardware turns flop and bytes into times. On `gopt.cost.hardware.ideal` they are seconds: by
    default an op takes 50 ± 10 s, and so does a transfer.

    Attributes:
      flops: mean per op, flop.
      size: mean per tensor, bytes.
      spread: standard deviation, as a share of the mean.
    """

    flops: float = 50.0
    size: float = 50.0
    spread: float = 0.2


DEFAULT_COSTS = Costs()


def erdos_renyi(
    seed: Seed, num_ops: int, *, density: float | None = None, costs: Costs = DEFAULT_COSTS
) -> Graph:
    """Return a random graph in which every pair of nodes is joined with equal probability.

    Args:
      seed: seed, or generator, which is advanced.
      num_ops: number of ops, source and sink included.
      density: probability of an edge; by default 1.5 ln n / n for n nodes, as in REGAL's set.
      costs: costs of ops and tensors.

    Raises:
      ValueError: `num_ops` is below 3, or a value is invalid.
    """
    rng, n = np.random.default_rng(seed), _nodes(num_ops)
    if density is None:
        density = min(1.0, 1.5 * np.log(n) / n)
    _require_share("density", density)
    return _oriented(rng, n, _triangle(rng, n, density), costs)


def stochastic_block(
    seed: Seed,
    num_ops: int,
    *,
    blocks: int = 4,
    inside: float | None = None,
    between: float | None = None,
    costs: Costs = DEFAULT_COSTS,
) -> Graph:
    """Return a random graph of blocks, dense within a block and sparse between blocks.

    Args:
      seed: seed, or generator, which is advanced.
      num_ops: number of ops, source and sink included.
      blocks: number of blocks, equal in size up to one node.
      inside: probability of an edge within a block; by default 1.5 ln n / m for blocks of m nodes.
      between: probability of an edge between blocks; by default 0.5 / n.
      costs: costs of ops and tensors.

    Raises:
      ValueError: `num_ops` is below 3, or a value is invalid.
    """
    rng, n = np.random.default_rng(seed), _nodes(num_ops)
    if not 1 <= blocks <= n:
        raise ValueError(f"blocks is {blocks}: expected 1..{n}, one node in each at least")
    inside = min(1.0, 1.5 * np.log(n) * blocks / n) if inside is None else inside
    between = 0.5 / n if between is None else between
    _require_share("inside", inside)
    _require_share("between", between)
    starts = np.arange(blocks + 1) * n // blocks
    pairs = [_triangle(rng, int(b - a), inside) + a for a, b in pairwise(starts)]
    for i in range(blocks):
        for j in range(i + 1, blocks):
            rows, columns = starts[i + 1] - starts[i], starts[j + 1] - starts[j]
            index = _sample(rng, int(rows * columns), between)
            pairs.append(np.stack([index // columns + starts[i], index % columns + starts[j]], 1))
    return _oriented(rng, n, np.concatenate(pairs), costs)


def watts_strogatz(
    seed: Seed,
    num_ops: int,
    *,
    neighbours: int = 4,
    rewiring: float = 0.3,
    costs: Costs = DEFAULT_COSTS,
) -> Graph:
    """Return a ring of nodes joined to their neighbours, with some edges rewired at random.

    Source: Watts, Strogatz 1998.

    Args:
      seed: seed, or generator, which is advanced.
      num_ops: number of ops, source and sink included.
      neighbours: number of nearest nodes that a node is joined to, even.
      rewiring: probability that an edge gets another end.
      costs: costs of ops and tensors.

    Raises:
      ValueError: `num_ops` is below 3, or a value is invalid.
    """
    rng, n = np.random.default_rng(seed), _nodes(num_ops)
    _require_share("rewiring", rewiring)
    if neighbours < 2 or neighbours % 2:
        raise ValueError(f"neighbours is {neighbours}: expected an even number, at least 2")
    if neighbours >= n:
        raise ValueError(f"neighbours is {neighbours}: expected fewer than the {n} nodes")
    return _oriented(rng, n, small_world(rng, n, neighbours, rewiring), costs)


def small_world(rng: np.random.Generator, n: int, neighbours: int, rewiring: float) -> np.ndarray:
    """Return the undirected edges u < v of a `watts_strogatz` graph of n nodes, `[edges, 2]`.

    Args:
      rng: generator, which is advanced.
      n: number of nodes.
      neighbours: number of nearest nodes that a node is joined to, even, below n.
      rewiring: probability that an edge gets another end, 0 to 1.
    """
    near = [(u, (u + step) % n) for step in range(1, neighbours // 2 + 1) for u in range(n)]
    edges = {(min(pair), max(pair)) for pair in near}
    crowd = [neighbours] * n
    for (u, v), moved in zip(near, rng.random(len(near)) < rewiring, strict=True):
        while moved and crowd[u] < n - 1:
            w = int(rng.integers(n))
            pair = (min(u, w), max(u, w))
            if w != u and pair not in edges:
                edges.remove((min(u, v), max(u, v)))
                edges.add(pair)
                crowd[v] -= 1
                crowd[w] += 1
                break
    return np.array(sorted(edges))


def barabasi_albert(
    seed: Seed, num_ops: int, *, links: int = 2, costs: Costs = DEFAULT_COSTS
) -> Graph:
    """Return a random graph in which new nodes join others in proportion to their degrees.

    Source: Barabási, Albert 1999.

    Args:
      seed: seed, or generator, which is advanced.
      num_ops: number of ops, source and sink included.
      links: number of nodes that each new node joins.
      costs: costs of ops and tensors.

    Raises:
      ValueError: `num_ops` is below 3, or a value is invalid.
    """
    rng, n = np.random.default_rng(seed), _nodes(num_ops)
    if not 1 <= links < max(n, 2):
        raise ValueError(f"links is {links}: expected at least 1 and fewer than the {n} nodes")
    ends: list[int] = []  # each node, once per edge
    chosen = set(range(min(links, n - 1)))
    pairs = []
    for node in range(links, n):
        for other in sorted(chosen):
            pairs.append((other, node))
            ends += [other, node]
        chosen = set()
        while len(chosen) < links:
            chosen.add(ends[int(rng.integers(len(ends)))])
    return _oriented(rng, n, np.array(pairs, np.int64).reshape(-1, 2), costs)


def layered(
    seed: Seed,
    num_ops: int,
    *,
    layers: int | None = None,
    reads: int = 3,
    skip: float = 0.1,
    costs: Costs = DEFAULT_COSTS,
) -> Graph:
    """Return a random graph of layers whose nodes read from the layer before.

    Args:
      seed: seed, or generator, which is advanced.
      num_ops: number of ops, source and sink included.
      layers: number of layers, equal in size up to one node; by default √n for n nodes.
      reads: largest number of reads per node, drawn uniformly from 1 to `reads`.
      skip: probability that a read goes to any earlier layer instead.
      costs: costs of ops and tensors.

    Raises:
      ValueError: `num_ops` is below 3, or a value is invalid.
    """
    rng, n = np.random.default_rng(seed), _nodes(num_ops)
    layers = max(1, round(n**0.5)) if layers is None else layers
    if not 1 <= layers <= n:
        raise ValueError(f"layers is {layers}: expected 1..{n}, one node in each at least")
    if not reads >= 1:
        raise ValueError(f"reads is {reads}: expected at least 1")
    _require_share("skip", skip)
    starts = np.arange(layers + 1) * n // layers
    readers = np.arange(starts[1], n)
    readers = np.repeat(readers, rng.integers(1, reads + 1, readers.size))
    layer = np.searchsorted(starts, readers, side="right") - 1
    first = np.where(rng.random(readers.size) < skip, 0, starts[layer - 1])
    read = rng.integers(first, starts[layer])
    return _graph(rng, n, np.stack([read, readers], 1), costs)


# With default settings, all families support 7 ops or more.
FAMILIES: dict[str, Callable[[Seed, int], Graph]] = {
    "erdos_renyi": erdos_renyi,
    "stochastic_block": stochastic_block,
    "watts_strogatz": watts_strogatz,
    "barabasi_albert": barabasi_albert,
    "layered": layered,
}


def _nodes(num_ops: int) -> int:
    if not num_ops >= 3:
        raise ValueError(f"num_ops is {num_ops}: expected 3 at least: a source, a node, a sink")
    return num_ops - 2


def _require_share(field: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{field} is {value}: expected a probability in [0, 1]")


def _sample(rng: np.random.Generator, count: int, probability: float) -> np.ndarray:
    """Return the indices of random hits among `count` trials, without one draw per trial."""
    return rng.choice(count, rng.binomial(count, probability), replace=False, shuffle=False)


def _triangle(rng: np.random.Generator, n: int, probability: float) -> np.ndarray:
    """Return random pairs u < v of n nodes, each with this probability, `[edges, 2]`."""
    index = _sample(rng, n * (n - 1) // 2, probability)
    starts = np.arange(n) * (np.arange(n) - 1) // 2  # first pair with v as the larger node
    v = np.searchsorted(starts, index, side="right") - 1
    return np.stack([index - starts[v], v], 1)


def _oriented(rng: np.random.Generator, n: int, pairs: np.ndarray, costs: Costs) -> Graph:
    """Return the graph of undirected pairs, oriented along a random order of the nodes."""
    return _graph(rng, n, np.sort(rng.permutation(n)[pairs.astype(np.int64)], axis=1), costs)


def _graph(rng: np.random.Generator, n: int, pairs: np.ndarray, costs: Costs) -> Graph:
    """Return the graph of (producer, consumer) pairs, plus a source and a sink."""
    for field in ("flops", "size"):
        if not getattr(costs, field) >= 1:
            raise ValueError(f"costs.{field} is {getattr(costs, field)}: expected at least 1")
    if not 0 <= costs.spread < np.inf:
        raise ValueError(f"costs.spread is {costs.spread}: expected a share, not negative")
    count, sink = n + 2, n + 1
    pairs = np.unique(pairs + 1, axis=0)
    starts = np.setdiff1d(np.arange(1, sink), pairs[:, 1])
    ends = np.setdiff1d(np.arange(1, sink), pairs[:, 0])
    tensor = np.concatenate([pairs[:, 0], np.zeros_like(starts), ends])
    reader = np.concatenate([pairs[:, 1], starts, np.full_like(ends, sink)])

    def normal(mean: float) -> np.ndarray:
        return np.maximum(np.rint(rng.normal(mean, costs.spread * mean, count)), 1)

    size, flops = normal(costs.size), normal(costs.flops)
    flops[0] = 0
    pinned = np.zeros(count, bool)
    pinned[[0, sink]] = True
    kind = np.full(count, UNKNOWN)
    kind[0] = INPUT
    return from_arrays(
        producer=np.arange(count),
        size=size,
        tensor=tensor,
        consumer=reader,
        num_ops=count,
        kind=kind,
        flops=flops,
        bytes=0.0,
        pinned=pinned,
    )
