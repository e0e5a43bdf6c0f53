"""Figures of schedules: Gantt charts and memory in use."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gopt.cost.schedule.decoding import Schedule
from gopt.cost.schedule.problem import MAX_UNITS, Problem, to_bytes, to_seconds
from gopt.plots.style import COLOURS, FONT, LINES, check_not_empty, legend, new_figure
from gopt.plots.units import memory_unit, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COMPUTE, _TRANSFER = COLOURS[5], COLOURS[4]
_PROFILE = 1.1  # in, height of one device's profile
_NAMED = 40  # bars are labelled in charts of at most this many items
_NEAR = 2.0  # a capacity is drawn up to this multiple of the largest peak


def gantt(problem: Problem, schedule: Schedule, *, names: Sequence[str] | None = None) -> "Figure":
    """Plot a Gantt chart, with a lane per device and per used link.

    Args:
      problem: one problem.
      schedule: schedule of the problem.
      names: names of the ops, written on wide bars in charts of few items.
    """
    lanes = _lanes(problem, schedule)
    figure, (axes,) = new_figure([_chart_height(lanes)])
    _draw_gantt(axes, problem, schedule, lanes, names)
    return figure


def memory_profile(problem: Problem, schedules: Mapping[str, Schedule]) -> "Figure":
    """Plot the memory in use on each device against the items issued, one row per device.

    A line shows the memory in use while the latest item on the device runs. The legend gives the
    peaks. A capacity is drawn if it is near the largest peak.

    Args:
      problem: one problem.
      schedules: schedules of the problem, by legend name.

    Raises:
      ValueError: `schedules` is empty.
    """
    check_not_empty(schedules, "schedules")
    figure, axes = new_figure([_PROFILE] * problem.num_devices)
    _draw_memory(axes, problem, schedules)
    return figure


def confirmed_memory(
    schedules: Mapping[str, tuple[Problem, Schedule]], planned: Mapping[str, int]
) -> "Figure":
    """Plot the memory in use on one device against the kernels run, and XLA's plan.

    Solid or dashed lines are the model's memory in use, arguments included. Dotted lines are XLA's
    planned maximum.

    Args:
      schedules: problem and schedule on one device, by legend name.
      planned: bytes that XLA plans for each, by name.

    Raises:
      ValueError: `schedules` is empty.
    """
    check_not_empty(schedules, "schedules")
    figure, (axes,) = new_figure([1.6 * _PROFILE])
    unit, scale = memory_unit(max(planned.values()))
    for index, (name, (problem, schedule)) in enumerate(schedules.items()):
        items = np.asarray(schedule.order)[: int(schedule.num_items)]
        kernels = ~np.asarray(problem.is_input)[items]
        used = to_bytes(problem, np.asarray(schedule.usage)[: len(items)][kernels]) / scale
        colour, style = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
        label = f"{name}, XLA plans {planned[name] / scale:.3g} {unit}"
        axes.step(
            np.arange(used.size), used, where="post", color=colour, linestyle=style, label=label
        )
        axes.axhline(planned[name] / scale, color=colour, linestyle=":", linewidth=0.9)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("kernels run")
    axes.set_ylabel(f"memory in use ({unit})")
    legend(axes, columns=1)
    return figure


def overview(
    problem: Problem, schedules: Mapping[str, Schedule], *, names: Sequence[str] | None = None
) -> "Figure":
    """Plot the Gantt chart of the last schedule above the memory profiles of all schedules.

    Args:
      problem: one problem.
      schedules: schedules of the problem, by legend name.
      names: names of the ops, written on wide bars in charts of few items.

    Raises:
      ValueError: `schedules` is empty.
    """
    check_not_empty(schedules, "schedules")
    last = list(schedules.values())[-1]
    lanes = _lanes(problem, last)
    figure, axes = new_figure([_chart_height(lanes)] + [_PROFILE] * problem.num_devices)
    _draw_gantt(axes[0], problem, last, lanes, names)
    _draw_memory(axes[1:], problem, schedules)
    return figure


class _Bar(NamedTuple):
    """A bar of a Gantt chart.

    Attributes:
      item: op or transfer, numbered as in `Problem`.
      start: start in s.
      length: length in s.
    """

    item: int
    start: float
    length: float


def _lanes(problem: Problem, schedule: Schedule) -> dict[str, list[_Bar]]:
    """Return the bars of each lane by its label: all devices, then the used links."""
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
    """Label a link by its only pair of devices, by its only sender, or by its number."""
    if len(link) == 3:
        return f"{link[1]} → {link[2]}"
    carried = np.asarray(problem.channel) == link[0]
    np.fill_diagonal(carried, False)
    source, target = np.nonzero(carried)
    if len(source) == 1:
        return f"{source[0]} → {target[0]}"
    return f"{source[0]} → all" if len(set(source.tolist())) == 1 else f"link {link[0]}"


def _chart_height(lanes: Mapping[str, list[_Bar]]) -> float:
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
            # An edge keeps bars visible that are thinner than a pixel.
            edgecolors="white" if few else "face",
            linewidth=0.3,
        )
        if names is None or not compute or not few:
            continue
        for bar in bars:
            name = names[bar.item].rsplit("/", 1)[-1]
            if bar.length > 0.018 * len(name) * makespan:
                middle = (bar.start + bar.length / 2) / second
                axes.text(middle, row, name, fontsize=FONT - 2, ha="center", va="center")
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, makespan / second or 1)
    axes.set_xlabel(f"time ({unit})")
    kinds = [Patch(color=_COMPUTE, label="compute"), Patch(color=_TRANSFER, label="transfer")]
    legend(axes, columns=2, handles=kinds[: 1 + (len(lanes) > problem.num_devices)])


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
            colour, style = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
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
        legend(ax, columns=2)
    axes[0].set_ylim(bottom=0)
    axes[0].set_xlim(left=0)
    axes[-1].set_xlabel("items issued")


def _places(problem: Problem, schedule: Schedule) -> np.ndarray:
    """Return the device on which each item, in issue order, allocates its results."""
    n = problem.shape.ops
    items = np.asarray(schedule.order)[: int(schedule.num_items)]
    ops = np.asarray(schedule.device)[np.minimum(items, n - 1)]
    return np.where(items < n, ops, (items - n) % problem.num_devices)
