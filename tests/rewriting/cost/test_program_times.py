"""Whole programs are measured in a process of their own, which may fail or hang."""

import math
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.program.program import trace_program
from gopt.rewriting import Matcher, Terms, terms_of_program
from gopt.rewriting.cost import program_times
from gopt.systems.xrlflow import ProgramTimes, end_to_end
from tests.measure.row_files import add_row, stored_rows


def model(w, x):
    return jax.nn.relu((x @ w[0]) @ w[1])


def program(size=64, fn=model):
    shape = jax.ShapeDtypeStruct((size, size), jnp.float32)
    terms, traced = Terms(), trace_program(fn, [shape, shape], shape)
    return terms, terms_of_program(terms, traced, [True, True, False]), traced


def rewritten(terms, roots):
    """Returns the results of the programs that one rewrite makes."""
    matcher = Matcher(terms)
    found = [matcher.apply(roots, match) for match in matcher.matches(roots)]
    return [made for made in found if made is not None]


def endless(w, x):
    return jax.lax.while_loop(lambda x: x[0, 0] < jnp.inf, lambda x: jnp.minimum(x @ w[0], 1.0), x)


def die():
    os._exit(3)


@pytest.mark.slow
def test_a_program_is_measured_once_by_all(tmp_path):
    path = tmp_path / "programs.sqlite"
    terms, roots, traced = program()
    ours, theirs = ProgramTimes(path, rounds=2), ProgramTimes(path, rounds=2)
    try:
        seconds = ours.of(terms, roots, traced, (0,))
        assert 0 < seconds < 1 and ours.spent == 1
        # Another run, which has the file open, reads what was written since.
        other, others, again = program()
        assert end_to_end(theirs, other, again, (0,))(others) == seconds
        assert theirs.spent == 0
        large = program(512)
        assert ours.of(*large, (0,)) > 2 * seconds
        assert ProgramTimes(path, rounds=2).of(*large, (0,)) == ours.of(*large, (0,))
        assert len(stored_rows(path)) == 2
    finally:
        ours.close()
        theirs.close()
    with pytest.raises(ValueError, match="rounds = 2, expected 8"):
        ProgramTimes(path)


def test_beside_another_a_time_is_the_ratio_of_both(monkeypatch):
    terms, roots, traced = program()
    (after,) = {made for made in rewritten(terms, roots) if made != roots}
    times, asked = ProgramTimes(rounds=1), []

    class Answers:
        def start(self):
            pass

        def run(self, function, exported, *args, seconds):
            asked.append(len(exported))
            return [2.0] if len(exported) == 1 else [3.0, 4.0]

    class Fails(Answers):
        def run(self, *args, seconds):
            raise TimeoutError("no")

    monkeypatch.setattr(times, "_worker", Answers())
    taken = end_to_end(times, terms, traced, (0,), beside=roots)
    assert taken(after) == 2.0 * 3.0 / 4.0 and taken(roots) == 2.0
    assert asked == [1, 2] and times.spent == 2
    # What cannot be measured is no measure of others.
    monkeypatch.setattr(times, "_worker", Fails())
    other, others, again = program(8)
    (after,) = {made for made in rewritten(other, others) if made != others}
    assert times.of(other, others, again, (0,)) == math.inf
    monkeypatch.setattr(times, "_worker", Answers())
    assert times.of(other, after, again, (0,), beside=others) == 2.0


@pytest.mark.slow
def test_programs_are_timed_beside_one_that_is_exported_once(monkeypatch):
    terms, roots, traced = program(128)
    (after,) = {made for made in rewritten(terms, roots) if made != roots}
    squared = terms.add("mul", [roots[0], roots[0]])
    exported, times = [], ProgramTimes(rounds=2)
    original = program_times._exported

    def counted(written, program):
        exported.append(program)
        return original(written, program)

    monkeypatch.setattr(program_times, "_exported", counted)
    try:
        taken = end_to_end(times, terms, traced, (0,), beside=roots)
        found = [taken(each) for each in (after, (squared,), roots)]
        assert not times.failures and all(0 < each < 1 for each in found)
        assert len(exported) == 4  # each once, and what others are timed beside once more
    finally:
        times.close()


def test_what_others_are_timed_beside_is_compiled_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(program_times, "_call", lambda sent, seed: compiled.append((sent, seed)))
    monkeypatch.setattr(
        program_times, "seconds", lambda calls, repeats: dict.fromkeys(calls, repeats)
    )
    program_times._reference_call.cache_clear()
    for first in (b"one", b"two"):
        assert program_times._seconds_of([first, b"base"], 5, 7) == [5, 5]
    assert compiled == [(b"one", 7), (b"base", 7), (b"two", 7)]


