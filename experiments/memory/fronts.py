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
# Times in the summary: a clock, and a budget in %.
TIMES = {
    f"{clock} {100 * b:.0f} %": (clock, b) for b in (0.5, 0.25) for clock in ("process", "wall")
}

Row = dict[str, Any]


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each step.

    bytes: of the better of XLA's programs.
    policy, gopt: bytes of the smallest program of a policy, and of gopt where it kept its budget,
      as shares of these.
    kept: budgets that gopt kept, of those that a lower bound allows.
    beaten: policies that gopt beats by `FEWER` bytes with at most `EQUAL` more flop, of those that
      no other policy beats and that need less than XLA.
    `TIMES`: of gopt within a budget, as shares of XLA's default, with 95 % intervals.
    """
    found = []
    for step in dict.fromkeys(row["step"] for row in rows):
        mine = [row for row in rows if row["step"] == step]
        own = [row for row in mine if row["method"].startswith("XLA")]
        policies = [row for row in mine if row["budget"] is None and row not in own]
        gopt = [row for row in mine if row["method"].startswith("gopt")]
        kept = [row for row in gopt if row["bytes"] <= row["limit"]]
        base = min(row["bytes"] for row in own)
        costs = {row["method"]: (row["bytes"], row["flop"]) for row in policies}
        best = [row for row in policies if row["method"] in unbeaten(costs) and row["bytes"] < base]
        times = {row["budget"]: row for row in kept if not _is_beside_policy(row)}
        found.append(
            {
                "step": step,
                "bytes": format_bytes(base),
                "policy": min(row["bytes"] for row in policies) / base,
                "gopt": min((row["bytes"] for row in kept), default=np.nan) / base,
                "kept": f"{len(times)}/{sum(not _is_beside_policy(row) for row in gopt)}",
                "beaten": f"{sum(_is_beaten_by(row, gopt) for row in best)}/{len(best)}",
            }
            | {
                key: times.get(budget, {}).get(f"{clock} ratio")
                for key, (clock, budget) in TIMES.items()
            }
        )
    return found


def _is_beside_policy(row: Row) -> bool:
    """Return whether the budget of a row is a share of a policy's bytes."""
    return " of " in row["method"]


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
