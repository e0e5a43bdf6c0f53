"""Shared style of all figures: width, font, colours, axes and legends."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 3.5  # in
FONT = 8.0  # points
# Wong, "Points of view: color blindness", Nature Methods 8 (2011).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
_LEGEND: dict[str, Any] = {  # style of all legends
    **{"frameon": False, "fontsize": FONT - 1, "borderaxespad": 0.2},
    **{"handlelength": 1.5, "columnspacing": 1},
}


def new_figure(heights: Sequence[float]) -> tuple["Figure", list["Axes"]]:
    """Return a figure with axes below each other, and the axes.

    Args:
      heights: height of each axes, in inches.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"font.size": FONT, "axes.linewidth": 0.6, "axes.labelsize": FONT}
    style |= {"xtick.labelsize": FONT - 1, "ytick.labelsize": FONT - 1}
    with rc_context(style):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.2), dpi=200, layout="constrained")
        grid = figure.subplots(len(heights), squeeze=False, height_ratios=heights)
    axes = list(grid[:, 0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend(axes: "Axes", *, columns: int, **kwargs: Any) -> None:
    """Add a legend above the axes, where it hides nothing.

    Args:
      axes: axes of the legend.
      columns: number of columns.
      **kwargs: further arguments of `Axes.legend`.
    """
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderpad=0, **_LEGEND, **kwargs
    )


def legend_across(figure: "Figure") -> None:
    """Add a legend of long names above the axes, as wide as the figure."""
    figure.legend(loc="outside upper left", ncols=2, **_LEGEND)


def label_decades(axis: "Axis") -> None:
    """Label 1, 2 and 5 of each decade of a logarithmic axis; large counts as 1k, 2k, 5k."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    least, most = axis.get_data_interval()
    is_large = least >= 1 and most >= 1000
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(EngFormatter(sep="") if is_large else "{x:g}")
    axis.set_minor_locator(NullLocator())


def check_not_empty(values: Mapping[str, Any], field: str) -> None:
    """Check that there is something to draw.

    Args:
      values: values to draw.
      field: name of the argument, for the message.

    Raises:
      ValueError: `values` is empty.
    """
    if not values:
        raise ValueError(f"{field} is empty: nothing to draw")
