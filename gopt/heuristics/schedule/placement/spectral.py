"""Spectral placement: ops along the smoothest eigenvectors of the Laplacian of a graph."""

import warnings

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, linalg

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.orders.memory_orders import lowest_order, lowest_placement

EXACT = 8192  # ops; the eigenvectors of larger graphs are found by iteration
TURNS = 12  # of the devices in the plane; our choice


def spectral_cut(problem: Problem) -> Keys:
    """Returns the keys of the order that peaks least on one device, parted along the spectrum.

    Ops lie in the plane of the first two spectral places, and the first 2, 3, … devices are even
    directions of it: each op runs on the one whose direction is nearest to its own, or on one near
    that it is allowed on. Of `TURNS` turns of the devices, and of every device alone, that which
    peaks least is kept. Graphs of three ops have no places, and are not parted. On the host.
    """
    order, devices = lowest_order(problem), problem.num_devices
    wanted = [np.full(order.size, device) for device in range(devices)]
    if devices > 1:
        places = op_places(problem, 2)[:, order]
        counts = range(2, devices + 1)
        wanted += [_nearest(places, count, turn) for count in counts for turn in range(TURNS)]
    return lowest_placement(problem, order, wanted)


def _nearest(places: np.ndarray, devices: int, turn: int) -> np.ndarray:
    """Returns the device in whose direction each of some places `[2, K]` lies most, int64 `[K]`."""
    return np.argmax(sides(np.arange(devices) + turn / TURNS, devices) @ places, 0)


def sides(device: np.ndarray, devices: int) -> np.ndarray:
    """Returns devices `[N]` as unit vectors, evenly spread over the plane. float64 `[N, 2]`."""
    angle = 2 * np.pi * np.asarray(device) / devices
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def op_places(problem: Problem, count: int) -> np.ndarray:
    """Returns the spectral places of the ops of a problem, float64 `[count, N]` without padding.

    What ties two ops grows with the logarithm of the size of what is read.
    """
    n, t, e = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    size, producer = np.asarray(problem.size[:t], np.float64), problem.producer[:t]
    tensor = problem.tensor[:e]
    made = np.bincount(producer, size, minlength=n)
    mean = size.mean() if t else 0.0
    weight = np.log1p(size / mean)[tensor] if mean > 0 else np.zeros(e)
    return spectral_places(producer[tensor], problem.consumer[:e], weight, made, count)


def spectral_places(
    sender: np.ndarray, receiver: np.ndarray, weight: np.ndarray, made: np.ndarray, count: int
) -> np.ndarray:
    """Returns the places of ops in the order of eigenvectors, float64 `[count, N]` in -1..1.

    A cut of such an order tends to part the graph into two with little sent between them. Places
    are by bytes made, so that a cut at 0 halves what the ops make. Zeros if there are too few ops.
    Eigenvectors of graphs of more than `EXACT` ops are approximate.

    Args:
      sender: the op that makes what a use reads, `[E]`.
      receiver: the op that reads it, `[E]`.
      weight: how much a use ties the two, `[E]`, 0 or more.
      made: bytes that an op makes, `[N]`.
      count: how many eigenvectors, smoothest first.

    Source: Hall, "An r-dimensional quadratic placement algorithm", Management Science 17 (1970),
    with the normalised Laplacian of Shi and Malik, "Normalized cuts and image segmentation", IEEE
    TPAMI 22 (2000). An eigenvector has no sign: the op with the largest entry gets a positive one.
    """
    n = len(made)
    places = np.zeros((count, n))
    if n <= count + 1:
        return places
    # A little weight ties uses of empty tensors, and a tiny one parts that have no use in common.
    links = sparse.coo_matrix((weight + 0.1, (sender, receiver)), (n, n))
    _, part = csgraph.connected_components(links, directed=False)
    _, first = np.unique(part, return_index=True)
    first.sort()
    ties = sparse.coo_matrix((np.full(len(first) - 1, 1e-3), (first[:-1], first[1:])), (n, n))
    links = (links + links.T + ties + ties.T).tocsr()
    degree = np.asarray(links.sum(1)).ravel() + 1e-6
    scale = sparse.diags(1 / np.sqrt(degree))
    laplacian = (sparse.eye(n) - scale @ links @ scale).tocsc()
    vectors = _smoothest(laplacian, np.sqrt(degree), count) / np.sqrt(degree)[:, None]
    share = (made + 1e-3 * made.mean() + 1e-12) / (made + 1e-3 * made.mean() + 1e-12).sum()
    for place, vector in zip(places, vectors.T, strict=True):
        order = np.argsort(vector * np.sign(vector[np.argmax(np.abs(vector))]), kind="stable")
        place[order] = 2 * np.cumsum(share[order]) - 1
    return places


def _smoothest(laplacian: sparse.spmatrix, constant: np.ndarray, count: int) -> np.ndarray:
    """Returns eigenvectors `[N, count]`, smoothest first, but for the constant one."""
    n = len(constant)
    rng = np.random.default_rng(0)
    if n <= EXACT:
        values, vectors = linalg.eigsh(laplacian, count + 1, sigma=-1e-3, v0=rng.normal(size=n))
        return vectors[:, np.argsort(values)[1:]]
    # Factors of the whole Laplacian take minutes for a random graph of 20 000 ops, and more memory
    # than there is for 80 000. Those that leave out what is small are nearly exact where graphs are
    # thin, and iterations would be many; elsewhere there are few.
    factors = linalg.spilu(
        (laplacian + 1e-4 * sparse.eye(n)).tocsc(),
        drop_tol=1e-3,
        fill_factor=10,
        permc_spec="MMD_AT_PLUS_A",  # the matrix is symmetric: no pivots are needed
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of an accuracy that places do not need
        values, vectors = linalg.lobpcg(
            laplacian,
            rng.normal(size=(n, count + 3)),  # more than are asked for, which converge late
            M=linalg.LinearOperator((n, n), factors.solve),
            Y=constant[:, None],
            largest=False,
            tol=1e-8,
            maxiter=100,
        )
    return vectors[:, np.argsort(values)[:count]]
