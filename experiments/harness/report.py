"""Compare methods over the rows of a table: gains, their intervals, figures, and saved runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.harness import statistics, store
from experiments.harness.plots import save_figure
from experiments.harness.runs import Runs
from gopt import plots
from gopt.plots.style import COLOURS, LINES, label_decades, new_figure

KEPT = 100  # most entries of a saved history


class Row(NamedTuple):
    """Runs of all methods on one row of a table, such as a graph.

    Attributes:
      name: name of the row.
      family: model family. Rows of a family are alike, so their mean is one sample of an interval.
      found: runs by method. The cost of a run is NaN if its result does not fit the memory.
      others: further runs by method, by their kind. All count for the best known cost; tables may
        show them.
      about: further values of the row, saved with its runs.
      beyond: methods that decide more than the others; they do not count for the best known cost.
    """

    name: str
    family: str
    found: Mapping[str, Runs]
    others: Mapping[str, Mapping[str, Runs]] = {}
    about: Mapping[str, Any] = {}
    beyond: Sequence[str] = ()

    @property
    def known(self) -> float:
        """The least known cost, over all methods and runs."""
        found = {method: runs for method, runs in self.found.items() if method not in self.beyond}
        every = [runs for kind in (found, *self.others.values()) for runs in kind.values()]
        return float(np.nanmin(np.concatenate([runs.cost for runs in every])))


def mean_costs(rows: Sequence[Row], method: str) -> np.ndarray:
    """Return the mean cost of a method on each row, `[G]`; NaN if it has none."""
    missing = np.array([np.nan])
    costs = [row.found[method].cost if method in row.found else missing for row in rows]
    return np.array([cost.mean(dtype=float) for cost in costs])


def gains(rows: Sequence[Row], method: str, base: str) -> np.ndarray:
    """Return the share of another method's mean cost that a method saves, `[G]`."""
    return 1 - mean_costs(rows, method) / mean_costs(rows, base)


def by_family(values: np.ndarray, rows: Sequence[Row]) -> np.ndarray:
    """Return the mean of each family `[F, ...]` of values `[G, ...]`, in alphabetical order."""
    families = np.array([row.family for row in rows])
    return np.array([values[families == name].mean(0) for name in sorted(set(families))])


def percent(shares: np.ndarray, rows: Sequence[Row]) -> str:
    """Return the mean over families of shares `[G]`, with its interval, in %; "" if one is NaN."""
    if np.isnan(shares).any():
        return ""
    return statistics.plus_minus(by_family(100 * shares, rows), sign="+")


