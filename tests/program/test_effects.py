"""Debug prints are dropped on request; other side effects are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import gopt
from gopt.program.effects import drop
from gopt.program.program import trace_program

pytestmark = pytest.mark.small

X = jnp.ones((2, 4))


def verbose(x):
    jax.debug.print("x {}", x)

    def body(carry, row):
        jax.debug.callback(print, carry, ordered=True)
        return carry + row, carry

    def said(x):
        jax.debug.print("inside")
        return x

    x = lax.cond(x.sum() > 0, said, jnp.negative, x)
    x = lax.while_loop(lambda x: x.sum() < 20, lambda x: said(x) + 1, x)
    return jax.jit(lambda x: lax.scan(body, x[0], said(x)))(x)


def test_debug_prints_are_dropped_wherever_they_are(capfd):
    silent = drop(verbose, "debug")
    closed = jax.make_jaxpr(silent)(X)
    assert not closed.effects and "debug" not in str(closed)
    expected = verbose(X)
    jax.effects_barrier()
    assert "inside" in capfd.readouterr().out
    for fn in (silent, jax.jit(silent), trace_program(silent, X).as_function()):
        jax.tree.map(np.testing.assert_array_equal, fn(X), expected)
    jax.effects_barrier()
    assert capfd.readouterr().out == ""


def test_other_effects_stay():
    def fn(x):
        jax.experimental.io_callback(print, None, x, ordered=True)
        jax.debug.print("x")
        return x

    with pytest.raises(ValueError, match="io_callback has side effects"):
        trace_program(drop(fn, "debug"), X)


def test_what_is_not_asked_for_is_not_dropped():
    assert drop(verbose, None) is verbose
    with pytest.raises(ValueError, match="drop_effects is 'all': expected 'debug' or None"):
        drop(verbose, "all")
    with pytest.raises(ValueError, match="drop_effects='debug' drops debug prints"):
        trace_program(verbose, X)


def test_donations_stay():
    def fn(x, y):
        jax.debug.print("x")
        return x + y

    silent = drop(jax.jit(fn, donate_argnums=0), "debug")
    assert trace_program(silent, X, X).donated == (True, False)


@pytest.mark.slow
def test_the_verbs_and_their_files_drop_debug_prints(tmp_path):
    quick = {gopt.schedule: {"evaluations": 3}, gopt.fuse: {"evaluations": 2, "repeats": 1}}
    expected = verbose(X)
    for verb in (gopt.schedule, gopt.fuse, gopt.rewrite):
        result = verb(verbose, X, drop_effects="debug", **quick.get(verb, {"repeats": 1}))
        result.save(tmp_path / "plan.json")
        applied = gopt.load(tmp_path / "plan.json").apply(verbose, X, drop_effects="debug")
        for fn in (result.apply(), applied):
            jax.tree.map(np.testing.assert_array_equal, fn(X), expected)
    assert "debug" not in str(gopt.trace(verbose, X, drop_effects="debug").program)
