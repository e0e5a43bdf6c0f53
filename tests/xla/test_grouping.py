"""Groups cover a program once, and their program has its values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from gopt.program.program import trace_program
from gopt.xla import group, groups, materialised, merge_duplicates
from gopt.xla.grouping import groups_for_memory

pytestmark = pytest.mark.optimized

X = jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)


def net(x, w):
    """Branches, clones of cheap equations, a reduction, a view that is returned."""
    h = jnp.tanh(x @ w)
    scaled = h * 2.0 + 1.0
    left, right = scaled @ w.T, scaled.T @ x
    return left.sum(), right, (jnp.sin(left) / 3.0).reshape(-1), jnp.ones(4) + x[0]


ARGS = X, jnp.cos(jnp.arange(16.0)).reshape(4, 4)


def primitives(program, part):
    return [program.equations[index].primitive.name for index in part]


def check(program, parts, args):
    grouped = group(program, parts)
    assert len(grouped.equations) == len(parts)
    expected = jax.tree.leaves(program.as_function()(*args))
    for ours, theirs in zip(jax.tree.leaves(grouped.as_function()(*args)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_choice_of_what_is_written_gives_the_values_of_the_function(data):
    program = trace_program(net, *ARGS)
    count = len(program.equations)
    written = data.draw(st.sets(st.integers(0, count - 1)))
    parts = groups(program, written)
    roots = [part[-1] for part in parts]
    assert roots == sorted(set(roots))
    assert all(list(part) == sorted(set(part)) for part in parts)
    assert {index for part in parts for index in part} == set(range(count))
    check(program, parts, ARGS)


def test_cheap_equations_are_cloned_and_dear_ones_are_not():
    def fn(x, w):
        shared = jnp.sin(x @ w)
        return jnp.cos(shared), jnp.exp(shared)

    program = trace_program(fn, *ARGS)
    parts = [primitives(program, part) for part in groups(program, ())]
    assert parts == [["dot_general"], ["sin", "cos"], ["sin", "exp"]]


def test_a_buffer_that_is_filled_and_then_written_into_is_a_group():
    def fn(x):
        return jnp.zeros((5, 4)).at[jnp.array([1, 1, 3])].add(x), jnp.ones((3, 4)) + x

    program = trace_program(fn, X)
    parts = [primitives(program, part) for part in groups(program, ())]
    assert parts.count(["broadcast_in_dim"]) == 1
    assert ["broadcast_in_dim", "add"] in parts
    check(program, groups(program, ()), (X,))


def test_control_flow_and_several_results_are_groups_of_their_own():
    def fn(x):
        def step(carry, row):
            return carry + row, carry.sum()

        last, sums = lax.scan(step, jnp.zeros(4), x)
        values, _ = lax.top_k(x, 2)
        return lax.cond(sums[0] > 0, jnp.sin, jnp.cos, last), values * 2

    program = trace_program(fn, X)
    check(program, groups(program, ()), (X,))


@pytest.mark.parametrize(
    "fn", [lambda x: x, lambda x: 3.0, lambda x: (x, x + 1, jnp.arange(3)), lambda x: x.T]
)
def test_nasty_programs(fn):
    program = trace_program(fn, X)
    check(program, groups(program, range(len(program.equations))), (X,))
    check(program, groups(program, ()), (X,))


def test_xla_writes_the_results_of_products_and_of_the_program():
    program = merge_duplicates(trace_program(net, *ARGS))
    written = materialised(program)
    assert set(written) <= set(range(len(program.equations)))
    assert len(set(written)) == len(written)
    names = primitives(program, sorted(written))
    assert names.count("dot_general") == 3
    # XLA fuses one of `mul` and `add` into the other.
    assert len(written) < len(program.equations)


def test_a_group_that_reads_what_is_not_made_is_named():
    program = trace_program(lambda x: jnp.sin(jnp.cos(x)), X)
    with pytest.raises(ValueError, match=r"group 0 \(1,\) reads a float32\[3,4\]"):
        group(program, [(1,)])
    with pytest.raises(ValueError, match="output 0 is made by no group"):
        group(program, [(0,)])


def test_what_xla_writes_though_it_is_made_of_literals_is_a_group():
    def fn(x):
        noise = jax.random.normal(jax.random.key(0), (64, 64))
        return (x @ noise).sum(), (noise @ x).sum(), jnp.tanh(x) @ noise

    args = (jnp.ones((64, 64)),)
    program = merge_duplicates(trace_program(fn, *args))
    parts = groups(program, materialised(program))
    for name in ("random_bits", "erf_inv"):  # not again in each of the three readers
        assert sum(name in primitives(program, part) for part in parts) == 1
    check(program, parts, args)


def additions(fn, *args):
    """Returns the number of additions in each kernel that adds, for memory."""
    program = trace_program(fn, *args)
    written = [k for k, e in enumerate(program.equations) if e.primitive.name == "dot_general"]
    parts = groups_for_memory(program, written)
    check(program, parts, args)
    counts = [primitives(program, part).count("add") for part in parts]
    return sorted(count for count in counts if count)


W = jnp.cos(jnp.arange(16.0)).reshape(4, 4)


@pytest.mark.parametrize(("values", "expected"), [(3, [2]), (4, [1, 1, 1]), (6, [1, 1, 1, 1, 1])])
def test_a_kernel_for_memory_adds_few_values(values, expected):
    def fn(x):
        return functools.reduce(jnp.add, [(x * k) @ W for k in range(1, values + 1)])

    assert additions(fn, X) == expected


def test_what_is_small_or_an_argument_or_no_sum_is_in_one_kernel():
    def small(x):
        return sum((x * k @ W)[0, 0] for k in range(1, 6)) + jnp.ones((40, 40)).sum()

    def update(w, m, v, x):
        g = x @ W
        return w + 0.1 * (0.9 * m + 0.1 * g) / (jnp.sqrt(0.99 * v + 0.01 * g * g) + 1e-6)

    assert len(additions(small, X)) == 1
    assert additions(lambda a, b, c, d: a + b + c + d, X, X, X, X) == [3]
    assert additions(update, X, X, X, X) == [4]
