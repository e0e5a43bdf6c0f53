"""Flop of decompositions against loops that count the operations of textbook algorithms."""

import itertools
import math

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from gopt.graph import linear_algebra_costs
from gopt.graph.op_costs import flops
from gopt.program.program import trace_program

N = 60  # formulas are leading terms: the loops agree to a few percent


def array(*shape, dtype="f4"):
    return jax.ShapeDtypeStruct(shape, dtype)


def flop_of(name, fn, *args):
    return sum(flops(e) for e in trace_program(fn, *args).equations if e.primitive.name == name)


def count_cholesky(n):
    # Column j: a product and a sum for each earlier column and row, then a division for each row.
    return sum((n - j) * (2 * j + 1) for j in range(n))


def count_lu(m, n):
    # Step k: the rows below are divided, then changed in all columns to the right.
    return sum((m - k - 1) * (1 + 2 * (n - k - 1)) for k in range(min(m, n)))


def count_reflector(m, n):
    # A dot product and an update of length m for each of n columns.
    return 4 * m * n


def count_qr(m, n):
    return sum(3 * (m - k) + count_reflector(m - k, n - k - 1) for k in range(min(m, n)))


def count_product_of_reflectors(m, n, k):
    # Backwards from the identity, so that reflector i changes columns i and later ones only.
    return sum(count_reflector(m - i, n - i) for i in range(k))


def count_reflections(m, n, k):
    return sum(count_reflector(m - i, n) for i in range(k))


def count_hessenberg(n):
    # Reflector k of length n - k - 1 from the left on n - k columns, from the right on n rows.
    return sum(
        count_reflector(n - k - 1, n - k) + count_reflector(n - k - 1, n) for k in range(n - 2)
    )


def count_tridiagonal(n):
    # A symmetric product with a vector, and an update of rank two of one triangle.
    return sum(4 * (n - k - 1) ** 2 for k in range(n - 2))


def count_triangular_solve(n, columns):
    return columns * sum(2 * i + 1 for i in range(n))


def count_tridiagonal_solve(n, columns):
    return sum(3 + 5 * columns for _ in range(n))


def count_cholesky_update(n):
    return sum(6 * (n - k) for k in range(n))  # a rotation of two numbers for each column


def householder_product(m, n, k):
    return lax.linalg.householder_product, (array(m, n), array(k))


SOLVE = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True)  # noqa: E731
FULL = lambda a: lax.linalg.qr(a, full_matrices=True)  # noqa: E731
THIN = lambda a: lax.linalg.qr(a, full_matrices=False)  # noqa: E731
M = 90

