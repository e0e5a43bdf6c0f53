"""Ratios of means, and their intervals."""

import numpy as np
import pytest

from experiments.harness.statistics import mean_ratio, mean_ratio_interval


def test_the_ratio_is_a_geometric_mean_over_rows():
    base, once, twice = np.array([4, 2]), np.array([1, 1]), np.array([2, 2])
    assert mean_ratio([(base, base)]) == 1
    assert mean_ratio([(once, base), (twice, base)]) == pytest.approx(np.sqrt(1 / 3 * 2 / 3))


def test_the_interval_of_the_ratio_is_about_what_other_runs_give():
    rng = np.random.default_rng(0)

    def sample(count):  # of three rows; runs that begin badly are bad for both
        found = []
        for _ in range(3):
            start = rng.lognormal(0, 0.3, count)
            ours, theirs = rng.lognormal(3, 0.6, count), rng.lognormal(5, 0.4, count)
            found.append((start * ours, start * theirs))
        return found

    others = [mean_ratio(sample(40)) for _ in range(500)]
    low, high = mean_ratio_interval(sample(40))
    assert low < np.median(others) < high
    assert 0.7 < (high - low) / np.subtract(*np.percentile(others, [97.5, 2.5])) < 1.4


def test_runs_are_drawn_with_those_that_begin_alike():
    base = np.array([1.0, 10.0, 100.0])
    assert mean_ratio_interval([(base / 2, base)]) == pytest.approx((0.5, 0.5))
