"""Functions that may run for ever are run in a process of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gopt.measure import drawn_values
from gopt.measure.drawn_values import DrawnArgumentsError, values_apart
from gopt.program.equations import may_not_end
from gopt.program.program import trace_program

X = jnp.arange(6.0).reshape(2, 3)


def halve(n, x):
    """Never ends for odd numbers."""
    return lax.while_loop(lambda s: s[0] != 0, lambda s: (s[0] - 2, 2 * s[1]), (n, x))[1]


def test_loops_of_unknown_length_may_not_end():
    assert may_not_end(trace_program(halve, 2, X).equations)
    assert may_not_end(
        trace_program(jax.jit(lambda n, x: lax.map(lambda y: halve(n, y), x)), 2, X).equations
    )
    scan = trace_program(lambda x: lax.fori_loop(0, 3, lambda _, x: x * 2, x), X)
    assert not may_not_end(scan.equations)


def test_values_are_those_of_the_functions():
    def fn(key, n, each):
        drawn = jax.random.uniform(key, (3,), each["x"].dtype)
        return {"key": jax.random.split(key)[0], "x": halve(n, each["x"] + drawn), "n": n + 1}

    args = jax.random.key(7), jnp.int32(4), {"x": X.astype(jnp.bfloat16)}
    other = jax.random.key(8), jnp.int32(2), {"x": -X.astype(jnp.bfloat16)}
    program = trace_program(fn, *args)
    found = values_apart([fn, lambda *args: fn(*args)["n"]], program, [args, other])
    for k, given in enumerate((args, other)):
        expected = fn(*given)
        ours = jax.tree.unflatten(program.out_tree, found[0][k])
        np.testing.assert_array_equal(ours["key"], jax.random.key_data(expected["key"]))
        np.testing.assert_array_equal(ours["x"], expected["x"])
        assert ours["x"].dtype == jnp.bfloat16
        assert found[1][k] == [expected["n"]]


@pytest.mark.slow
def test_what_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(drawn_values, "LIMIT", 2.0)
    args = jnp.int32(3), X
    with pytest.raises(DrawnArgumentsError, match="does not end on drawn arguments within 2 s"):
        values_apart([halve], trace_program(halve, *args), [args])


def test_what_cannot_be_exported_is_said():
    def fn(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(DrawnArgumentsError, match="cannot be exported"):
        values_apart([fn], trace_program(fn, X), [(X,)])
