"""Figures of searches and other methods: what they reach, by when, and what they take."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gopt.plots.style import COLOURS, LINES, label_decades, legend_across, new_figure, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def convergence(
    histories: Mapping[str, tuple[Any, Any]],
    *,
    label: str = "best cost",
    across: str = "evaluations",
) -> "Figure":
    """Returns best costs against evaluations: the mean over runs, with a 95 % interval of it.

    Args:
      histories: by the names that the legend gives them, evaluations `[K]` and best costs
        `[S, K]` of S runs. The interval is Student's t; there is none for one run. A single
        point, such as a heuristic's, is a line across.
      label: of the axis of costs, with its unit.
      across: of the other axis, if that is not evaluations, but time, say.

    Raises:
      ValueError: there are no histories, or the shapes of one do not agree.
    """
    require(histories, "histories")
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
    axes.set_xlabel(across)
    axes.set_ylabel(label)
    legend_across(figure)
    return figure


def tradeoff(
    found: Mapping[str, tuple[float, float]], *, across: str = "time, s", up: str = "cost"
) -> "Figure":
    """Returns what methods reach against what they take, with a line through those that none beats.

    Less is better in both. A method is beaten by one that takes no more, reaches no more, and is
    not the same in both. An axis is logarithmic if values differ more than tenfold and none is 0.

    Args:
      found: what each method takes, more than 0, and what it reaches, at least 0, by the names of
        the legend.
      across: label of the axis of what methods take, with its unit.
      up: label of the axis of what they reach, with its unit.

    Raises:
      ValueError: nothing is found, a method takes nothing, or what it reaches is negative.
    """
    require(found, "found")
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
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    legend_across(figure)
    return figure


def _interval(runs: np.ndarray) -> np.ndarray:
    """Returns half the width of the 95 % interval of the mean of runs `[S, K]`, `[K]`."""
    from scipy.special import stdtrit

    return stdtrit(len(runs) - 1, 0.975) * runs.std(0, ddof=1) / np.sqrt(len(runs))
