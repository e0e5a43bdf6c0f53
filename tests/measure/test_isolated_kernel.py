"""Kernels as programs of their own."""

import jax
import jax.numpy as jnp
import pytest

from gopt.measure import isolated_kernel, timing
from gopt.measure.equality import random_arguments
from gopt.program.program import trace_program
from gopt.xla import group

X = jnp.ones((64, 64))


def kernels(fn, *args):
    """Each op of a function."""
    program = trace_program(fn, *args)
    return group(program, [(index,) for index in range(len(program.equations))]).equations


def test_kernels_share_arrays_and_none_reads_one_twice():
    values = {}
    each = kernels(lambda x, y: x * y + jnp.sin(x), X, X)
    read = [
        arrays
        for e in each
        for arrays in isolated_kernel.copies(e, isolated_kernel.Cold(), values)[1]
    ]
    assert sorted(map(len, read)) == [1, 2, 2]
    assert all(len(set(map(id, arrays))) == len(arrays) for arrays in read)
    first, second = values.values()
    assert (first != second).any()


def test_copies_compute_what_the_kernel_does():
    (equation,) = kernels(jnp.subtract, X, X)
    function, _ = isolated_kernel.copies(equation, isolated_kernel.Cold(), {})
    assert function(5 * X, 2 * X) == 3 * isolated_kernel.COPIES


@pytest.mark.parametrize(("fn", "op"), [(jnp.tanh, "tanh("), (lambda x: x @ x, "dot(")])
def test_xla_leaves_all_copies(fn, op):
    """Also of a product, which is no call of its own."""
    (equation,) = kernels(fn, X)
    function, (arguments,) = isolated_kernel.copies(equation, isolated_kernel.Cold(), {})
    assert function.lower(*arguments).compile().as_text().count(op) == isolated_kernel.COPIES


def test_what_is_shown_depends_on_all_results():
    results = [jnp.full((2, 3), 2.0), jnp.arange(3) + 1j, jnp.zeros((0, 2)), jnp.array(True)]
    assert isolated_kernel.shown(results) == 3
    assert isolated_kernel.shown([]) == 0
    keys = jax.random.split(jax.random.key(3), 2)
    assert isolated_kernel.shown([keys]) == float(jax.random.key_data(keys).ravel()[0])


def test_copies_share_a_buffer():
    (equation,) = kernels(jnp.tanh, X)
    function, (arguments,) = isolated_kernel.copies(equation, isolated_kernel.Cold(), {})
    temporaries = timing.memory(function.lower(*arguments).compile()).temporaries
    assert X.nbytes <= temporaries < 1.5 * X.nbytes


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_in_the_place_of_keys_there_are_keys_of_the_same_kind(impl):
    dtype = jax.random.key(0, impl=impl).dtype
    for shape in ((), (3,), (2, 0)):
        found = random_arguments(jax.ShapeDtypeStruct(shape, dtype), for_timing=True)
        assert (found.shape, found.dtype) == (shape, dtype)


def test_numbers_are_positive_and_predicates_true():
    shape = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    assert (random_arguments(shape, for_timing=True) > 0).all()
    assert random_arguments(jax.ShapeDtypeStruct((3, 4), bool), for_timing=True).all()
