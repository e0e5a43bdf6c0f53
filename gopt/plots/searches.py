"""Figures of searches and other methods: convergence, and cost against time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gopt.plots.style import (
    COLOURS,
    LINES,
    check_not_empty,
    label_decades,
    legend_across,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def convergence(
    histories: Mapping[str, tuple[Any, Any]],
    *,
    label: str = "best cost",
    x_label: str = "evaluations",
) -> "Figure":
    """Plot best cost against evaluations: the mean over runs, with its 95 % interval.

    Args:
      histories: evaluations `[K]` and best costs `[S, K]` of S runs, by legend name. The interval
        is Student's t; one run has none. A single point, such as a heuristic's, becomes a
        horizontal line.
      label: label of the cost axis, with its unit.
      x_label: label of the other axis, such as evaluations or time.

    Raises:
      ValueError: `histories` is empty, or the shapes of an entry do not agree.
    """
    check_not_empty(histories, "histories")
    figure, (axes,) = new_figure([2.6])
    for index, (name, (evaluations, costs)) in enumerate(histories.items()):
        steps, runs = np.asarray(evaluations), np.asarray(costs, np.float64)
        if runs.ndim != 2 or steps.shape != runs.shape[1:]:
            raise ValueError(
                f"histories[{name!r}] has evaluations {steps.shape} and costs {runs.shape}: "
                "expected [K] and [S, K]"
            )
        mean, colour = runs.mean(0), COLOURS[index % len(COLOURS)]
        style = LINES[index % len(LINES)]
        if len(steps) == 1:
            axes.axhline(mean[0], color=colour, linestyle=style, linewidth=1, label=name)
            continue
        axes.plot(steps, mean, color=colour, linestyle=style, linewidth=1, label=name)
        if len(runs) > 1:
            error = _interval(runs)
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
    axes.set_xscale("log")
    label_decades(axes.xaxis)
    axes.set_xlabel(x_label)
    axes.set_ylabel(label)
    legend_across(figure)
    return figure


def tradeoff(
    found: Mapping[str, tuple[float, float]], *, x_label: str = "time, s", y_label: str = "cost"
) -> "Figure":
    """Plot two quantities of methods, such as time and cost, with the Pareto front as a line.

    Less is better in both. A method is on the front unless another one is at least as good in both
    quantities and better in one. An axis is logarithmic if its values are not 0 and differ more
    than tenfold.

    Args:
      found: horizontal value above 0 and vertical value of at least 0, by legend name.
      x_label: label of the horizontal axis, with its unit.
      y_label: label of the vertical axis, with its unit.

    Raises:
      ValueError: `found` is empty, a horizontal value is not positive, or a vertical one is
        negative.
    """
    check_not_empty(found, "found")
    for name, (taken, reached) in found.items():
        if not taken > 0:
            raise ValueError(f"found[{name!r}] takes {taken}: expected more than 0")
        if not reached >= 0:
            raise ValueError(f"found[{name!r}] reaches {reached}: expected 0 or more")
    figure, (axes,) = new_figure([2.9])
    front: list[tuple[float, float]] = []
    for taken, reached in sorted(found.values()):
        if not front or reached < front[-1][1]:
            front.append((taken, reached))
    axes.step(*zip(*front, strict=True), where="post", color="0.6", linewidth=0.8)
    for index, (name, point) in enumerate(found.items()):
        marker, colour = _MARKERS[index % len(_MARKERS)], COLOURS[index % len(COLOURS)]
        axes.plot(*point, marker, color=colour, markersize=4, label=name, clip_on=False)
    takes, reaches = zip(*found.values(), strict=True)
    if max(takes) > 10 * min(takes):
        axes.set_xscale("log")
        label_decades(axes.xaxis)
    else:
        axes.set_xlim(left=0)
    if max(reaches) > 10 * min(reaches) > 0:
        axes.set_yscale("log")
        label_decades(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    axes.grid(linewidth=0.3, alpha=0.5)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    legend_across(figure)
    return figure


def _interval(runs: np.ndarray) -> np.ndarray:
    """Return half the width of the 95 % interval of the mean of runs `[S, K]`, `[K]`."""
    from scipy.special import stdtrit

    return stdtrit(len(runs) - 1, 0.975) * runs.std(0, ddof=1) / np.sqrt(len(runs))
