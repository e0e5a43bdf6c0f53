"""Figures of schedules and searches. Every function returns a new matplotlib `Figure`.

Figures are made without pyplot: nothing is shown, and no global state is kept. They are as wide
as a column of a paper (3.5 in).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gopt.cost.execution import Schedule
from gopt.problem import MAX_UNITS, Problem, to_bytes, to_seconds
from gopt.units import memory_unit, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 3.5  # in
_FONT = 8.0  # points
# Wong, "Points of view: color blindness", Nature Methods 8 (2011).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_COMPUTE, _TRANSFER = _COLOURS[5], _COLOURS[4]
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":")
_PROFILE = 1.1  # in, height of the profile of one device
_NAMED = 40  # bars are named in charts of at most so many items
_NEAR = 2.0  # a capacity is shown if it is at most so many times the largest peak
_LEGEND: dict[str, Any] = {  # what all legends look like
    **{"frameon": False, "fontsize": _FONT - 1, "borderaxespad": 0.2},
    **{"handlelength": 1.5, "columnspacing": 1},
}


def gantt(problem: Problem, schedule: Schedule, *, names: Sequence[str] | None = None) -> "Figure":
    """Returns a Gantt chart: a lane for each device and for each link that is used.

    Args:
      problem: one problem.
      schedule: of the problem.
      names: of the ops; written on the bars that are wide enough where there are few items.
    """
    lanes = _lanes(problem, schedule)
    figure, (axes,) = _figure([_chart_height(lanes)])
    _draw_gantt(axes, problem, schedule, lanes, names)
    return figure


def memory_profile(problem: Problem, schedules: Mapping[str, Schedule]) -> "Figure":
    """Returns the memory in use on each device against the items issued, a row for each device.

    A line shows what is in use while the latest item on the device runs; the legend names the
    peaks. A capacity is drawn where it is near.

    Args:
      problem: one problem.
      schedules: of the problem, by the names that the legend gives them.

    Raises:
      ValueError: there are no schedules.
    """
    _require(schedules, "schedules")
    figure, axes = _figure([_PROFILE] * problem.num_devices)
    _draw_memory(axes, problem, schedules)
    return figure


def overview(
    problem: Problem, schedules: Mapping[str, Schedule], *, names: Sequence[str] | None = None
) -> "Figure":
    """Returns the Gantt chart of the last schedule above the memory profiles of all of them.

    Arguments are those of `gantt` and `memory_profile`.
    """
    _require(schedules, "schedules")
    last = list(schedules.values())[-1]
    lanes = _lanes(problem, last)
    figure, axes = _figure([_chart_height(lanes)] + [_PROFILE] * problem.num_devices)
    _draw_gantt(axes[0], problem, last, lanes, names)
    _draw_memory(axes[1:], problem, schedules)
    return figure


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
    _require(histories, "histories")
    figure, (axes,) = _figure([2.6])
    for index, (name, (evaluations, costs)) in enumerate(histories.items()):
        steps, runs = np.asarray(evaluations), np.asarray(costs, np.float64)
        if runs.ndim != 2 or steps.shape != runs.shape[1:]:
            raise ValueError(
                f"histories[{name!r}] has evaluations {steps.shape} and costs {runs.shape}: "
                "expected [K] and [S, K]"
            )
        mean, colour = runs.mean(0), _COLOURS[index % len(_COLOURS)]
        style = _LINES[index % len(_LINES)]
        if len(steps) == 1:
            axes.axhline(mean[0], color=colour, linestyle=style, linewidth=1, label=name)
            continue
        axes.plot(steps, mean, color=colour, linestyle=style, linewidth=1, label=name)
        if len(runs) > 1:
            error = _interval(runs)
            axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
    axes.set_xscale("log")
    _label_decades(axes.xaxis)
    axes.set_xlabel(across)
    axes.set_ylabel(label)
    _legend_across(figure)
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
    _require(found, "found")
    for name, (taken, reached) in found.items():
        if not taken > 0:
            raise ValueError(f"found[{name!r}] takes {taken}: expected more than 0")
        if not reached >= 0:
            raise ValueError(f"found[{name!r}] reaches {reached}: expected 0 or more")
    figure, (axes,) = _figure([2.9])
    front: list[tuple[float, float]] = []
    for taken, reached in sorted(found.values()):
        if not front or reached < front[-1][1]:
            front.append((taken, reached))
    axes.step(*zip(*front, strict=True), where="post", color="0.6", linewidth=0.8)
    for index, (name, point) in enumerate(found.items()):
        marker, colour = _MARKERS[index % len(_MARKERS)], _COLOURS[index % len(_COLOURS)]
        axes.plot(*point, marker, color=colour, markersize=4, label=name, clip_on=False)
    takes, reaches = zip(*found.values(), strict=True)
    if max(takes) > 10 * min(takes):
        axes.set_xscale("log")
        _label_decades(axes.xaxis)
    else:
        axes.set_xlim(left=0)
    if max(reaches) > 10 * min(reaches) > 0:
        axes.set_yscale("log")
        _label_decades(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    axes.grid(linewidth=0.3, alpha=0.5)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    _legend_across(figure)
    return figure


def _label_decades(axis: "Axis") -> None:
    """Labels 1, 2 and 5 of every decade of a logarithmic axis; large counts as 1k, 2k, 5k."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    least, most = axis.get_data_interval()
    is_large = least >= 1 and most >= 1000
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(EngFormatter(sep="") if is_large else "{x:g}")
    axis.set_minor_locator(NullLocator())


