"""Verbs show progress; Ctrl-C and a time limit end a search with the best result so far."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gopt
from gopt.host.progress import Progress
from gopt.rewriting.search.pet import partial_equivalence

X = jnp.linspace(-1, 1, 64 * 64).reshape(64, 64)
QUICK = {
    gopt.schedule: {"evaluations": 5, "confirm": 1},
    gopt.fuse: {"evaluations": 4, "repeats": 2},
    gopt.rewrite: {"repeats": 2},
}


def model(w, x):
    return jnp.tanh(x @ w) * jnp.exp(-x) @ w + jnp.tanh(x @ (w + 1)) @ w


class Interrupt:
    """Stands for Ctrl-C, after some units of a stage."""

    def __init__(self, stage, done):
        self.stage, self.done, self.seen = stage, done, []

    def __call__(self, status):
        self.seen.append(status)
        if status.stage.startswith(self.stage) and status.done == self.done:
            raise KeyboardInterrupt


@pytest.mark.parametrize("verb", QUICK)
def test_stages_are_shown(verb):
    seen = []
    verb(model, X, X, progress=seen.append, **QUICK[verb])
    assert {status.title for status in seen} == {f"gopt.{verb.__name__}"}
    assert len({status.stage for status in seen}) >= 3
    for status in seen:
        assert status.done <= (status.total or 0)


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


@pytest.mark.parametrize("options", [{}, {"hardware": "2xh100", "objective": "makespan"}])
def test_an_interrupted_search_for_schedules_has_the_best_so_far(options):
    interrupt = Interrupt("steps of the search", 1)
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
    assert len(result.report.searched) == 1
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
