"""Spectral placement: ops along the smoothest eigenvectors of the Laplacian of a graph."""

import warnings

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, linalg

EXACT = 8192  # ops; the eigenvectors of larger graphs are found by iteration


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
