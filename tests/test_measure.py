"""Real memory and time of compiled functions."""

import jax
import jax.numpy as jnp
import pytest

from gopt.measure import memory, seconds

X = jnp.ones((64, 64))


def test_memory_adds_up():
    needs = memory(jax.jit(lambda x: (x @ x) @ (x.T @ x)).lower(X).compile())
    assert (needs.arguments, needs.outputs, needs.aliases) == (X.nbytes, X.nbytes, 0)
    assert needs.temporaries >= X.nbytes
    assert needs.total == needs.arguments + needs.beside == 2 * X.nbytes + needs.temporaries


def test_what_is_written_over_a_donated_argument_counts_once():
    compiled = jax.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile()
    assert memory(compiled).total == X.nbytes
    assert memory(compiled).beside == 0


def test_functions_are_timed_in_turn():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    found = seconds(functions, repeats=3)
    assert calls == ["a", "b"] * 4
    assert all(0 <= value < 1 for value in found.values())


def test_every_run_has_arguments_of_its_own():
    double = jax.jit(lambda x: x + x, donate_argnums=0)
    assert seconds({"double": double}, lambda: (X + 0,), repeats=3)["double"] >= 0


def test_longer_work_takes_longer():
    work = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, y: jnp.sin(y @ x), x))
    found = seconds({"none": lambda x: x, "work": work}, lambda: (X,), repeats=3)
    assert found["work"] > found["none"]


def test_repeats_are_checked():
    with pytest.raises(ValueError, match="repeats is 0"):
        seconds({}, repeats=0)
