"""Make the tables of the GO experiment: step times by method, and gains over all rows."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.go.heuristics import Given
from experiments.go.rows import Published
from experiments.harness import statistics, store, tables
from experiments.harness.runs import Runs


class Measured(NamedTuple):
    """Results on one row of the table.

    Attributes:
      name: name of the row.
      family: model family of the row.
      published: step times of the paper.
      ops: number of ops.
      given: decisions known without a search, by name.
      default: name in `given` of the decision that others are compared with.
      begun: name in `given` of the decision that searches started from.
      found: runs of searches, by name.
      bound: lower bound of the step, s; NaN where ops are fused.
      work: run time of a device in a step, mean over devices, s; NaN where ops are fused.
      beyond: names in `given` of decisions that exceed the tasks of the table.
    """

    name: str
    family: str
    published: Published | None
    ops: int
    given: dict[str, Given]
    default: str
    begun: str
    found: dict[str, Runs]
    bound: float
    work: float
    beyond: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of all methods, including the start of searches."""
        return (*self.given, "start of searches", *self.found)

    @property
    def known(self) -> float:
        """The shortest step of all runs of the table's tasks in which memory suffices, s."""
        decided = [steps(self, m) for m in self.methods if m not in self.beyond]
        return float(np.nanmin(np.concatenate(decided)))

    def without_search(self, method: str) -> Given:
        """Return the decision of a method that does not search."""
        return self.given[self.begun if method == "start of searches" else method]


def steps(row: Measured, method: str) -> np.ndarray:
    """Return the step of each run of a method, s, `[S]`; NaN where memory does not suffice.

    Deterministic methods have one run.
    """
    if method in row.found:
        return row.found[method].cost
    makespan = row.without_search(method).makespan
    return np.array([makespan if np.isfinite(makespan) else np.nan])


def within(row: Measured, method: str, seconds: Any) -> np.ndarray:
    """Return the step of each run of a search after some seconds of one core, s, `[S, ...]`.

    All evaluations are assumed to take equally long. The first one counts whenever it is made.
    """
    found = row.found[method]
    return found.after(np.minimum(1, seconds / found.seconds) * found.evaluations[-1])


def gains(
    rows: Sequence[Measured],
    method: str,
    other: str,
    steps: Callable[[Measured, str], np.ndarray] = steps,
) -> np.ndarray:
    """Return 1 − geometric mean over rows of step ÷ step of another method, of each run, `[S]`.

    Rows on which a run of either method does not fit are left out. The other method counts with its
    mean. `steps` returns the step of each run of the method on a row, s, `[S]`.
    """
    each = np.array([steps(row, method) / _mean(row, other) for row in rows])
    each = each[np.isfinite(each).all(1)]
    return 1 - np.exp(np.log(each).mean(0)) if len(each) else np.full(each.shape[1], np.nan)


def _mean(row: Measured, method: str) -> float:
    return float(steps(row, method).mean())


def headroom(default: np.ndarray, method: np.ndarray, known: np.ndarray) -> float:
    """Return the share of the default's headroom that a method captures, by summed log ratios.

    So rows count in proportion to their headroom. Rows without a figure are left out.
    """
    has = np.isfinite(default / method)
    left = np.log(default / known)[has].sum()
    return float(np.log(default / method)[has].sum() / left) if left > 1e-9 else float("nan")


def sooner(rows: Sequence[Measured], method: str, other: str) -> tuple[float, int]:
    """Return the factor of fewer evaluations that a method needs to reach another's final cost.

    The factor is a geometric mean over rows and runs. Its numerator is the evaluations until the
    other method finds its last best, its denominator the evaluations until the mean of these costs
    is reached. Also returns the number of rows on which all runs reach it. Other rows are left out,
    and rows where the method's start is already as good.
    """
    ratios = []
    for row in rows:
        theirs, mine = row.found[other], row.found[method]
        target = theirs.history[:, -1].mean()
        last = theirs.evaluations[np.argmax(theirs.history == theirs.history[:, -1:], 1)]
        first = mine.evaluations[np.argmax(mine.history <= target, 1)]
        begun = mine.history[:, 0] <= target
        if (mine.history[:, -1] <= target).all() and not begun.any():
            ratios.append(np.log(last).mean() - np.log(first).mean())
    return float(np.exp(np.mean(ratios))) if ratios else float("nan"), len(ratios)


