"""Real memory and time of compiled functions."""

import platform
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.measure import timing
from gopt.measure.timing import Times, memory, seconds, time_interleaved

X = jnp.ones((64, 64))


def test_memory_adds_up():
    needs = memory(jax.jit(lambda x: (x @ x) @ (x.T @ x)).lower(X).compile())
    assert (needs.arguments, needs.outputs, needs.aliases) == (X.nbytes, X.nbytes, 0)
    assert needs.temporaries >= X.nbytes
    assert (
        needs.total == needs.arguments + needs.without_arguments == 2 * X.nbytes + needs.temporaries
    )


def test_what_is_written_over_a_donated_argument_counts_once():
    compiled = jax.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile()
    assert memory(compiled).total == X.nbytes
    assert memory(compiled).without_arguments == 0


def test_functions_are_timed_in_interleaved_rounds():
    calls = []

    def function(name):
        time.sleep(0.06)
        calls.append(name)

    found = seconds({name: partial(function, name) for name in "ab"}, repeats=3)
    assert calls == [*"aabb", *"ab" * 3]
    assert all(0 <= value < 1 for value in found.values())


def test_rounds_tell_time_of_the_process_and_on_the_wall():
    found = time_interleaved(
        {"sleeps": lambda: time.sleep(0.06), "works": lambda: X @ X}, repeats=3
    )
    assert [np.shape(times) for times in found.values()] == [(2, 3)] * 2
    process, wall = found["sleeps"]
    assert (process < 0.03).all() and (wall > 0.05).all()
    assert (found["works"].process > 0).all()


@pytest.mark.parametrize(("backend", "least"), [("cpu", 1), ("gpu", 3)])
def test_the_least_is_by_the_process_on_a_cpu_and_on_the_wall_elsewhere(
    monkeypatch, backend, least
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    times = Times(np.array([2.0, 1.0]), np.array([3.0, 4.0]))
    monkeypatch.setattr(timing, "time_interleaved", lambda *_, **__: {"f": times})
    assert seconds({}) == {"f": least}


def test_short_functions_are_called_often_in_each_round():
    calls = []
    seconds({"short": lambda: calls.append(0)}, repeats=1)
    assert len(calls) > 1000


def test_every_run_has_arguments_of_its_own():
    double = jax.jit(lambda x: x + x, donate_argnums=0)
    assert "double" in seconds({"double": double}, lambda: (X + 0,), repeats=3)


def test_longer_work_takes_longer():
    work = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, y: jnp.sin(y @ x), x))
    found = seconds({"none": lambda x: x, "work": work}, lambda: (X,), repeats=3)
    assert found["work"] > found["none"]


def test_the_processor_has_a_name(monkeypatch):
    cpuinfo = "processor : 0\nmodel name\t: Some CPU @ 2: fast\nmodel name\t: another\n"
    monkeypatch.setattr(Path, "exists", lambda _: True)
    monkeypatch.setattr(Path, "read_text", lambda path: {"/proc/cpuinfo": cpuinfo}[str(path)])
    assert timing.processor() == "Some CPU @ 2: fast"
    monkeypatch.setattr(Path, "exists", lambda _: False)
    monkeypatch.setattr(platform, "processor", lambda: "x86_64")
    assert timing.processor() == "x86_64"


def test_repeats_are_checked():
    with pytest.raises(ValueError, match="repeats is 0"):
        seconds({}, repeats=0)


def test_arguments_made_for_a_round_fit_in_memory(monkeypatch):
    made = []
    monkeypatch.setattr(timing, "_MADE", 10 * 4096)

    def arguments():
        made.append(jnp.zeros(1024))
        return (made[-1],)

    timing.time_interleaved({"f": lambda x: x}, arguments, repeats=2)
    assert len(made) == 2 + 2 + 2 * 10  # two to look at, two that are not counted, two rounds
    made.clear()
    shared = jnp.zeros(1024)
    timing.time_interleaved({"f": lambda x: x}, lambda: (made.append(0) or shared,), repeats=1)
    assert len(made) > 100


@pytest.mark.parametrize("repeats", [2.5, "3", None])
def test_rounds_are_whole_numbers(repeats):
    with pytest.raises(ValueError, match=r"repeats is .*: expected a whole number"):
        timing.check_repeats(repeats)
