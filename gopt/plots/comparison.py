"""Pictures of programs that were compared by time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gopt.plots.style import COLOURS, new_figure

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