CASES = [
    ("cholesky", jnp.linalg.cholesky, (array(N, N),), count_cholesky(N)),
    ("lu", lax.linalg.lu, (array(N, N),), count_lu(N, N)),
    ("lu", lax.linalg.lu, (array(M, N),), count_lu(M, N)),
    ("lu", lax.linalg.lu, (array(N, M),), count_lu(N, M)),
    ("qr", THIN, (array(M, N),), count_qr(M, N) + count_product_of_reflectors(M, N, N)),
    ("qr", THIN, (array(N, M),), count_qr(N, M) + count_product_of_reflectors(N, N, N)),
    ("qr", FULL, (array(M, N),), count_qr(M, N) + count_product_of_reflectors(M, M, N)),
    ("qr", THIN, (array(N, N),), 8 * N**3 / 3),
    ("householder_product", *householder_product(M, N, N), count_product_of_reflectors(M, N, N)),
    ("householder_product", *householder_product(M, N, 20), count_product_of_reflectors(M, N, 20)),
    ("hessenberg", lax.linalg.hessenberg, (array(N, N),), count_hessenberg(N)),
    ("tridiagonal", lax.linalg.tridiagonal, (array(N, N),), count_tridiagonal(N)),
    ("triangular_solve", SOLVE, (array(N, N), array(N, 7)), count_triangular_solve(N, 7)),
    (
        "triangular_solve",
        lax.linalg.triangular_solve,
        (array(N, N), array(7, N)),
        count_triangular_solve(N, 7),
    ),
    (
        "tridiagonal_solve",
        lax.linalg.tridiagonal_solve,
        (array(N), array(N), array(N), array(N, 7)),
        count_tridiagonal_solve(N, 7),
    ),
    (
        "cholesky_update",
        lax.linalg.cholesky_update,
        (array(N, N), array(N)),
        count_cholesky_update(N),
    ),
    # Iterative algorithms: constants of Golub and Van Loan.
    ("eigh", jnp.linalg.eigh, (array(N, N),), 9 * N**3),
    ("eigh", jnp.linalg.eigvalsh, (array(N, N),), 9 * N**3),
    ("eig", jnp.linalg.eig, (array(N, N),), 25 * N**3),
    ("eig", jnp.linalg.eigvals, (array(N, N),), 10 * N**3),
    ("schur", jax.scipy.linalg.schur, (array(N, N),), 25 * N**3),
    ("svd", jnp.linalg.svdvals, (array(N, N),), 8 * N**3 / 3),
    ("svd", jnp.linalg.svdvals, (array(N, M),), 4 * M * N**2 - 4 * N**3 / 3),
    ("svd", jnp.linalg.svd, (array(M, N),), 4 * M**2 * N + 8 * M * N**2 + 9 * N**3),
    (
        "svd",
        lambda a: jnp.linalg.svd(a, full_matrices=False),
        (array(M, N),),
        14 * M * N**2 + 8 * N**3,
    ),
]


@pytest.mark.parametrize(("name", "fn", "args", "count"), CASES)
def test_agrees_with_textbook(name, fn, args, count):
    assert flop_of(name, fn, *args) == pytest.approx(count, rel=0.06)


@pytest.mark.parametrize(
    ("name", "fn", "args", "count"),
    [case for case in CASES if case[0] != "cholesky_update"],  # JAX has no batched one
)
def test_batches_multiply(name, fn, args, count):
    batched = [array(2, 3, *x.shape) for x in args]
    one = flop_of(name, fn, *args)
    assert flop_of(name, jax.vmap(jax.vmap(fn)), *batched) == pytest.approx(6 * one, rel=1e-4)
    assert flop_of(name, jax.vmap(fn), *[array(0, *x.shape) for x in args]) == 0


@pytest.mark.parametrize(("name", "fn", "args", "count"), CASES)
def test_grows_with_the_matrix(name, fn, args, count):
    doubled = [array(*(2 * size for size in x.shape)) for x in args]
    growth = flop_of(name, fn, *doubled) / flop_of(name, fn, *args)
    order = 2 if name in ("tridiagonal_solve", "cholesky_update") else 3
    assert growth == pytest.approx(2**order, rel=0.05)


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        *itertools.product(
            [jnp.linalg.qr, jnp.linalg.svd, lax.linalg.lu], [(0, 0), (0, 3), (3, 0)]
        ),
        *itertools.product([jnp.linalg.cholesky, jnp.linalg.eigh, jnp.linalg.eig], [(0, 0)]),
    ],
)
def test_empty_matrices_cost_nothing(fn, shape):
    linear_algebra = linear_algebra_costs.RULES
    for eqn in trace_program(fn, array(*shape)).equations:
        if eqn.primitive.name in linear_algebra:
            assert math.isfinite(flops(eqn)) and flops(eqn) >= 0


def test_counts_are_whole_numbers():
    assert flop_of("cholesky", jnp.linalg.cholesky, array(10, 10)) == 333


def test_linear_solve_counts_its_factor_and_its_substitutions():
    from gopt.graph.tracing import trace

    graph = trace(jnp.linalg.solve, array(N, N), array(N, 5)).graph
    assert graph.flops.sum() == pytest.approx(count_lu(N, N) + 2 * N**2 * 5, rel=0.1)
