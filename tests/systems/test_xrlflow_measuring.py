"""Whole programs are measured in a process of their own, which may fail or hang."""

import json
import math
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.program import trace_program
from gopt.rewriting import Matcher, Terms, read
from gopt.systems.xrlflow import ProgramTimes, end_to_end


def model(w, x):
    return jax.nn.relu((x @ w[0]) @ w[1])


def program(size=64):
    shape = jax.ShapeDtypeStruct((size, size), jnp.float32)
    terms, traced = Terms(), trace_program(model, [shape, shape], shape)
    return terms, read(terms, traced, [True, True, False]), traced


def hang():
    time.sleep(60)


def die():
    os._exit(3)


def test_a_program_is_measured_once_by_all(tmp_path):
    path = tmp_path / "programs.jsonl"
    terms, roots, traced = program()
    ours, theirs = ProgramTimes(path, turns=2), ProgramTimes(path, turns=2)
    try:
        seconds = ours.of(terms, roots, traced, (0,))
        assert 0 < seconds < 1 and ours.spent == 1
        # Another run, which has the file open, reads what was written since.
        other, others, again = program()
        assert end_to_end(theirs, other, again, (0,))(others) == seconds
        assert theirs.spent == 0
        large = program(512)
        assert ours.of(*large, (0,)) > 2 * seconds
        assert ProgramTimes(path, turns=2).of(*large, (0,)) == ours.of(*large, (0,))
        assert len(path.read_text().splitlines()) == 3
    finally:
        ours.close()
        theirs.close()
    with pytest.raises(ValueError, match="turns = 2, expected 6"):
        ProgramTimes(path)


@pytest.mark.parametrize(
    ("start", "why"), [(hang, "no answer within"), (die, "the process that measured it died")]
)
def test_what_hangs_or_dies_is_recorded_and_skipped(tmp_path, monkeypatch, start, why):
    monkeypatch.setattr("gopt.systems.xrlflow.measuring._STARTING", 3.0)
    path = tmp_path / "programs.jsonl"
    terms, roots, traced = program()
    times = ProgramTimes(path, turns=1, patience=2.0, start=start)
    assert times.of(terms, roots, traced, (0,)) == math.inf
    assert [text.startswith(why) for text in times.failures.values()] == [True]
    assert json.loads(path.read_text().splitlines()[1])["failure"].startswith(why)
    # It is not tried again.
    again = ProgramTimes(path, turns=1)
    assert again.of(terms, roots, traced, (0,)) == math.inf and again.spent == 0
    assert again.failures == times.failures


def test_after_a_failure_the_next_is_measured(monkeypatch):
    terms, roots, traced = program()
    after = next(
        made
        for matcher in (Matcher(terms),)
        for match in matcher.matches(roots)
        if (made := matcher.apply(roots, match)) not in (None, roots)
    )
    times = ProgramTimes(turns=1)

    def fails(*args):
        raise RuntimeError("no such thing")

    try:
        with monkeypatch.context() as patch:
            patch.setattr("gopt.systems.xrlflow.measuring._exported", fails)
            assert times.of(terms, roots, traced, (0,)) == math.inf
        assert list(times.failures.values()) == ["RuntimeError: no such thing"]
        # A process that was sent what is no program answers why, and goes on.
        with monkeypatch.context() as patch:
            patch.setattr("gopt.systems.xrlflow.measuring._exported", lambda *_: b"nothing")
            assert times.of(*program(8), (0,)) == math.inf
        assert times.of(terms, after, traced, (0,)) < 1
        assert times.spent == 3 and len(times.failures) == 2
    finally:
        times.close()


def test_bad_settings_and_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="turns is 0"):
        ProgramTimes(turns=0)
    with pytest.raises(ValueError, match="patience is nan"):
        ProgramTimes(patience=np.nan)
    path = tmp_path / "programs.jsonl"
    ProgramTimes(path)
    header = path.read_text()
    for bad in ('{"program": "a", "seconds": "x"}', '{"seconds": 1.0}', "[]"):
        path.write_text(header + bad + "\n")
        with pytest.raises(ValueError, match="line 2: not the time of a program"):
            ProgramTimes(path)