def part_of(part: float, whole: float) -> str:
    """Return a part in % of the whole as a table cell; empty without a positive whole."""
    return f"{100 * part / whole:+.0f}" if whole > 0 and not np.isnan(part) else ""


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the figures of every run; a long history keeps `KEPT` entries at most."""

    def values(runs: Mapping[str, Runs]) -> dict[str, Any]:
        return {
            method: _shortened(each)._replace(best=None)._asdict() for method, each in runs.items()
        }

    store.save_json(
        path,
        [
            {
                **{"name": row.name, "family": row.family, "known": row.known, **row.about},
                **{kind: values(runs) for kind, runs in {"found": row.found, **row.others}.items()},
            }
            for row in rows
        ],
    )


def _shortened(runs: Runs) -> Runs:
    count = len(runs.evaluations)
    if count <= KEPT:
        return runs
    kept = np.unique(np.geomspace(1, count, KEPT).astype(int)) - 1
    return runs._replace(evaluations=runs.evaluations[kept], history=runs.history[:, kept])


Reduce = Callable[[np.ndarray], np.ndarray]


def draw_searches(
    rows: Sequence[Row],
    methods: Sequence[str],
    folder: Path,
    *,
    base: str,
    clock: str,
    over_rows: Reduce,
) -> None:
    """Save plots of best costs, as shares of another method's, against evaluations and seconds.

    A line begins when all runs of its search have a fitting result on every row. It ends when the
    search is over on all rows.

    Args:
      rows: rows of the table.
      methods: names of the searches to draw; those that are missing or have one entry are left out.
      folder: folder of `convergence.png` and `seconds.png`.
      base: name of the method whose final mean cost is 1.
      clock: name of the search whose seconds are the unit of time.
      over_rows: function that maps shares `[G, S, K]` of rows and runs to samples `[..., K]`.
    """
    final, unit = mean_costs(rows, base), [row.found[clock].seconds or 0.0 for row in rows]
    times = np.geomspace(0.05, 8, 240)  # in units of the clock
    histories, timed = {}, {}
    for name in (name for name in methods if name in rows[0].found):
        each = [row.found[name] for row in rows]
        if len(each[0].evaluations) == 1:
            continue
        costs = np.array([runs.history for runs in each]) / final[:, None, None]
        if not np.isnan(costs).any((0, 1)).all():
            histories[name] = each[0].evaluations, over_rows(costs)
        within = [
            np.stack([runs.within(time * one) for time in times], 1)
            for runs, one in zip(each, unit, strict=True)
        ]
        costs = np.array(within) / final[:, None, None]
        over = max((runs.seconds or 0.0) / one for runs, one in zip(each, unit, strict=True))
        is_drawn = ~np.isnan(costs).any((0, 1)) & (times <= over)
        if is_drawn.sum() > 1:
            timed[name] = times[is_drawn], over_rows(costs[..., is_drawn])
    label = f"cost / final cost of {base}"
    save_figure(folder / "convergence.png", plots.convergence(histories, label=label))
    figure = plots.convergence(timed, label=label, x_label=f"core s / core s of {clock}")
    save_figure(folder / "seconds.png", figure)


def draw_panels(
    curves: Mapping[str, Mapping[str, np.ndarray]], path: Path, *, label: str, deepest: float
) -> None:
    """Save a plot with a panel for each row: curves by evaluations, with intervals over runs.

    Args:
      curves: values after each evaluation, `[S, E]`, by row and method; higher is better.
      path: path of the figure.
      label: label of the value axes.
      deepest: lower end of the value axes, as a share of their upper end.
    """
    figure, panels = new_figure([1.25] * len(curves))
    for axes, (name, methods) in zip(panels, curves.items(), strict=True):
        for index, (method, values) in enumerate(methods.items()):
            steps = np.unique(np.geomspace(1, values.shape[1], 200).astype(int))
            each = [statistics.mean_interval(column) for column in values[:, steps - 1].T]
            mean, half = np.array(each).T
            colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
            axes.plot(steps, mean, line, color=colour, linewidth=1, label=method)
            axes.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
        axes.set_title(name, fontsize=7, loc="left", pad=2)
        axes.set_xscale("log")
        label_decades(axes.xaxis)
        best = max(0.0, *(float(values[:, -1].mean()) for values in methods.values()))
        top = 1.1 * best or 1.0
        axes.set_ylim(bottom=deepest * top, top=top)
    panels[-1].set_xlabel("evaluations")
    panels[len(panels) // 2].set_ylabel(label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=7)
    save_figure(path, figure)


def draw_tradeoff(rows: Sequence[Row], path: Path) -> None:
    """Save a plot of gaps to the best known cost against seconds, means over rows.

    Gaps are means over families. Methods that were not timed, or do not always fit, are left out.
    """
    known, points = np.array([row.known for row in rows]), {}
    for method, first in rows[0].found.items():
        gap = by_family(100 * (mean_costs(rows, method) / known - 1), rows).mean()
        if first.seconds is not None and not np.isnan(gap):
            seconds = np.mean([row.found[method].seconds for row in rows])
            points[method] = float(seconds), float(gap)
    figure = plots.tradeoff(points, x_label="core s a run", y_label="gap to best known, %")
    save_figure(path, figure)


def equal_budgets(found: Sequence[Mapping[str, Runs]], names: Sequence[str]) -> dict[str, int]:
    """Return budgets with which searches take as long as the slowest one, on average over graphs.

    Preparation is assumed to take as long as before, and all evaluations equally long. Budgets are
    in hundreds, and not below the given one. Methods that do not use their whole budget are left
    out.

    Args:
      found: runs of each search on every graph, with one budget.
      names: names of the searches.
    """
    budget = max(int(found[0][name].evaluations[-1]) for name in names)
    names = [name for name in names if found[0][name].evaluations[-1] == budget]
    seconds, ready = (
        {name: np.mean([getattr(each[name], field) for each in found]) for name in names}
        for field in ("seconds", "ready")
    )
    limit = max(seconds.values())
    longer = {name: (limit - ready[name]) / (seconds[name] - ready[name]) for name in names}
    return {name: max(budget, 100 * round(budget * longer[name] / 100)) for name in names}