def _require(values: Mapping[str, Any], field: str) -> None:
    if not values:
        raise ValueError(f"{field} is empty: nothing to draw")


def _figure(heights: Sequence[float]) -> tuple["Figure", list["Axes"]]:
    """Returns a figure of axes below each other, of these heights in inches, and the axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"font.size": _FONT, "axes.linewidth": 0.6, "axes.labelsize": _FONT}
    style |= {"xtick.labelsize": _FONT - 1, "ytick.labelsize": _FONT - 1}
    with rc_context(style):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.2), dpi=200, layout="constrained")
        grid = figure.subplots(len(heights), squeeze=False, height_ratios=heights)
    axes = list(grid[:, 0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _interval(runs: np.ndarray) -> np.ndarray:
    """Returns half the width of the 95 % interval of the mean of runs `[S, K]`, `[K]`."""
    from scipy.special import stdtrit

    return stdtrit(len(runs) - 1, 0.975) * runs.std(0, ddof=1) / np.sqrt(len(runs))


class _Bar(NamedTuple):
    item: int
    start: float  # s
    length: float  # s


def _lanes(problem: Problem, schedule: Schedule) -> dict[str, list[_Bar]]:
    """Returns the bars of each lane by its label: all devices, then the links that are used."""
    n, devices = problem.shape.ops, problem.num_devices
    lanes: dict[str, list[_Bar]] = {f"device {d}": [] for d in range(devices)}
    links: dict[tuple[int, ...], list[_Bar]] = {}
    items = np.asarray(schedule.order)[: int(schedule.num_items)]
    start = to_seconds(problem, np.asarray(schedule.start)[items])
    length = to_seconds(problem, np.asarray(schedule.end)[items]) - start
    for bar in map(_Bar, items.tolist(), start.tolist(), length.tolist()):
        if bar.item < n:
            if not problem.is_input[bar.item]:
                lanes[f"device {schedule.device[bar.item]}"].append(bar)
            continue
        tensor, target = divmod(bar.item - n, devices)
        source = int(schedule.device[problem.producer[tensor]])
        channel = int(problem.channel[source, target])
        links.setdefault((channel,) if channel >= 0 else (-1, source, target), []).append(bar)
    for link, bars in sorted(links.items()):
        lanes[_link_label(problem, link)] = bars
    return lanes


def _link_label(problem: Problem, link: tuple[int, ...]) -> str:
    """Names a link by the pair that it carries, or by the only device that sends on it."""
    if len(link) == 3:
        return f"{link[1]} → {link[2]}"
    carried = np.asarray(problem.channel) == link[0]
    np.fill_diagonal(carried, False)
    source, target = np.nonzero(carried)
    if len(source) == 1:
        return f"{source[0]} → {target[0]}"
    return f"{source[0]} → all" if len(set(source.tolist())) == 1 else f"link {link[0]}"


def _chart_height(lanes: Mapping[str, Any]) -> float:
    return 0.75 + min(0.24 * len(lanes), 6.0)


def _draw_gantt(
    axes: "Axes",
    problem: Problem,
    schedule: Schedule,
    lanes: Mapping[str, list[_Bar]],
    names: Sequence[str] | None,
) -> None:
    from matplotlib.patches import Patch

    makespan = float(to_seconds(problem, schedule.makespan))
    unit, second = time_unit(makespan)
    few = sum(map(len, lanes.values())) <= _NAMED
    for row, bars in enumerate(lanes.values()):
        compute = row < problem.num_devices
        axes.broken_barh(
            [(bar.start / second, bar.length / second) for bar in bars],
            (row - 0.4, 0.8),
            facecolors=_COMPUTE if compute else _TRANSFER,
            # An edge keeps bars that are thinner than a pixel visible.
            edgecolors="white" if few else "face",
            linewidth=0.3,
        )
        if names is None or not compute or not few:
            continue
        for bar in bars:
            name = names[bar.item].rsplit("/", 1)[-1]
            if bar.length > 0.018 * len(name) * makespan:
                middle = (bar.start + bar.length / 2) / second
                axes.text(middle, row, name, fontsize=_FONT - 2, ha="center", va="center")
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, makespan / second or 1)
    axes.set_xlabel(f"time ({unit})")
    kinds = [Patch(color=_COMPUTE, label="compute"), Patch(color=_TRANSFER, label="transfer")]
    _legend(axes, columns=2, handles=kinds[: 1 + (len(lanes) > problem.num_devices)])


def _draw_memory(
    axes: Sequence["Axes"], problem: Problem, schedules: Mapping[str, Schedule]
) -> None:
    largest = max(int(to_bytes(problem, np.max(s.peak))) for s in schedules.values())
    unit, scale = memory_unit(largest)
    for device, ax in enumerate(axes):
        if device:
            ax.sharex(axes[0])
            ax.sharey(axes[0])
        for index, (name, schedule) in enumerate(schedules.items()):
            count = int(schedule.num_items)
            here = np.flatnonzero(_places(problem, schedule) == device)
            used = to_bytes(problem, np.asarray(schedule.usage)[here]) / scale
            peak = to_bytes(problem, schedule.peak[device]) / scale
            colour, style = _COLOURS[index % len(_COLOURS)], _LINES[index % len(_LINES)]
            ax.step(
                here if here.size else [0, count],
                used if here.size else [0, 0],
                where="post",
                color=colour,
                linestyle=style,
                linewidth=0.9,
                label=f"{name}, peak {peak:.3g} {unit}",
            )
        capacity = to_bytes(problem, problem.capacity[device])
        if problem.capacity[device] < MAX_UNITS and capacity <= _NEAR * largest:
            ax.axhline(
                capacity / scale, color="black", linestyle=":", linewidth=0.8, label="capacity"
            )
        ax.locator_params(axis="y", nbins=4)
        ax.set_ylabel(f"device {device}\nmemory ({unit})")
        _legend(ax, columns=2)
    axes[0].set_ylim(bottom=0)
    axes[0].set_xlim(left=0)
    axes[-1].set_xlabel("items issued")


def _places(problem: Problem, schedule: Schedule) -> np.ndarray:
    """Returns the device on which each item, in order of issue, makes something."""
    n = problem.shape.ops
    items = np.asarray(schedule.order)[: int(schedule.num_items)]
    ops = np.asarray(schedule.device)[np.minimum(items, n - 1)]
    return np.where(items < n, ops, (items - n) % problem.num_devices)


def _legend(axes: "Axes", *, columns: int, **kwargs: Any) -> None:
    """Puts a legend above the axes, where it hides nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderpad=0, **_LEGEND, **kwargs
    )


def _legend_across(figure: "Figure") -> None:
    """Puts a legend of long names above the axes, over the whole width of the figure."""
    figure.legend(loc="outside upper left", ncols=2, **_LEGEND)
