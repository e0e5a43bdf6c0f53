"""Searches in slices make the same steps as whole ones, and may end early."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.schedule.objectives import population_cost
from gopt.graph.padding import pad
from gopt.heuristics.schedule.evolve import evolve
from gopt.host.progress import Progress
from gopt.scheduling import best
from gopt.search import annealing, brkga, loop
from gopt.search.loop import Slices, whole
from gopt.systems import go, regal
from tests import strategies
from tests.strategies import SMALL
from tests.tiers import slow

TEMPLATE = jax.ShapeDtypeStruct((5,), jnp.float32)
FEW = brkga.Settings(population=8, elites=2, mutants=2)


def problem(devices):
    rng = np.random.default_rng(3)
    graph = strategies.random_graph(rng, 20, 0.2)
    return strategies.random_case(rng, graph, devices).problem(SMALL)


def distance(keys):
    return jnp.sum((keys - 0.3) ** 2, -1)


def annealed(key, *, evaluations):
    settings = annealing.Settings(chains=3)
    return annealing.loop(key, distance, TEMPLATE, evaluations=evaluations, settings=settings)


def evolved(key, *, evaluations):
    return brkga.loop(key, distance, TEMPLATE, evaluations=evaluations, settings=FEW)


class Ticks(Progress):
    """Progress whose time is over after some steps of the loops."""

    def __init__(self, most=10**9):
        super().__init__()
        self.most, self.seen = most, 0

    def advance(self, done, note=""):
        super().advance(done, note)
        self.seen += 1
        if self.seen >= self.most:
            self.cut = "the test says so"


def slices(progress=None):
    return Slices(progress or Ticks(), "steps")


def assert_same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.fixture(autouse=True)
def lengths(monkeypatch):
    """Slices of changing lengths, whatever the time."""
    times = itertools.cycle([0.0, 0.4, 0.4, 0.1])
    clock = itertools.accumulate(times)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock) + 1e-3)


@pytest.mark.parametrize("make", [annealed, evolved])
@pytest.mark.parametrize("evaluations", [1, 40, *slow(2, 8, 9, 101)])
def test_slices_make_the_same_steps(make, evaluations):
    key = jax.random.key(evaluations)
    expected = jax.jit(partial(whole, make, evaluations=evaluations))(key)
    ours = slices()(make, key, evaluations=evaluations)
    assert_same(ours, expected)
    assert ours.evaluations[-1] == evaluations and len(ours.history) == len(ours.evaluations)


@pytest.mark.slow
@pytest.mark.parametrize("make", [annealed, evolved])
def test_a_search_that_is_cut_has_the_history_until_then(make):
    key = jax.random.key(0)
    expected = whole(make, key, evaluations=200)
    progress = Ticks(3)
    ours = slices(progress)(make, key, evaluations=200)
    done = len(ours.history)
    assert 2 < done < len(expected.history) and progress.status.done == done - 1
    np.testing.assert_array_equal(ours.history, expected.history[:done])
    np.testing.assert_array_equal(ours.evaluations, expected.evaluations[:done])
    assert ours.cost == ours.history[-1] == distance(ours.best)
    at_once = Ticks()
    at_once.cut = "before the first step"
    first = slices(at_once)(make, key, evaluations=200)
    assert len(first.history) == 1 and first.cost == expected.history[0]


def test_a_second_search_is_not_compiled_again():
    run = slices()
    run(evolved, jax.random.key(0), evaluations=40)
    before = loop._advance._cache_size()
    run(evolved, jax.random.key(1), evaluations=40)
    assert loop._advance._cache_size() == before


SEARCHES = [("peak_memory", 1), ("makespan", 3), ("capped_makespan", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "devices"), SEARCHES)
def test_the_best_search_runs_in_slices(objective, devices):
    case, key = problem(devices), jax.random.key(1)
    search = partial(best.search, key, case, objective=objective, evaluations=500)
    expected = search()
    assert_same(search(run=slices()), expected)
    for most in (1, 4, 20):
        ours = search(run=slices(Ticks(most)))
        cost = population_cost(case, objective)(jax.tree.map(lambda leaf: leaf[None], ours.best))[0]
        assert ours.cost == cost == ours.history[-1]
        assert expected.cost <= ours.cost and ours.evaluations[-1] <= expected.evaluations[-1]


@pytest.mark.slow
def test_brkga_and_the_policies_run_in_slices():
    case, key = problem(2), jax.random.key(1)
    graph = strategies.random_graph(np.random.default_rng(3), 20, 0.2)
    search = partial(evolve, key, case, objective="makespan", evaluations=61, settings=FEW)
    assert_same(search(run=slices()), jax.jit(search)())
    padded = pad(graph, SMALL)
    for system, least in ((regal, 61), (go, 400)):
        options = {"objective": "makespan"} if system is regal else {}
        params, settings = system.load(**({**options, "devices": 2} if system is regal else {}))
        how = {"inputs": system.inputs(padded, case, settings=settings, **options)}
        how |= {"objective": "makespan", "evaluations": least, "settings": settings}
        expected = system.search(key, case, params, **how)
        if system is go:
            assert_same(go.search(key, case, params, run=slices(), **how), expected)
            ours = go.search(key, case, params, run=slices(Ticks(1)), **how)
            assert expected.cost <= ours.cost
        else:
            action = regal.act(None, params, how.pop("inputs"), settings=settings)
            assert_same(
                regal.search_from(key, case, action, run=slices(), **how).best, expected.best
            )
