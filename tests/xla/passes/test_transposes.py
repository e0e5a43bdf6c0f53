"""Products that are transposed are products of the exchanged operands, and nothing else is."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.lax import DotAlgorithm, DotAlgorithmPreset, Precision

from gopt.program.program import trace_program
from gopt.xla import fold_transposes
from tests.xla.passes.running import array, rewritten

pytestmark = pytest.mark.optimized

LOW, HIGH = Precision.DEFAULT, Precision.HIGHEST


def folded(fn, *args):
    program = rewritten(fold_transposes, fn, *args)
    return [equation.primitive.name for equation in program.equations]


def contract(contracted, batch=((), ()), **params):
    return lambda x, y: jax.lax.dot_general(x, y, (contracted, batch), **params)


@pytest.mark.parametrize(
    ("product", "x", "y", "permutation"),
    [
        (contract(((1,), (0,))), (2, 3), (3, 4), (1, 0)),
        (contract(((0,), (0,))), (3, 2), (3, 4), (1, 0)),
        (contract(((0, 1), (0, 1))), (3, 4, 2), (3, 4, 5), (1, 0)),
        (contract(((2,), (1,))), (2, 5, 3), (4, 3), (2, 0, 1)),
        (contract(((2,), (1,)), ((0,), (0,))), (6, 2, 3), (6, 3, 4), (0, 2, 1)),
        (contract(((2,), (0,)), ((0,), (1,))), (6, 2, 3), (3, 6, 4), (0, 2, 1)),
        (contract(((2,), (1,)), ((0, 3), (2, 0))), (2, 5, 3, 6), (6, 3, 2, 4), (0, 1, 3, 2)),
        (contract(((1,), (0,)), precision=("default", "highest")), (2, 3), (3, 4), (1, 0)),
        (contract(((1,), (0,)), preferred_element_type=jnp.float32), (2, 3), (3, 4), (1, 0)),
    ],
)
def test_an_exchange_of_free_axes_is_an_exchange_of_operands(product, x, y, permutation):
    def fn(x, y):
        return jnp.transpose(product(x, y), permutation) * 2

    assert folded(fn, array(*x), array(*y)) == ["dot_general", "mul"]


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ((LOW, HIGH), (HIGH, LOW)),
        (HIGH, (HIGH, HIGH)),
        (
            DotAlgorithm(jnp.bfloat16, jnp.float16, jnp.float32, 2, 3, 6, True),
            DotAlgorithm(jnp.float16, jnp.bfloat16, jnp.float32, 3, 2, 6, True),
        ),
        (DotAlgorithmPreset.BF16_BF16_F32_X3, DotAlgorithmPreset.BF16_BF16_F32_X3),
    ],
)
def test_the_precision_of_an_operand_goes_with_it(precision, expected):
    product = contract(((1,), (0,)), precision=precision)
    program = trace_program(lambda x, y: product(x, y).T, array(2, 3), array(3, 4))
    (folded,) = fold_transposes(program).equations
    assert folded.params["precision"] == expected
    assert folded.invars == program.equations[0].invars[::-1]


@pytest.mark.parametrize(
    "params",
    [
        {"precision": (1, 2)},
        {"precision": ((LOW, HIGH), LOW)},
        {"precision": "best"},
        {"out_sharding": jax.P("rows", None)},
    ],
)
def test_a_product_that_says_more_than_is_known_stays(params):
    program = trace_program(lambda x, y: (x @ y).T, array(2, 3), array(3, 4))
    product, transpose = program.equations
    product = product.replace(params={**product.params, **params})
    program = replace(program, equations=(product, transpose))
    assert fold_transposes(program).equations == program.equations


def test_gradients_of_weights_need_no_transpose():
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w))

    names = folded(jax.grad(loss), array(3, 4), array(5, 3))
    assert "transpose" not in names and names.count("dot_general") == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jnp.transpose(jnp.einsum("abk,kc->abc", x, y), (1, 0, 2)),  # of one operand
        lambda x, y: (
            jnp.transpose(p := jnp.einsum("abk,kc->abc", x, y), (2, 0, 1)),
            p,
        ),  # returned
        lambda x, y: jnp.transpose(p := jnp.einsum("abk,kc->abc", x, y), (2, 0, 1)) + p.sum(),
    ],
)
def test_other_transposes_stay(fn):
    assert folded(fn, array(2, 3, 4), array(4, 5)).count("transpose") == 1


def test_what_is_transposed_twice_is_folded_once():
    names = folded(lambda x, y: (x @ y).T.T, array(2, 3), array(3, 4))
    assert names.count("dot_general") == 1


def test_a_transpose_of_an_input_stays():
    assert folded(lambda x: x.T + 1, array(2, 3)) == ["transpose", "add"]