def report(title: str, rows: Sequence[Measured], folder: Path) -> None:
    """Print and save two tables: step times of the rows in s, and each method over all rows.

    A third table compares a policy with one that was trained on the row, see `transfer`.

    - over the default, over start: 1 − geometric mean of step ÷ the default's step or the start's,
      with its 95 % interval over runs. The default is an expert, for example. Rows where the memory
      of a device does not suffice are left out;
    - headroom: share of the gap between the default and the best known step that is closed;
    - busy: share of a step in which a device runs ops, mean over devices and rows;
    - core s: CPU time of a run, s, without compilation, mean over rows;
    - in GO's s: over the default, after as many seconds of one core as GO takes on that row;
    - sooner than HDP, or HDP as published: factor of fewer evaluations to reach its final step, see
      `sooner`.
    """
    every, default, searches = rows[0].methods, rows[0].default, rows[0].found
    mean = {m: np.array([_mean(row, m) for row in rows]) for m in every}
    known, work = np.array([row.known for row in rows]), np.array([row.work for row in rows])
    has_bounds = bool(np.isfinite(work).all())

    heads = ["simulated s of a step", "ops", *every, "best known", *["bound"] * has_bounds]
    figures = [*mean.values(), known, *[np.array([row.bound for row in rows])] * has_bounds]
    lines = [(row.name, row.ops, *(_figure(x[k]) for x in figures)) for k, row in enumerate(rows)]
    tables.show(title, heads, lines, folder / "rows.md")

    def over(other: str) -> Callable[[str], str]:
        return lambda method: _percent(gains(rows, method, other))

    def busy(method: str) -> str:
        share = (work / mean[method])[np.isfinite(mean[method])]
        return f"{100 * share.mean():.0f}" if share.size else ""

    def spent(method: str) -> str:
        every = [row.found.get(method) or row.without_search(method) for row in rows]
        return f"{np.mean([one.seconds for one in every]):.1f}"

    def in_time(method: str) -> str:
        def after(row: Measured, method: str) -> np.ndarray:
            return within(row, method, row.found["GO"].seconds)

        return _percent(gains(rows, method, default, after)) if method in searches else ""

    def before(other: str, method: str) -> str:
        if method not in searches:
            return ""
        ratio, count = sooner(rows, method, other)
        return f"{ratio:.1f} ({count} of {len(rows)})" if count else "never"

    columns: dict[str, Callable[[str], Any]] = {
        "method": str,
        f"over {default}, %": over(default),
        "over start, %": over("start of searches"),
        "of headroom, %": lambda m: f"{100 * headroom(mean[default], mean[m], known):.0f}",
        **({"busy, %": busy} if has_bounds else {}),
        "core s": spent,
        **({"in GO's s, %": in_time} if "GO" in searches else {}),
    }
    for other in ("HDP", "HDP, published"):
        if other in searches:
            columns[f"sooner than {other}"] = partial(before, other)
    summary = [[cell(method) for cell in columns.values()] for method in every]
    ratios = [np.log(row.published.go / row.published.human) for row in rows if row.published]
    if default == "expert" and ratios:
        gain = f"{100 * (1 - np.exp(np.mean(ratios))):.1f}"
        summary.append(["published GO-one", gain, *[""] * (len(columns) - 2)])
    tables.show(title, list(columns), summary, folder / "summary.md")
    if {"GO", "GO-one", "GO fine-tuned"} <= set(searches):
        transfer(rows, folder)


def transfer(rows: Sequence[Measured], folder: Path) -> None:
    """Print and save results of a policy on families that it was not trained on, beside GO-one.

    The figure is step ÷ mean step of GO-one, a geometric mean over the rows of a family, with its
    95 % interval over runs. GO-one is trained on the row from scratch. Below 1 the policy is
    better.
    """
    families = {row.family: [one for one in rows if one.family == row.family] for row in rows}
    lines = [
        [family, len(each)]
        + [statistics.plus_minus(1 - gains(each, m, "GO-one"), 3) for m in ("GO", "GO fine-tuned")]
        for family, each in [*families.items(), ("all", rows)]
    ]
    columns = ["family", "rows", "GO / GO-one", "GO fine-tuned / GO-one"]
    tables.show(
        "Steps of a policy trained on other families", columns, lines, folder / "transfer.md"
    )


def save(rows: Sequence[Measured], folder: Path) -> None:
    """Write the figures of every run; decisions are in the files of the rows."""
    values = [
        {
            **row._asdict(),
            "given": {
                m: one._asdict() | {"decision": None, "order": None} for m, one in row.given.items()
            },
            "found": {m: one._replace(best=None)._asdict() for m, one in row.found.items()},
        }
        for row in rows
    ]
    store.save_json(folder / "found.json", values)


def _figure(seconds: float) -> str:
    return f"{seconds:.4f}" if np.isfinite(seconds) else "does not fit"


def _percent(gain: np.ndarray) -> str:
    return statistics.plus_minus(100 * gain, 1)
