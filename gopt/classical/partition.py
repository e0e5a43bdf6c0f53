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

    METIS parts the ops so that the devices make about equal bytes, and few bytes go from one to
    another; a tensor of several readers is shared out among them, since it is sent to a device
    once. What REGAL's authors took for weights is not known: this is our choice.

    Args:
      problem: one problem, on the host.
      seed: of METIS.

    Source: Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning
    irregular graphs", SIAM Journal on Scientific Computing 20 (1998).
    """
    part = _parts(problem, seed)
    order = np.asarray(depth_first_order(problem), np.int64)
    device, items = serial(problem, order, part[order])
    return keys_from_items(problem, device, items)


def _parts(problem: Problem, seed: int) -> np.ndarray:
    n, t, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    if problem.num_devices == 1:
        return np.zeros(n, np.int64)
    producer = np.asarray(problem.producer)[:t]
    size = np.asarray(problem.size, np.float64)[:t]
    tensor, consumer = np.asarray(problem.tensor)[:uses], np.asarray(problem.consumer)[:uses]
    made = np.bincount(producer, size, minlength=n)
    sent = (size / np.maximum(np.bincount(tensor, minlength=t), 1))[tensor]
    links = sparse.coo_matrix((_whole(sent), (producer[tensor], consumer)), (n, n))
    links = (links + links.T).tocsr()
    _, part = pymetis.part_graph(
        problem.num_devices,
        pymetis.CSRAdjacency(links.indptr, links.indices),
        vweights=_whole(made),
        eweights=links.data,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(part, np.int64)


def _whole(weight: np.ndarray) -> np.ndarray:
    """Returns weights as whole numbers, one at least."""
    return 1 + (weight * (_TOTAL / max(weight.sum(), 1))).astype(np.int64)
