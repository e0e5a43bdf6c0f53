"""Pictures of programs that were compared by time, or by memory and time."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gopt.plots.style import COLOURS, check_not_empty, legend_across, new_figure
from gopt.plots.units import memory_unit, time_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def time_ratios(ratios: Mapping[str, tuple[float, float, float]]) -> "Figure":
    """Return a bar for the process time of each program as a share of the first one's.

    Args:
      ratios: median ratio and its 95 % interval, by name.
    """
    figure, (axes,) = new_figure([0.6 + 0.25 * len(ratios)])
    middle, low, high = np.transpose(list(ratios.values()))
    axes.barh(list(ratios), middle, color=COLOURS[0])
    errors = np.where(np.isfinite(high), [middle - low, high - middle], 0)
    axes.errorbar(middle, range(len(middle)), xerr=errors, fmt="none", color="0.2", linewidth=0.8)
    axes.invert_yaxis()
    axes.axvline(1, color="0.5", linewidth=0.8)
    first = next(iter(ratios))
    axes.set_xlabel(f"process time, of {first}'s (95 %)")
    return figure


def memory_front(found: Mapping[str, tuple[float, float]], front: Collection[str]) -> "Figure":
    """Return a figure of memory against time, with a line through the programs on the front.

    Args:
      found: bytes and seconds by name.
      front: names of the programs that no other one beats. Others are named in the legend.

    Raises:
      ValueError: `found` is empty.
    """
    check_not_empty(found, "found")
    bytes, seconds = np.transpose(list(found.values()))
    (size, unit), (time, tick) = memory_unit(bytes.max()), time_unit(seconds.max())
    figure, (axes,) = new_figure([2.4])
    line = np.array(sorted(found[name] for name in front)).reshape(-1, 2)
    axes.plot(
        line[:, 0] / unit,
        line[:, 1] / tick,
        "o-",
        color=COLOURS[0],
        markersize=3,
        linewidth=1,
        label="front",
    )
    others = [name for name in found if name not in front]
    for k, name in enumerate(others):
        x, y = found[name]
        colour, marker = COLOURS[1 + k % (len(COLOURS) - 1)], "s^DvPX*"[k % 7]
        axes.plot([x / unit], [y / tick], marker, color=colour, markersize=4, label=name)
    axes.set_xlabel(f"memory with arguments, {size}")
    axes.set_ylabel(f"time by the model, {time}")
    axes.set_xlim(left=0)
    legend_across(figure)
    return figure
