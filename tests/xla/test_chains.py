"""Chains of kernels cover a program, and nothing that could run elsewhere is in them."""

import jax.numpy as jnp
import numpy as np
import pytest

from gopt.program.program import trace_program
from gopt.xla import chains, group, groups

pytestmark = pytest.mark.optimized

X = jnp.linspace(-1.0, 1.0, 16).reshape(4, 4)


def parts_of(fn, *args):
    program = trace_program(fn, *args)
    program = group(program, groups(program, range(len(program.equations))))
    parts = chains(program)
    assert sorted(index for part in parts for index in part) == list(range(len(program.equations)))
    value = group(program, parts).as_function()(*args)
    np.testing.assert_array_equal(np.asarray(value), np.asarray(fn(*args)))
    return [[program.equations[index].primitive.name for index in part] for part in parts]


def test_what_each_alone_reads_of_the_one_before_is_a_chain():
    assert parts_of(lambda x, w: jnp.sin(jnp.tanh(x @ w) @ w), X, X) == [
        ["dot_general", "tanh", "dot_general", "sin"]
    ]


@pytest.mark.parametrize(
    ("fn", "parts"),
    [
        (lambda x: jnp.sin(y := x @ x) @ y, 3),  # two readers of the product, two reads of the last
        (lambda x: jnp.concatenate([jnp.sin(x), jnp.cos(x)]), 3),  # two reads
        (lambda x: jnp.sin(jnp.concatenate([x @ x, x])), 2),  # makes more than it reads
    ],
)
def test_others_are_on_their_own(fn, parts):
    assert len(parts_of(fn, X)) == parts


def test_outputs_end_chains():
    program = trace_program(lambda x: (y := jnp.sin(x), jnp.cos(y)), X)
    assert chains(program) == ((0,), (1,))
