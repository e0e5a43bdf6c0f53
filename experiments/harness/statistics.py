"""Compute means and ratios with their intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from gopt.measure.timing import median_ratio, time_interleaved


def mean_interval(values: Any) -> tuple[float, float]:
    """Return the mean of a sample and half of its 95 % interval, by Student's t."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if values.size < 2:
        return mean, float("nan")
    return mean, float(stats.t.ppf(0.975, values.size - 1) * stats.sem(values))


def plus_minus(values: Any, digits: int = 2, sign: str = "") -> str:
    """Return a table cell: the mean of a sample and half of its interval, if it has one.

    Args:
      values: sample.
      digits: digits after the decimal point.
      sign: "+" to give positive means a sign.
    """
    mean, half = mean_interval(values)
    return f"{mean:{sign}.{digits}f}" + ("" if np.isnan(half) else f" ± {half:.{digits}f}")


def time_saved(ratios: np.ndarray) -> np.ndarray:
    """Return 1 − the geometric mean over rows of ratios of times `[G, S]`, for each run, `[S]`.

    Rows with a NaN are left out.
    """
    ratios = ratios[np.isfinite(ratios).all(1)]
    return 1 - np.exp(np.log(ratios).mean(0)) if len(ratios) else np.full(ratios.shape[1], np.nan)


Pair = tuple[np.ndarray, np.ndarray]  # values of `S` runs of two methods, `[S]` each


def mean_ratio(pairs: Sequence[Pair]) -> float:
    """Return the geometric mean over rows of the first method's mean ÷ the second's."""
    return float(np.exp(np.mean([np.log(a.mean() / b.mean()) for a, b in pairs])))


def mean_ratio_interval(pairs: Sequence[Pair], *, resamples: int = 2000) -> tuple[float, float]:
    """Return the 95 % interval of `mean_ratio` by a bootstrap over runs, at least two of each row.

    Run k starts alike in both methods, so both are drawn together. The interval is conditional on
    these rows. With few runs it is too narrow.
    """
    count = len(pairs[0][0])
    rng = np.random.default_rng(0)

    def again() -> list[Pair]:
        rows = [rng.integers(count, size=count) for _ in pairs]
        return [(a[k], b[k]) for (a, b), k in zip(pairs, rows, strict=True)]

    low, high = np.percentile([mean_ratio(again()) for _ in range(resamples)], [2.5, 97.5])
    return float(low), float(high)


def compare_in_rounds(
    calls: Mapping[str, Callable[[], Any]], base: str, *, repeats: int
) -> dict[str, dict[str, Any]]:
    """Return the times of calls, and their ratios to the times of one of them, round by round.

    Args:
      calls: calls by name.
      base: name of the call that others are compared with.
      repeats: rounds.

    Returns:
      By name, "times" (see `gopt.measure.timing.Times`), and "ratio" and "wall ratio" with their 95
      % intervals.
    """
    taken = time_interleaved(calls, repeats=repeats)
    return {
        name: {
            "times": times._asdict(),
            "ratio": median_ratio(times.process, taken[base].process),
            "wall ratio": median_ratio(times.wall, taken[base].wall),
        }
        for name, times in taken.items()
    }
