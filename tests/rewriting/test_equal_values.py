"""Values are compared on given arguments first, then on drawn ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gopt
from gopt.measure import drawn_values
from gopt.program.program import trace_program
from gopt.rewriting.equal_values import compare

X = jnp.linspace(0.5, 1, 16).reshape(4, 4)


def power(n, x):
    """Never ends for odd numbers."""
    return lax.while_loop(lambda s: s[0] != 0, lambda s: (s[0] - 2, s[1] @ x), (n, x))[1]


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(drawn_values, "LIMIT", 2.0)


def test_given_arguments_come_first_and_drawn_integers_are_near_them():
    tokens, count = jnp.array([[30, 40], [50, 60]]), jnp.int32(7)
    args = tokens, count, 5, X
    fn = lambda *args: args  # noqa: E731
    found = compare({"a": fn}, args, trace_program(fn, *args), seed=0)
    first, *drawn = found.values["a"]
    for ours, theirs in zip(first, args, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(drawn) == 2 and found.note == ""
    assert any((values[0] != tokens).any() for values in drawn)
    for values in drawn:
        assert np.isin(values[0], [30, 31, 40, 41, 50, 51, 60, 61]).all()
        assert values[1] in (7, 8) and values[2] == 5
        assert (values[3] != X).any()


@pytest.mark.slow
def test_a_loop_that_never_ends_on_drawn_arguments_is_rewritten(short):
    fn = lambda n, x: power(n, x) + x @ x @ x  # noqa: E731
    result = gopt.rewrite(fn, jnp.int32(10), X, repeats=1, seed=3)
    assert "compared on the given arguments alone" in result.report.values_note
    assert "does not end on drawn arguments within 2 s" in str(result)
    assert result.report.difference <= result.report.tolerance
    np.testing.assert_allclose(result.apply()(jnp.int32(10), X), fn(10, X), rtol=1e-5)


def test_a_loop_that_ends_is_compared_on_drawn_arguments_too():
    fn = lambda n, x: lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 2, s[1] @ x), (n, x))[1]  # noqa: E731
    args = jnp.int32(10), X
    program = trace_program(fn, *args)
    found = compare({"fn": fn, "program": program.as_function()}, args, program, seed=0)
    assert found.note == "" and len(found.values["fn"]) == 3
    for ours, theirs in zip(found.values["program"], found.values["fn"], strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)


@pytest.mark.slow
def test_shapes_need_drawn_arguments(short):
    shapes = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((4, 4), jnp.float32)
    for verb, options in ((gopt.rewrite, {}), (gopt.fuse, {"evaluations": 2})):
        with pytest.raises(ValueError, match=r"shapes are given: expected arrays; .* within 2 s"):
            verb(lambda n, x: power(2 * n + 1, x), *shapes, repeats=1, **options)
