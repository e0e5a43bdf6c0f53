"""Sums of products read them without dimensions of 1, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.kernels import simplify, squeeze_sums
from gopt.program import trace_program

RNG = np.random.default_rng(0)


def array(*shape):
    return jnp.asarray(RNG.standard_normal(shape, np.float32))


def squeezed(fn, *args):
    """Returns the names of the equations, of which each sum says what it reads."""
    program = squeeze_sums(trace_program(fn, *args))
    for ours, theirs in zip(
        jax.tree.leaves(program.as_function()(*args)), jax.tree.leaves(fn(*args)), strict=True
    ):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    return [
        e.invars[0].aval.shape if e.primitive.name == "reduce_sum" else e.primitive.name
        for e in program.equations
    ]


@pytest.mark.parametrize(
    ("shape", "axes", "read", "is_reshaped"),
    [
        ((1, 4, 5), 2, (4, 5), True),
        ((1, 4, 5), 1, (4, 5), True),
        ((1, 4, 5), (0, 2), (4, 5), False),
        ((4, 1, 5), 2, (4, 5), True),
        ((4, 1, 5), (0, 1, 2), (4, 5), False),
        ((1, 4, 5, 1), (1, 3), (4, 5), True),
        ((1, 3, 1), 1, (3,), True),
    ],
)
def test_a_sum_of_a_product_reads_it_without_dimensions_of_1(shape, axes, read, is_reshaped):
    def fn(x, y):
        return jnp.sum(x * y, axes)

    expected = ["mul", "reshape", read, *["reshape"] * is_reshaped]
    assert squeezed(fn, array(*shape), array(*shape)) == expected


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jnp.sum(x + y, 2),
        lambda x, y: jnp.max(x * y, 2),
        lambda x, y: jnp.sum(x * y, 0),
        lambda x, y: jnp.sum((x * y)[0], 1),
        lambda x, y: jnp.sum(x, 2) * y[:, :, 0],
    ],
    ids=["sum of a sum", "maximum", "of one number", "no dimension of 1", "of an input"],
)
def test_all_else_stays(fn):
    x, y = array(1, 4, 5), array(1, 4, 5)
    program = trace_program(fn, x, y)
    assert squeeze_sums(program).equations == program.equations


def test_a_product_with_other_readers_is_read_by_them_as_it_was():
    def fn(x, y):
        z = x * y
        return jnp.sum(z, 2), jnp.sum(z, 1), z + 1

    names = squeezed(fn, array(1, 4, 5), array(1, 4, 5))
    assert names == ["mul", "reshape", (4, 5), "reshape", "reshape", (4, 5), "reshape", "add"]


def test_simplified_programs_have_the_same_values_and_gradients_of_models_do_too():
    def fn(x, w):
        y = jnp.exp(x @ w)
        return jnp.mean((y / jnp.sum(y, -1, keepdims=True)) ** 2)

    step, args = jax.value_and_grad(fn, (0, 1)), (array(1, 6, 5), array(5, 7))
    program = simplify(trace_program(step, *args))
    assert len(program.equations) < len(trace_program(step, *args).equations) + 6
    for ours, theirs in zip(
        jax.tree.leaves(program.as_function()(*args)), jax.tree.leaves(step(*args)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
