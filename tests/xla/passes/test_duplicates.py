"""What is computed twice is computed once, and only that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

from gopt.program.program import trace_program
from gopt.xla import merge_duplicates

pytestmark = pytest.mark.optimized

X = jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)


def names(program):
    return [equation.primitive.name for equation in program.equations]


def merged(fn, *args):
    program = merge_duplicates(trace_program(fn, *args))
    for ours, theirs in zip(
        jax.tree.leaves(program.as_function()(*args)), jax.tree.leaves(fn(*args)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    return names(program)


def test_equations_that_do_the_same_are_merged_with_all_that_follows():
    def fn(x):
        return (jnp.sin(x) * 2.0).sum() + (jnp.sin(x) * 2.0).sum()

    assert merged(fn, X) == ["sin", "mul", "reduce_sum", "add"]


def test_an_output_that_was_merged_is_still_returned():
    assert merged(lambda x: (jnp.tanh(x), jnp.tanh(x)), X) == ["tanh"]


def test_operands_parameters_literals_and_types_tell_equations_apart():
    def fn(x, y):
        return x - y, y - x, x.sum(0), x.sum(1), x + 1.0, x + 2.0, x / 0.0, x / -0.0

    assert len(merged(fn, X, X[::-1])) == 8


def test_literals_of_another_type_are_others():
    def fn(x):
        return jax.lax.full((2,), 1), jax.lax.full((2,), 1.0), jax.lax.full((2,), True), x

    assert len(merged(fn, X)) == 3


def test_loops_with_bodies_of_their_own_stay_apart():
    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y), x)

    assert merged(lambda x: loop(x) + loop(x), X).count("scan") == 2


def test_what_is_drawn_twice_is_drawn_twice():
    program = trace_program(lambda: [jax.lax.rng_uniform(0.0, 1.0, (3,)) for _ in range(2)])
    assert names(merge_duplicates(program)).count("rng_uniform") == 2


def test_the_context_of_an_equation_tells_it_apart():
    def fn(key):
        with jax.threefry_partitionable(True):
            first = jax.random.bits(key, (5,))
        with jax.threefry_partitionable(False):
            return first, jax.random.bits(key, (5,))

    program = merge_duplicates(trace_program(fn, jax.random.key(0)))
    first, second = program.as_function()(jax.random.key(0))
    expected = fn(jax.random.key(0))
    np.testing.assert_array_equal(first, expected[0])
    np.testing.assert_array_equal(second, expected[1])
    assert (first != second).any()


def test_parameters_that_are_equal_but_not_the_same_tell_equations_apart():
    probe = Primitive("probe")
    probe.def_abstract_eval(lambda x, *, v: x)
    values = 1, True, 0.0, -0.0, (1,), (True,), 1
    program = trace_program(lambda x: [probe.bind(x, v=v) for v in values], X)
    assert len(merge_duplicates(program).equations) == len(values) - 1


def test_what_is_called_outside_is_called_as_often():
    def fn(x):
        return [jax.pure_callback(np.sin, x, x) for _ in range(2)]

    assert names(merge_duplicates(trace_program(fn, X))).count("pure_callback") == 2


def test_loops_that_draw_are_not_merged():
    def body(carry, _):
        return carry + jax.lax.rng_uniform(0.0, 1.0, ()), None

    def fn(x):
        return [jax.lax.scan(body, x, None, length=3)[0] for _ in range(2)]

    assert names(merge_duplicates(trace_program(fn, jnp.float32(0)))).count("scan") == 2
