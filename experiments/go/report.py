"""Make the tables of the GO experiment: step times by method, and gains over all rows."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from experiments.harness import report, statistics, tables
from experiments.harness.report import Row, mean_costs

START = "start of searches"  # a method; searches follow it in a row


def headroom(default: np.ndarray, method: np.ndarray, known: np.ndarray) -> float:
    """Return the share of the default's headroom that a method captures, by summed log ratios.

    So rows count in proportion to their headroom. Rows without a figure are left out.
    """
    has = np.isfinite(default / method)
    left = np.log(default / known)[has].sum()
    return float(np.log(default / method)[has].sum() / left) if left > 1e-9 else float("nan")


def sooner(rows: Sequence[Row], method: str, other: str) -> tuple[float, int]:
    """Return the factor of fewer evaluations that a method needs to reach another's final cost.

    The factor is a geometric mean over rows and runs. Its numerator is the evaluations until the
    other method finds its last best, its denominator the evaluations until the mean of these costs
    is reached. Also returns the number of rows on which all runs reach it. Other rows are left out,
    and rows where the method's start is already as good.
    """
    ratios = []
    for row in rows:
        theirs, mine = row.found[other], row.found[method]
        last, _ = theirs.until(theirs.history[:, -1:])
        first, missing = mine.until(theirs.history[:, -1].mean())
        if not missing and (first > mine.evaluations[0]).all():
            ratios.append(np.log(last).mean() - np.log(first).mean())
    return float(np.exp(np.mean(ratios))) if ratios else float("nan"), len(ratios)


def write(title: str, rows: Sequence[Row], folder: Path) -> None:
    """Print and save the tables: step times of the rows in s, and each method over all rows.

    - over the default, start or GO-one: 1 − geometric mean of step ÷ its mean step, with the 95 %
      interval over runs. The default is an expert, for example. GO-one is trained on the row from
      scratch. Rows where the memory of a device does not suffice are left out;
    - headroom: share of the gap between the default and the best known step that is closed;
    - busy: share of a step in which a device runs ops, mean over devices and rows;
    - core s: CPU time of a run, s, without compilation, mean over rows;
    - in GO's s: over the default, after as many seconds of one core as GO takes on that row;
    - sooner than HDP, or HDP as published: factor of fewer evaluations to reach its final step, see
      `sooner`.
    """
    report.save(rows, folder / "runs.json")
    methods, about = list(rows[0].found), rows[0].about
    searches, default = methods[methods.index(START) + 1 :], about["default"]
    mean = {method: mean_costs(rows, method) for method in methods}
    known = np.array([row.known for row in rows])
    bounds = ["bound"] if "bound" in about else []

    lines = [
        (row.name, row.about["ops"], *map(_figure, (*step, row.known, *map(row.about.get, bounds))))
        for row, *step in zip(rows, *mean.values(), strict=True)
    ]
    heads = ["simulated s of a step", "ops", *methods, "best known", *bounds]
    tables.show(title, heads, lines, folder / "rows.md")

    def over(other: str) -> Callable[[str], str]:
        return lambda method: _percent(shares(rows, method, other))

    def busy(method: str) -> str:
        share = np.array([row.about["work"] for row in rows]) / mean[method]
        return f"{100 * np.nanmean(share):.0f}" if np.isfinite(share).any() else ""

    def in_time(method: str) -> str:
        costs = [row.found[method].within(row.found["GO"].seconds) for row in rows]
        return _percent(np.array(costs) / mean[default][:, None])

    def before(other: str, method: str) -> str:
        ratio, count = sooner(rows, method, other)
        return f"{ratio:.1f} ({count} of {len(rows)})" if count else "never"

    def searched(cell: Callable[[str], str]) -> Callable[[str], str]:
        return lambda method: cell(method) if method in searches else ""

    columns: dict[str, Callable[[str], str]] = {
        "method": str,
        f"over {default}, %": over(default),
        "over start, %": over(START),
        **({"over GO-one, %": over("GO-one")} if "GO-one" in searches else {}),
        "of headroom, %": lambda m: f"{100 * headroom(mean[default], mean[m], known):.0f}",
        **({"busy, %": busy} if bounds else {}),
        "core s": lambda m: f"{np.mean([row.found[m].seconds for row in rows]):.1f}",
        **({"in GO's s, %": searched(in_time)} if "GO" in searches else {}),
    }
    for other in ("HDP", "HDP, published"):
        if other in searches:
            columns[f"sooner than {other}"] = searched(partial(before, other))
    summary = [[cell(method) for cell in columns.values()] for method in methods]
    every = [row.about["published"] for row in rows if row.about["published"]]
    if default == "expert" and every:
        gain = _percent(np.array([[row.go / row.human] for row in every]))
        summary.append(["published GO-one", gain, *[""] * (len(columns) - 2)])
    tables.show(title, list(columns), summary, folder / "summary.md")


def shares(rows: Sequence[Row], method: str, other: str) -> np.ndarray:
    """Return the step of each run on each row ÷ another method's mean step there, `[G, S]`."""
    return np.array([row.found[method].cost for row in rows]) / mean_costs(rows, other)[:, None]


def _figure(seconds: float) -> str:
    return f"{seconds:.4f}" if np.isfinite(seconds) else "does not fit"


def _percent(shares: np.ndarray) -> str:
    return statistics.plus_minus(100 * statistics.time_saved(shares), 1)
