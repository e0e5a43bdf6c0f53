"""Graph partitioning and a depth-first order: the baseline "GP + DFS" of REGAL.

Needs the extra `solvers`.
"""

import numpy as np
import pymetis
from scipy import sparse

from gopt.classical.encode import keys_from_items
from gopt.classical.memory_orders import depth_first_order, serial
from gopt.cost.execution import Keys
from gopt.problem import Problem

_TOTAL = 2**29  # weights are scaled to this sum: METIS counts in int32


def partition_depth_first(problem: Problem, *, seed: int = 0) -> Keys:
    """Returns the keys of a depth-first order of ops placed by METIS.

    METIS tries to part the ops so that devices make, or are the first to read, about equal bytes,
    and few bytes go from one to another; a tensor of several readers is shared out among them,
    since it is sent to a device once. What REGAL's authors took for weights is not known: this is
    our choice. Inputs are where they are read first.

    Args:
      problem: one problem, on the host.
      seed: of METIS.

    Source: Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning
    irregular graphs", SIAM Journal on Scientific Computing 20 (1998).
    """
    order = np.asarray(depth_first_order(problem), np.int64)
    part = _parts(problem, order, seed)
    device, items = serial(problem, order, part[order])
    return keys_from_items(problem, device, items)


def _parts(problem: Problem, order: np.ndarray, seed: int) -> np.ndarray:
    """Returns a device for each op, by METIS."""
    n, t, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    count = min(problem.num_devices, n)
    if count == 1:
        return np.zeros(n, np.int64)
    producer = np.asarray(problem.producer)[:t]
    size = np.asarray(problem.size, np.float64)[:t]
    tensor, consumer = np.asarray(problem.tensor)[:uses], np.asarray(problem.consumer)[:uses]
    sent = (size / np.maximum(np.bincount(tensor, minlength=t), 1))[tensor]
    links = sparse.coo_matrix((_whole(sent), (producer[tensor], consumer)), (n, n))
    links = (links + links.T).tocsr()

    turn = np.zeros(n, np.int64)
    turn[order] = np.arange(order.size)
    first = np.full(t, order.size)
    np.minimum.at(first, tensor, turn[consumer])
    given = np.asarray(problem.is_input)[producer]
    read = given & (first < order.size)
    bytes = np.bincount(producer[~given], size[~given], minlength=n)
    bytes += np.bincount(order[first[read]], size[read], minlength=n)
    _, part = pymetis.part_graph(
        count,
        pymetis.CSRAdjacency(links.indptr, links.indices),
        vweights=_whole(bytes),
        eweights=links.data,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(part, np.int64)


def _whole(weight: np.ndarray) -> np.ndarray:
    """Returns weights as whole numbers, one at least."""
    return 1 + (weight * (_TOTAL / max(weight.sum(), 1))).astype(np.int64)
