"""Graph partitioning with METIS: by bytes with a depth-first order ("GP + DFS"), and by time.

Needs the extra `solvers`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int32
from scipy import sparse

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.dispatch import legalize_placement
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.encode import keys_from_items
from gopt.heuristics.schedule.orders.memory_orders import depth_first_order
from gopt.heuristics.schedule.placement.list_scheduling import mean_ticks, mean_transfer_ticks
from gopt.heuristics.schedule.placement.order_splits import serial_schedule
from gopt.heuristics.schedule.readiness import check_group
from gopt.host.extras import optional

pymetis = optional("pymetis", "solvers", "METIS")

_TOTAL = 2**29  # sum that weights are scaled to: METIS counts in int32


def partition_depth_first(problem: Problem, *, seed: int = 0) -> Keys:
    """Return the keys of a depth-first order of ops placed by METIS: "GP + DFS" of REGAL.

    METIS balances the bytes that each device produces or is the first to read, and minimises the
    bytes transferred. A tensor's bytes are shared among its readers, since it is sent to a device
    once. REGAL's weights are not published: these are our choice. Inputs are placed where they are
    first read.

    Args:
      problem: one problem, as NumPy arrays.
      seed: random seed of METIS.

    Source: Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
    graphs", SIAM Journal on Scientific Computing 20 (1998).
    """
    order = np.asarray(depth_first_order(problem), np.int64)
    part = _parts(problem, order, seed)
    device, items = serial_schedule(problem, order, part[order])
    return keys_from_items(problem, device, items)


def partition_by_time(
    problem: Problem,
    group: np.ndarray | None = None,
    *,
    seed: int = 0,
    imbalance: float = 1.03,
    divide_transfer_cost: bool = True,
) -> Int32[np.ndarray, " N"]:
    """Return the placement of METIS, int32 `[N]`.

    The placement is settled by `gopt.cost.schedule.dispatch.legalize_placement`. METIS balances op
    time over devices and minimises transfer time between them. It ignores the order of the ops and
    the memory of devices; see `gopt.heuristics.schedule.placement.repair.fit_memory`.

    Args:
      problem: one problem of n real ops, as NumPy arrays.
      group: group of each op, int `[n]`, kept on one device; by default each op is its own group.
      seed: random seed of METIS; 0 and 1 are the same.
      imbalance: largest time of a device, as a multiple of its fair share; above 1.
      divide_transfer_cost: whether a tensor's transfer time is divided among its readers; otherwise
        it counts in full for each reader. The better choice depends on the graph.

    Raises:
      ValueError: the imbalance is not above 1, or `group` does not have one entry per op.

    Source: see `partition_depth_first`; the weights are our choice.
    """
    if not imbalance > 1:
        raise ValueError(f"imbalance is {imbalance}: expected more than 1")
    n = int(problem.num_ops)
    group = np.arange(n) if group is None else np.asarray(group)
    check_group(problem, group)
    _, group = np.unique(group, return_inverse=True)
    links = _links(problem, mean_transfer_ticks(problem), divide_transfer_cost=divide_transfer_cost)
    ticks = np.bincount(group, mean_ticks(problem)[:n])
    limit = max(1, round(1000 * (imbalance - 1)))
    options = pymetis.Options(seed=seed, ufactor=limit)
    device = np.zeros(problem.shape.ops, np.int32)
    device[:n] = _metis(problem, _between(links, group), ticks, options)[group]
    return np.asarray(legalize_placement(problem, jnp.asarray(device)))


def _parts(problem: Problem, order: np.ndarray, seed: int) -> np.ndarray:
    """Return METIS's device for each op, weighted by bytes produced or read first."""
    n, t, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    producer = np.asarray(problem.producer)[:t]
    size = np.asarray(problem.size, np.float64)[:t]
    tensor, consumer = np.asarray(problem.tensor)[:uses], np.asarray(problem.consumer)[:uses]
    turn = np.zeros(n, np.int64)
    turn[order] = np.arange(order.size)
    first = np.full(t, order.size)
    np.minimum.at(first, tensor, turn[consumer])
    given = np.asarray(problem.is_input)[producer]
    read = given & (first < order.size)
    bytes = np.bincount(producer[~given], size[~given], minlength=n)
    bytes += np.bincount(order[first[read]], size[read], minlength=n)
    links = _links(problem, np.asarray(problem.size, np.float64), divide_transfer_cost=True)
    return _metis(problem, links, bytes, pymetis.Options(seed=seed))


def _between(links: sparse.csr_matrix, group: np.ndarray) -> sparse.csr_matrix:
    """Sum edge weights of ops over pairs of different groups, `[K, K]`."""
    ops, others = links.nonzero()
    one, other = group[ops], group[others]
    apart, count = one != other, int(group.max(initial=0)) + 1
    ties = links.data[apart], (one[apart], other[apart])
    return sparse.coo_matrix(ties, (count, count)).tocsr()


def _links(problem: Problem, sent: np.ndarray, *, divide_transfer_cost: bool) -> sparse.csr_matrix:
    """Return edge weights between ops, whole numbers `[n, n]`.

    A tensor's transfer cost, `sent[T]`, counts between producer and each reader, or is divided
    among the readers.
    """
    n, uses = int(problem.num_ops), int(problem.num_uses)
    tensor, consumer = np.asarray(problem.tensor)[:uses], np.asarray(problem.consumer)[:uses]
    readers = np.maximum(np.diff(problem.first_use), 1)
    weight = (sent / readers if divide_transfer_cost else sent)[tensor]
    ends = np.asarray(problem.producer)[tensor], consumer
    links = sparse.coo_matrix((_whole(weight), ends), (n, n))
    return (links + links.T).tocsr()


def _metis(
    problem: Problem, links: sparse.csr_matrix, weight: np.ndarray, options: Any
) -> np.ndarray:
    """Return the device of each of K vertices, int64 `[K]`, with balanced weights."""
    count = min(problem.num_devices, len(weight))
    if count == 1:
        return np.zeros(len(weight), np.int64)
    _, part = pymetis.part_graph(
        count,
        pymetis.CSRAdjacency(links.indptr, links.indices),
        vweights=_whole(weight),
        eweights=links.data,
        options=options,
    )
    return np.asarray(part, np.int64)


def _whole(weight: np.ndarray) -> np.ndarray:
    """Return weights as whole numbers of at least 1."""
    return 1 + (weight * (_TOTAL / max(weight.sum(), 1))).astype(np.int64)  # type: ignore[operator]
