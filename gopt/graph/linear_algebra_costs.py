"""Flop of matrix decompositions and solvers, by textbook formulas.

The constants come from Golub and Van Loan, Matrix Computations, 4th edition (GVL), and from LAPACK
Working Note 41 (LAWN 41). They are our choice: libraries run other algorithms, and iterative ones
depend on the data. A complex operation counts like a real one, as in XLA's analysis of products.
"""

import math
from collections.abc import Callable
from typing import Any

from jax.extend.core import JaxprEqn

from gopt.program.equations import aval_of


def cholesky(n: int) -> float:
    """Return the flop of a Cholesky factor of an `n` × `n` matrix (GVL 4.2)."""
    return n**3 / 3


def lu(m: int, n: int) -> float:
    """Return the flop of an LU decomposition with partial pivoting (GVL 3.4; LAWN 41)."""
    small, large = sorted((m, n))
    return small**2 * (large - small / 3)


def householder_qr(m: int, n: int) -> float:
    """Return the flop of R and the reflectors of an `m` × `n` matrix (GVL 5.2)."""
    return 2 * lu(m, n)


def product_of_reflectors(m: int, n: int, k: int) -> float:
    """Return the flop of the first `n` columns of a product of `k` reflectors (LAWN 41, ORGQR).

    Args:
      m: length of a reflector.
      n: number of columns.
      k: number of reflectors.
    """
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


def reflections(m: int, n: int, k: int) -> float:
    """Return the flop to apply `k` reflectors of length `m` to `n` vectors (LAWN 41, ORMQR)."""
    return 2 * n * k * (2 * m - k)


def symmetric_eigen(n: int, *, vectors: bool) -> float:
    """Return the flop of eigenvalues of a symmetric matrix, and of its vectors (GVL 8.3)."""
    return 9 * n**3 if vectors else tridiagonal(n)


def eigen(n: int, *, vectors: bool) -> float:
    """Return the flop of a real Schur form without or with vectors (GVL 7.5).

    Eigenvectors cost about as much as Schur vectors.
    """
    return 25 * n**3 if vectors else 10 * n**3


def svd(m: int, n: int, *, vectors: str) -> float:
    """Return the flop of a Golub-Reinsch singular value decomposition (GVL figure 8.6.1).

    Args:
      m: number of rows.
      n: number of columns.
      vectors: "none"; "thin" for as many vectors as there are values; or "full" for square bases.
        Both are the same for a square matrix.
    """
    n, m = sorted((m, n))
    if vectors == "none":
        return 4 * m * n**2 - 4 * n**3 / 3
    if vectors == "thin" and m > n:
        return 14 * m * n**2 + 8 * n**3
    return 4 * m**2 * n + 8 * m * n**2 + 9 * n**3


def hessenberg(n: int) -> float:
    """Return the flop of a reduction to Hessenberg form, without the basis (GVL 7.4)."""
    return 10 * n**3 / 3


def tridiagonal(n: int) -> float:
    """Return the flop of a symmetric reduction to tridiagonal form, without the basis (GVL 8.3)."""
    return 4 * n**3 / 3


def triangular_solve(n: int, size: int) -> float:
    """Return the flop of a solve with `size` numbers on the right side (GVL 3.1)."""
    return n * size


def tridiagonal_solve(n: int, columns: int) -> float:
    """Return the flop of Gaussian elimination of a band of three (GVL 4.3)."""
    return 3 * n + 5 * n * columns


def cholesky_update(n: int) -> float:
    """Return the flop of a rank-one update by Givens rotations (GVL 6.5)."""
    return 3 * n**2


def _matrices(aval: Any) -> tuple[int, int, int]:
    """Return the number of matrices in an array, their rows and their columns."""
    *batch, rows, columns = aval.shape
    return math.prod(batch), rows, columns


def _square(formula: Callable[[int], float]) -> Callable[[JaxprEqn], float]:
    def rule(eqn: JaxprEqn) -> float:
        batch, _, n = _matrices(aval_of(eqn.invars[0]))
        return batch * formula(n)

    return rule


def _rectangular(formula: Callable[[int, int], float]) -> Callable[[JaxprEqn], float]:
    def rule(eqn: JaxprEqn) -> float:
        batch, m, n = _matrices(aval_of(eqn.invars[0]))
        return batch * formula(m, n)

    return rule


def _qr(eqn: JaxprEqn) -> float:
    batch, m, n = _matrices(aval_of(eqn.invars[0]))
    columns = aval_of(eqn.outvars[0]).shape[-1]
    return batch * (householder_qr(m, n) + product_of_reflectors(m, columns, min(m, n)))


def _householder_product(eqn: JaxprEqn) -> float:
    batch, m, n = _matrices(aval_of(eqn.invars[0]))
    return batch * product_of_reflectors(m, n, aval_of(eqn.invars[1]).shape[-1])


def _ormqr(eqn: JaxprEqn) -> float:
    batch, m, n = _matrices(aval_of(eqn.invars[2]))
    length, others = (m, n) if eqn.params["left"] else (n, m)
    return batch * reflections(length, others, aval_of(eqn.invars[1]).shape[-1])


def _eig(eqn: JaxprEqn) -> float:
    batch, _, n = _matrices(aval_of(eqn.invars[0]))
    sides = ("compute_left_eigenvectors", "compute_right_eigenvectors")
    return batch * eigen(n, vectors=any(eqn.params[side] for side in sides))


def _schur(eqn: JaxprEqn) -> float:
    batch, _, n = _matrices(aval_of(eqn.invars[0]))
    return batch * eigen(n, vectors=eqn.params["compute_schur_vectors"])


def _svd(eqn: JaxprEqn) -> float:
    batch, m, n = _matrices(aval_of(eqn.invars[0]))
    vectors = "full" if eqn.params["full_matrices"] else "thin"
    return batch * svd(m, n, vectors=vectors if eqn.params["compute_uv"] else "none")


def _triangular_solve(eqn: JaxprEqn) -> float:
    return triangular_solve(aval_of(eqn.invars[0]).shape[-1], aval_of(eqn.invars[1]).size)


def _tridiagonal_solve(eqn: JaxprEqn) -> float:
    batch, n, columns = _matrices(aval_of(eqn.invars[3]))
    return batch * tridiagonal_solve(n, columns)


def _symmetric_product(eqn: JaxprEqn) -> float:
    """Return the flop of `alpha A Aᵀ + beta C`, with a whole product, as JAX lowers it."""
    _, _, k = _matrices(aval_of(eqn.invars[0]))
    return 2 * aval_of(eqn.outvars[0]).size * (k + 1)


RULES: dict[str, Callable[[JaxprEqn], float]] = {
    "cholesky": _square(cholesky),
    "cholesky_update": _square(cholesky_update),
    "eig": _eig,
    # JAX computes the vectors even if only values are read.
    "eigh": _square(lambda n: symmetric_eigen(n, vectors=True)),
    "geqp3": _rectangular(householder_qr),
    "geqrf": _rectangular(householder_qr),
    "hessenberg": _square(hessenberg),
    "householder_product": _householder_product,
    "lu": _rectangular(lu),
    "ormqr": _ormqr,
    "qr": _qr,
    "schur": _schur,
    "svd": _svd,
    "symmetric_product": _symmetric_product,
    "triangular_solve": _triangular_solve,
    "tridiagonal": _square(tridiagonal),
    "tridiagonal_solve": _tridiagonal_solve,
}
