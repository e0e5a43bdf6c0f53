"""Sums of products read them without dimensions of 1, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.program.program import trace_program
from gopt.xla import simplify, squeeze_sums
from tests.xla.passes.running import array, rewritten

pytestmark = pytest.mark.optimized


def squeezed(fn, *args):
    """Returns the names of the equations, of which each sum says what it reads."""
    program = rewritten(squeeze_sums, fn, *args)
    return [
        e.invars[0].aval.shape if e.primitive.name == "reduce_sum" else e.primitive.name
        for e in program.equations
    ]


@pytest.mark.parametrize(
    ("shape", "axis", "read"),
    [
        ((1, 4, 5), 2, (4, 5)),
        ((1, 4, 5), 1, (4, 5)),
        ((4, 1, 5), 2, (4, 5)),
        ((4, 1, 3, 5), 2, (4, 3, 5)),
        ((1, 3), 1, (3,)),
    ],
)
def test_a_sum_of_a_product_reads_it_without_dimensions_of_1(shape, axis, read):
    def fn(x, y):
        return jnp.sum(x * y, axis)

    expected = ["mul", "reshape", read, "reshape"]
    assert squeezed(fn, array(*shape), array(*shape)) == expected


@pytest.mark.parametrize(
    ("fn", "between"),
    [
        (lambda x, y: jnp.sum(-(x * y), 2), ["neg"]),
        (lambda x, y: jnp.sum((x * y).transpose(0, 2, 1), 2), ["transpose"]),
        (lambda x, y: jnp.sum(jax.lax.reduce_precision(x, 8, 7) * 2, 2), []),
        (
            lambda x, y: jnp.sum((x * y).astype(jnp.bfloat16).astype(jnp.float32), 2),
            ["convert_element_type", "convert_element_type"],
        ),
    ],
    ids=["negated", "transposed", "by a number", "rounded"],
)
def test_what_is_done_to_a_product_before_its_sum_stays(fn, between):
    names = squeezed(fn, array(1, 4, 5), array(1, 4, 5))
    assert [name for name in names if name not in ("mul", "reduce_precision")] == [
        *between,
        "reshape",
        (4, 5) if "transpose" not in between else (5, 4),
        "reshape",
    ]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jnp.sum(x + y, 2),
        lambda x, y: jnp.max(x * y, 2),
        lambda x, y: jnp.sum(x * y, 0),
        lambda x, y: jnp.sum(x[..., None] * y[..., None], 2),
        lambda x, y: jnp.sum(x * y, (0, 2)),
        lambda x, y: jnp.sum(x[0] * y[0], 1),
        lambda x, y: jnp.sum(x, 2) * y[:, :, 0],
        lambda x, y: jnp.sum(x * x, 2),
        lambda x, y: jnp.sum(jnp.int32(x) * jnp.int32(y), 2),
        lambda x, y: jnp.sum(jnp.exp(x * y), 2),
    ],
    ids=[
        *("a sum", "a maximum", "of one number", "one after it", "of two axes"),
        "no dimension of 1",
        *("of an input", "a square", "of integers", "of a function of a product"),
    ],
)
def test_all_else_stays(fn):
    x, y = array(1, 4, 5), array(1, 4, 5)
    program = trace_program(fn, x, y)
    assert squeeze_sums(program).equations == program.equations


def test_what_is_sharded_stays():
    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    where = jax.NamedSharding(mesh, jax.P(None, "a"))
    with jax.set_mesh(mesh):
        x = jax.device_put(array(1, 4, 5), where)
        program = trace_program(lambda x, y: jnp.sum(x * y, 2), x, x)
    assert squeeze_sums(program).equations == program.equations


def test_a_product_with_other_readers_is_read_by_them_as_it_was():
    def fn(x, y):
        z = x * y
        return jnp.sum(z, 2), jnp.sum(z, 1), z + 1

    names = squeezed(fn, array(1, 4, 5), array(1, 4, 5))
    assert names == ["mul", "reshape", (4, 5), "reshape", "reshape", (4, 5), "reshape", "add"]


def test_new_equations_are_where_the_sum_was():
    def fn(x, y):
        z = x * y
        with jax.named_scope("total"):
            return jnp.sum(z, 2)

    program = squeeze_sums(trace_program(fn, array(1, 4, 5), array(1, 4, 5)))
    scopes = [str(equation.source_info.name_stack) for equation in program.equations]
    assert scopes == ["", "total", "total", "total"]


def test_a_simplified_gradient_has_no_transpose():
    step, args = jax.grad(lambda x, w: jnp.sum(jnp.exp(x @ w)), 1), (array(1, 6, 5), array(5, 7))
    program = simplify(trace_program(step, *args))
    names = [equation.primitive.name for equation in program.equations]
    assert names == ["dot_general", "exp", "broadcast_in_dim", "mul", "dot_general"]
    np.testing.assert_allclose(program.as_function()(*args), step(*args), rtol=1e-5)


def test_two_sums_of_one_product_read_one_view_of_it_once_it_is_simplified():
    def fn(x, y):
        return jnp.sum(x * y, 2), jnp.sum(x * y, 1)

    program = simplify(trace_program(fn, array(1, 4, 5), array(1, 4, 5)))
    names = [e.primitive.name for e in program.equations]
    assert names == ["mul", "reshape", "reduce_sum", "reshape", "reduce_sum", "reshape"]
