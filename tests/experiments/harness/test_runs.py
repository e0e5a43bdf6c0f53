"""Runs of searches: how they are timed and kept, and what they tell."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.harness import runs
from experiments.harness.store import Store
from gopt.search.result import SearchResult


class Point(NamedTuple):
    x: Any
    y: Any


def search(key, target):
    """Returns the best of three random numbers, by the distance to a target."""
    drawn = jax.random.uniform(key, (3,))
    cost = jnp.abs(drawn - target)
    history = jax.lax.cummin(cost)
    best = Point(drawn[jnp.argmin(cost)], target)
    return SearchResult(best, history[-1], history, jnp.arange(1, 4))


def test_all_runs_are_found_and_timed():
    keys = jax.random.split(jax.random.key(0), 4)
    rows = runs.alike(4, jnp.float32(0.5))
    ready = runs.over_runs(search).lower(keys, rows).compile()
    found = runs.run(ready, keys, rows, cost=lambda best: abs(best.x - best.y))
    assert found.cost.shape == (4,) and found.history.shape == (4, 3) and found.seconds >= 0
    assert abs(found.best.x - found.best.y) == found.cost.min()
    with pytest.raises(RuntimeError, match="a search reports"):
        runs.run(ready, keys, rows, cost=lambda best: best.x)
    with pytest.raises(RuntimeError, match=r"a search reports .*, its decision costs 2"):
        runs.check_cost(found.cost.min(), 2.0)


def test_costs_by_evaluations_and_by_seconds():
    history = np.array([[9.0, 5.0, 2.0], [8.0, 8.0, 1.0]])
    one = runs.Runs(history[:, -1], np.array([10, 20, 40]), history, seconds=5.0, ready=1.0)
    np.testing.assert_array_equal(one.after(25), [5, 8])
    np.testing.assert_array_equal(one.after(np.array([1, 40])), [[9, 2], [8, 1]])
    np.testing.assert_array_equal(one.within(3.0), [5, 8])  # half of the evaluations
    np.testing.assert_array_equal(one.within(9.0), [2, 1])
    assert np.isnan(one.within(1.0)).all() and np.isnan(one.within(1.5)).all()
    assert np.isnan(one._replace(seconds=None).within(9.0)).all()


def test_evaluations_until_a_cost():
    history = np.array([[1.0, 0.9, 0.9, 0.7], [1.0, 1.0, 1.0, 0.9]])
    one = runs.Runs(history[:, -1], np.array([1, 2, 3, 4]), history)
    counts, never = one.until(0.9)
    assert counts.tolist() == [2, 4] and never == 0
    counts, never = one.until(0.8)  # a run that never gets there counts as its budget
    assert counts.tolist() == [4, 4] and never == 1


def test_runs_come_back_as_they_were(tmp_path):
    cost = np.array([1.0, np.nan])
    timed = runs.Runs(cost, np.array([1]), cost[:, None], Point(np.arange(3), np.eye(2)), 2.0, 0.5)
    every = {"a": timed, "b, c": timed._replace(seconds=None)}
    made = []

    def make():
        made.append(1)
        return every

    for _ in range(2):
        found = runs.kept_runs(Store(tmp_path / "rows.sqlite", {"seed": 0}), "row", make, Point)
        assert list(found) == list(every) and found["b, c"].seconds is None
        jax.tree.map(np.testing.assert_array_equal, found, every)
    assert made == [1]
    with pytest.raises(ValueError, match=r"rows\.sqlite has rows with seed = 0, expected 1"):
        runs.kept_runs(Store(tmp_path / "rows.sqlite", {"seed": 1}), "row", make, Point)
    without = runs.kept_runs(Store(tmp_path / "others.sqlite", {}), "other", lambda: every)
    assert without["a"].best is None
