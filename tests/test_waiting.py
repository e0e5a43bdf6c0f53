"""Verbs show progress; Ctrl-C and a time limit end a search with the best result so far."""

import itertools
import signal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.heuristics import HEURISTICS
from gopt.host.progress import Progress
from gopt.rewriting.search.pet import partial_equivalence
from gopt.rewriting.search.taso import backtracking
from tests.tiers import slow

X = jnp.linspace(-1, 1, 64 * 64).reshape(64, 64)
QUICK = {
    gopt.schedule: {"evaluations": 60, "confirm": 1},
    gopt.fuse: {"evaluations": 4, "repeats": 2},
    gopt.rewrite: {"repeats": 2},
}


def model(w, x):
    return jnp.tanh(x @ w) * jnp.exp(-x) @ w + jnp.tanh(x @ (w + 1)) @ w


@pytest.fixture(autouse=True)
def handler():
    """Python's own handler of Ctrl-C, which processes in the background may lack."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


class Interrupt:
    """Ctrl-C after some units of a phase."""

    def __init__(self, phase, done):
        self.phase, self.done, self.is_sent = phase, done, False

    def __call__(self, status):
        if (status.phase, status.done) == (self.phase, self.done) and not self.is_sent:
            self.is_sent = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("verb", QUICK)
def test_phases_are_shown(verb):
    seen = []
    verb(model, X, X, progress=seen.append, **QUICK[verb])
    assert {status.title for status in seen} == {f"gopt.{verb.__name__}"}
    assert len({status.phase for status in seen}) >= 3
    for status in seen:
        assert status.done <= (status.total or 0)


def twice(w, x):
    return jnp.tanh(x @ w) + jnp.exp(jnp.tanh(x @ w))  # XLA merges the duplicates


def loop(n, x):
    return jax.lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] + x), (n, x))[1] * 1 + x


TWO = {"hardware": "2xh100", "search": "best", "evaluations": 500}
CASES = {
    "schedule": (gopt.schedule, model, {}, X),
    "fuse": (gopt.fuse, model, {}, X),
    "rewrite": (gopt.rewrite, model, {}, X),
    "schedule, by name": (gopt.schedule, model, {"search": "brkga", "evaluations": 500}, X),
    "schedule, two devices": (gopt.schedule, model, TWO, X),
    "schedule, duplicates": (gopt.schedule, twice, {}, X),
    "fuse, random": (gopt.fuse, model, {"search": "random"}, X),
    "rewrite, folded": (gopt.rewrite, model, {"constant_argnums": 0, "search": "pet"}, X),
    "rewrite, saturation": (gopt.rewrite, model, {"search": "tensat"}, X),
    "rewrite, a loop": (gopt.rewrite, loop, {}, jnp.int32(3)),
}
SEARCHES = ("orders of", "steps of the search", "configurations", "rewriting", "rounds of sat")


@pytest.mark.parametrize(
    "name", ["schedule", "rewrite", *slow(*(k for k in CASES if k not in ("schedule", "rewrite")))]
)
def test_ctrl_c_in_each_phase_has_a_result(name):
    verb, fn, options, first = CASES[name]
    seen = []
    call = partial(verb, fn, first, X, **{**QUICK[verb], **options})
    call(progress=seen.append)
    expected = jax.jit(fn)(first, X)
    points = dict.fromkeys((s.phase, s.done) for s in seen if s.done < 2)
    assert any(phase.startswith(SEARCHES) and done == 1 for phase, done in points)
    for phase, done in points:
        interrupt = Interrupt(phase, done)
        result = call(progress=interrupt)
        assert interrupt.is_sent
        devices = {"devices": 2 * jax.devices()[:1]} if "hardware" in options else {}
        np.testing.assert_allclose(result.apply(**devices)(first, X), expected, 1e-4, 1e-4)
        assert "cut short: it was interrupted; not reproducible" in str(result)


@pytest.mark.parametrize("verb", [gopt.schedule, gopt.rewrite, *slow(gopt.fuse)])
def test_a_second_ctrl_c_ends_the_program(verb):
    seen = []
    call = partial(verb, model, X, X, **QUICK[verb])
    call(progress=seen.append)
    phases = list(dict.fromkeys(s.phase for s in seen))
    for phase, following in itertools.pairwise(phases):
        interrupts = Interrupt(phase, 0), Interrupt(following, 0)
        if phase.startswith((*SEARCHES, "kernels of")):
            continue  # the first one ends it, and the last part of the work begins
        with pytest.raises(KeyboardInterrupt):
            call(progress=lambda status, all=interrupts: [each(status) for each in all])


@pytest.mark.parametrize("verb", [gopt.schedule, gopt.rewrite])
@pytest.mark.parametrize("hears", [False, True])
def test_ctrl_c_is_raised_in_a_callable(verb, hears):
    def search(*args, **_):
        try:
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it went on")
        except KeyboardInterrupt:
            if not hears:
                raise
        if verb is gopt.schedule:
            return HEURISTICS["heft"](args[2])
        terms, roots, cost, _ = args
        return backtracking(terms, roots, cost, ())

    call = partial(verb, model, X, X, **QUICK[verb], search=search)
    if hears:
        assert "cut short: it was interrupted" in str(call())
    else:
        with pytest.raises(KeyboardInterrupt):
            call()


@pytest.mark.slow
@pytest.mark.parametrize("verb", QUICK)
def test_nothing_is_shown_on_request(verb, capfd, monkeypatch):
    for name in ("_QUIET", "_LINE"):
        monkeypatch.setattr(f"gopt.host.progress.{name}", 0.01)
    verb(model, X, X, progress=False, **QUICK[verb])
    assert capfd.readouterr().err == ""
    verb(model, X, X, **QUICK[verb])
    assert f"gopt.{verb.__name__}: " in capfd.readouterr().err


@pytest.mark.parametrize("verb", QUICK)
def test_bad_limits_are_refused(verb):
    with pytest.raises(ValueError, match="progress is 1: expected True, False or a function"):
        verb(lambda *_: pytest.fail("it was traced"), X, X, progress=1)
    with pytest.raises(ValueError, match="seconds is -1: expected a positive number"):
        verb(lambda *_: pytest.fail("it was traced"), X, X, seconds=-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "phase"),
    [
        ({}, "orders of kernels"),
        *slow(({"hardware": "2xh100", "objective": "makespan"}, "steps of the search")),
    ],
)
def test_an_interrupted_search_for_schedules_has_the_best_so_far(options, phase):
    interrupt = Interrupt(phase, 1)
    result = gopt.schedule(model, X, X, evaluations=5_000, progress=interrupt, **options)
    assert "cut short: it was interrupted; not reproducible" in str(result)
    apply = result.apply(**({"devices": 2 * jax.devices()[:1]} if options else {}))
    np.testing.assert_allclose(apply(X, X), jax.jit(model)(X, X), rtol=1e-4, atol=1e-4)


def test_an_interrupted_search_for_kernels_has_the_best_so_far():
    options = {"repeats": 2, "seed": 3, "search": "random"}
    result = gopt.fuse(
        model, X, X, evaluations=50, progress=Interrupt("configurations", 5), **options
    )
    assert len(result.report.searched) == 5
    assert "cut short: it was interrupted; not reproducible" in str(result)
    kept = [c.predicted for c in result.candidates if c.predicted is not None]
    assert min(kept) == result.report.searched[-1]


def test_time_is_over_at_once_for_kernels():
    result = gopt.fuse(model, X, X, evaluations=50, repeats=2, seconds=1e-9)
    assert len(result.report.searched) == 0
    assert "its 1e-09 s were over" in result.report.cut_note
    np.testing.assert_allclose(result.apply()(X, X), jax.jit(model)(X, X), rtol=1e-5, atol=1e-5)


def chain(w, x):
    return ((x @ w[0]) @ w[1]) @ w[2] + (x @ w[1]) @ w[2]


W = [jnp.ones((8, 8)) * 0.1] * 3


@pytest.mark.parametrize("search", ["taso", "pet"])
def test_an_interrupted_rewriting_has_the_best_so_far(search):
    interrupt = Interrupt("rewriting programs", 3)
    result = gopt.rewrite(chain, W, X[:, :8], search=search, repeats=2, progress=interrupt)
    assert "cut short: it was interrupted" in str(result)
    whole = gopt.rewrite(chain, W, X[:, :8], search=search, repeats=2)
    assert "cut" not in whole.report.stop_reason
    assert whole.report.costs[1] <= result.report.costs[1] <= result.report.costs[0]
    at_once = gopt.rewrite(chain, W, X[:, :8], search=search, repeats=2, seconds=1e-9)
    assert at_once.report.rules == () and "1e-09 s were over" in at_once.report.stop_reason


def test_an_interrupted_form_is_left_out(monkeypatch):
    from gopt.rewriting.ir.terms import Terms

    terms = Terms()
    root = terms.argument(0, jax.ShapeDtypeStruct((8, 8), jnp.float32), constant=False)
    progress = Progress("", Interrupt("forms of ops", 0))
    found = partial_equivalence(terms, [root], lambda *_: 1.0, progress=progress)
    assert found.roots == (root,) and "interrupted" in found.stop_reason


def test_interrupted_episodes_are_left_out():
    result = gopt.rewrite(
        chain, W, X[:, :8], search="xrlflow", repeats=2, progress=Interrupt("episodes", 1)
    )
    assert "cut short: it was interrupted" in result.report.stop_reason
