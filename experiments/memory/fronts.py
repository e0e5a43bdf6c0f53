"""Rows of all programs in short: a line for each step, and a picture of one step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.memory.measuring import unbeaten
from gopt.plots.style import COLOURS, legend_across, new_figure
from gopt.plots.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EQUAL = 0.03  # of flop
FEWER = 0.2  # share of a policy's bytes

Row = dict[str, Any]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each step.

    It has the bytes of XLA's better program; the smallest program of a policy and of gopt, as
    shares of it; the number of budgets that gopt kept, of those that a lower bound allows; how many
    policies, that no other policy beats, gopt beats by `FEWER` bytes with at most `EQUAL` more
    flop; and gopt's process time within half and a quarter of the bytes as shares of XLA's default.
    """
    found = []
    for step in dict.fromkeys(row["step"] for row in rows):
        mine = [row for row in rows if row["step"] == step]
        own = [row for row in mine if row["method"].startswith("XLA")]
        policies = [row for row in mine if row["budget"] is None and row not in own]
        gopt = [row for row in mine if row["method"].startswith("gopt")]
        base = min(row["bytes"] for row in own)
        budgets = [row for row in gopt if " of " not in row["method"]]
        costs = {row["method"]: (row["bytes"], row["flop"]) for row in policies}
        best = [row for row in policies if row["method"] in unbeaten(costs) and row["bytes"] < base]
        kept = [row for row in budgets if row["bytes"] <= row["limit"]]
        times = {row["budget"]: row.get("process ratio") for row in kept}
        found.append(
            {
                "step": step,
                "bytes": format_bytes(base),
                "policy": min(row["bytes"] for row in policies) / base,
                "gopt": min((row["bytes"] for row in gopt), default=np.nan) / base,
                "kept": f"{len(kept)}/{len(budgets)}",
                "beaten": f"{sum(_is_beaten_by(row, gopt) for row in best)}/{len(best)}",
                "half": times.get(0.5),
                "quarter": times.get(0.25),
            }
        )
    return found


def _is_beaten_by(policy: Row, gopt: Sequence[Row]) -> bool:
    return any(
        row["bytes"] <= (1 - FEWER) * policy["bytes"]
        and row["flop"] <= (1 + EQUAL) * policy["flop"]
        for row in gopt
    )


def picture(rows: Sequence[Row], step: str) -> "Figure":
    """Return the measured times of a step's programs over their bytes, as shares of XLA's default.

    Args:
      rows: rows of the experiment, timed.
      step: name of the step.
    """
    timed = [row for row in rows if row["step"] == step and "process ratio" in row]
    (base,) = (row["bytes"] for row in timed if row["method"] == "XLA")

    def place(row: Row) -> tuple[float, float]:
        return 100 * row["bytes"] / base, 100 * row["process ratio"][0]

    figure, (axes,) = new_figure([2.4])
    gopt = [row for row in timed if row["method"].startswith("gopt")]
    line = np.array(sorted(place(row) for row in gopt)).reshape(-1, 2)
    axes.plot(*line.T, "o-", color=COLOURS[0], markersize=3, linewidth=1, label="gopt")
    for k, row in enumerate(row for row in timed if row not in gopt):
        colour, marker = COLOURS[1 + k % (len(COLOURS) - 1)], "s^DvPX*"[k % 7]
        name = row["method"] if row["method"].startswith("XLA") else f"policy: {row['method']}"
        axes.plot(*place(row), marker, color=colour, markersize=4, linestyle="", label=name)
    axes.set_xlabel("bytes without arguments, % of XLA's")
    axes.set_ylabel("process time, % of XLA's")
    axes.set_xlim(left=0)
    legend_across(figure)
    return figure