@pytest.mark.slow
def test_what_hangs_or_dies_is_recorded_and_skipped(tmp_path):
    path = tmp_path / "programs.sqlite"
    times = ProgramTimes(path, rounds=1, patience=3.0)
    try:
        assert times.of(*program(fn=endless), (0,)) == math.inf
        assert list(times.failures.values()) == ["no answer within 3.0 s"]
        # The next has a new process, which is killed while it measures.
        assert times.of(*program(), (0,)) < 1
        process = times._worker._process
        threading.Timer(1.0, process.kill).start()
        assert times.of(*program(8, fn=endless), (0,)) == math.inf
        assert list(times.failures.values())[1:] == ["the worker process died with exit code -9"]
        # One that is killed while it waits is no fault of the next program.
        assert times.of(*program(24), (0,)) < 1
        times._worker._process.kill()
        times._worker._process.wait()
        assert times.of(*program(32), (0,)) < 1
        assert len(times.failures) == 2 and times.spent == 5
    finally:
        times.close()
    # Failures are not tried again, and said why.
    again = ProgramTimes(path, rounds=1, patience=3.0)
    assert again.of(*program(fn=endless), (0,)) == math.inf and again.spent == 0
    assert again.failures == times.failures
    assert next(iter(stored_rows(path).values()))["failure"] == "no answer within 3.0 s"
    with pytest.raises(ValueError, match=r"patience = 3.0, expected 120.0"):
        ProgramTimes(path, rounds=1)


@pytest.mark.slow
def test_what_never_starts_is_told_and_not_recorded(tmp_path):
    times = ProgramTimes(tmp_path / "programs.sqlite", rounds=1, start=die)
    with pytest.raises(
        RuntimeError, match="no worker process starts: the worker process died with exit code 3"
    ):
        times.of(*program(), (0,))
    assert not times.seconds and not stored_rows(tmp_path / "programs.sqlite")


@pytest.mark.slow
def test_an_answer_is_never_that_of_a_program_before(monkeypatch):
    times = ProgramTimes(rounds=1)
    try:
        assert times.of(*program(8), (0,)) < 1

        class Interrupted:
            def get(self, timeout):
                raise KeyboardInterrupt

        monkeypatch.setattr(times._worker, "_answers", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            times.of(*program(1500), (0,))
        assert times.of(*program(16), (0,)) < 1e-2
        assert len(times.seconds) == 2 and not times.failures
    finally:
        times.close()


@pytest.mark.slow
def test_programs_of_64_bits_are_measured():
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((8, 8), jnp.float64)
        terms, traced = Terms(), trace_program(model, [shape, shape], shape)
        roots, times = terms_of_program(terms, traced, [True, True, False]), ProgramTimes(rounds=1)
        try:
            assert times.of(terms, roots, traced, (0,)) < 1 and not times.failures
        finally:
            times.close()


@pytest.mark.slow
def test_after_a_failure_the_next_is_measured(monkeypatch):
    terms, roots, traced = program()
    after = next(made for made in rewritten(terms, roots) if made != roots)
    times = ProgramTimes(rounds=1)

    def fails(*args):
        raise RuntimeError("no such thing")

    try:
        with monkeypatch.context() as patch:
            patch.setattr("gopt.rewriting.cost.program_times._exported", fails)
            assert times.of(terms, roots, traced, (0,)) == math.inf
        assert list(times.failures.values()) == ["RuntimeError: no such thing"]
        # A process that was sent what is no program answers why, and goes on.
        with monkeypatch.context() as patch:
            patch.setattr("gopt.rewriting.cost.program_times._exported", lambda *_: b"nothing")
            assert times.of(*program(8), (0,)) == math.inf
        assert times.of(terms, after, traced, (0,), beside=roots) < 1
        assert times.spent == 3 and len(times.failures) == 2
    finally:
        times.close()


def test_bad_settings_and_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="rounds is 0"):
        ProgramTimes(rounds=0)
    with pytest.raises(ValueError, match="patience is nan"):
        ProgramTimes(patience=np.nan)
    path = tmp_path / "programs.sqlite"
    ProgramTimes(path)._add("a", 1.0)
    for other in ({"seed": 1}, {"rounds": 9}, {"patience": 5.0}):
        with pytest.raises(ValueError, match=next(iter(other))):
            ProgramTimes(path, **other)
    for number, bad in enumerate(['{"seconds": "x"}', '{"failure": 1.0}', "[]"]):
        path = tmp_path / f"{number}.sqlite"
        ProgramTimes(path)
        add_row(path, bad)
        with pytest.raises(ValueError, match=r"row 1 is .*: expected one of times of programs"):
            ProgramTimes(path)
