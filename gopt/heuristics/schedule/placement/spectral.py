"""Spectral placement: lay out ops along the smoothest eigenvectors of the graph Laplacian."""

import warnings

import numpy as np
from jaxtyping import Float64, Shaped
from scipy import sparse
from scipy.sparse import csgraph, linalg

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.orders.memory_orders import lowest_order
from gopt.heuristics.schedule.placement.order_splits import lowest_peak_placement

EXACT = 8192  # largest number of ops with exact eigenvectors; larger graphs iterate
TURNS = 12  # rotations of the devices in the plane; our choice


def spectral_cut(problem: Problem) -> Keys:
    """Return the keys of the lowest-peak order on one device, split along the graph's spectrum.

    The first two spectral coordinates place each op in the plane. The first 2, 3, … devices are
    evenly spaced directions. Each op runs on the device with the nearest direction, or on the
    nearest allowed one. The split with the lowest peak is kept, out of `TURNS` rotations and of
    each single device. Graphs of up to three ops have no coordinates and are not split. It runs on
    the host.
    """
    order, devices = lowest_order(problem), problem.num_devices
    placements = [np.full(order.size, device) for device in range(devices)]
    if devices > 1:
        places = op_coordinates(problem, 2)[:, order]
        counts = range(2, devices + 1)
        placements += [_nearest(places, count, turn) for count in counts for turn in range(TURNS)]
    return lowest_peak_placement(problem, order, placements)


def _nearest(places: np.ndarray, devices: int, turn: int) -> np.ndarray:
    """Return the device with the direction nearest to each place `[2, K]`, int64 `[K]`."""
    return np.argmax(sides(np.arange(devices) + turn / TURNS, devices) @ places, 0)


def sides(device: Shaped[np.ndarray, " N"], devices: int) -> Float64[np.ndarray, "N 2"]:
    """Return devices `[N]` as unit vectors, evenly spaced in the plane, float64 `[N, 2]`.

    Args:
      device: device indices, `[N]`.
      devices: number of devices.
    """
    angle = 2 * np.pi * np.asarray(device) / devices
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def op_coordinates(problem: Problem, count: int) -> Float64[np.ndarray, "count n"]:
    """Return the spectral coordinates of the real ops of a problem, float64 `[count, n]`.

    An edge's weight grows with the logarithm of the size of the tensor read.

    Args:
      problem: one problem of n real ops, as NumPy arrays.
      count: number of coordinates.
    """
    n, t, e = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    size, producer = np.asarray(problem.size[:t], np.float64), problem.producer[:t]
    tensor = problem.tensor[:e]
    made = np.bincount(producer, size, minlength=n)
    mean = size.mean() if t else 0.0
    weight = np.log1p(size / mean)[tensor] if mean > 0 else np.zeros(e)
    return spectral_coordinates(producer[tensor], problem.consumer[:e], weight, made, count)


def spectral_coordinates(
    sender: Shaped[np.ndarray, " E"],
    receiver: Shaped[np.ndarray, " E"],
    weight: Shaped[np.ndarray, " E"],
    made: Shaped[np.ndarray, " N"],
    count: int,
) -> Float64[np.ndarray, "count N"]:
    """Return the positions of ops in the order of each eigenvector, float64 `[count, N]` in -1..1.

    Cutting such an order tends to split the graph in two with little data transferred. Positions
    are cumulative shares of the bytes produced, so a cut at 0 halves the bytes. Graphs of at most
    `count + 1` ops get zeros. Eigenvectors of graphs of more than `EXACT` ops are approximate.

    Args:
      sender: producer of the tensor of each use, `[E]`.
      receiver: reader of each use, `[E]`.
      weight: edge weight of each use, `[E]`, at least 0.
      made: bytes that each op produces, `[N]`.
      count: number of eigenvectors, smoothest first.

    Source: Hall, "An r-dimensional quadratic placement algorithm", Management Science 17 (1970),
    with the normalised Laplacian of Shi and Malik, "Normalized cuts and image segmentation", IEEE
    TPAMI 22 (2000). The sign of an eigenvector is arbitrary: the op with the largest entry gets a
    positive one.
    """
    n = len(made)
    places = np.zeros((count, n))
    if n <= count + 1:
        return places
    # A small weight connects uses of empty tensors; a tiny one connects separate components.
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
    """Return the smoothest eigenvectors `[N, count]`, without the constant one."""
    n = len(constant)
    rng = np.random.default_rng(0)
    if n <= EXACT:
        values, vectors = linalg.eigsh(laplacian, count + 1, sigma=-1e-3, v0=rng.normal(size=n))
        return vectors[:, np.argsort(values)[1:]]
    # An exact factorisation takes minutes for a random graph of 20 000 ops, and does not fit in
    # memory for 80 000. An incomplete one is nearly exact on thin graphs, where plain iteration is
    # slow. On other graphs few iterations are needed.
    factors = linalg.spilu(
        (laplacian + 1e-4 * sparse.eye(n)).tocsc(),
        drop_tol=1e-3,
        fill_factor=10,
        permc_spec="MMD_AT_PLUS_A",  # the matrix is symmetric: no pivoting needed
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warns of an accuracy that is not needed
        values, vectors = linalg.lobpcg(
            laplacian,
            rng.normal(size=(n, count + 3)),  # extra vectors: the last ones converge late
            M=linalg.LinearOperator((n, n), factors.solve),
            Y=constant[:, None],
            largest=False,
            tol=1e-8,
            maxiter=100,
        )
    return vectors[:, np.argsort(values)[:count]]
