"""Make the tables of the GO experiment: step times by method, and gains over all rows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.go.rows import Published
from experiments.go.tables import Given
from experiments.harness import statistics, store, tables
from experiments.harness.plots import save_figure
from experiments.harness.runs import Runs
from gopt import plots


class Measured(NamedTuple):
    """Results on one row of the table.

    Attributes:
      name: name of the row.
      ops: number of ops.
      given: decisions known without a search, by name.
      default: name in `given` of the decision that others are compared with.
      begun: name in `given` of the decision that searches started from.
      found: runs of searches, by name.
      bound: lower bound of the step, s; NaN where ops are fused.
      work: run time of a device in a step, mean over devices, s; NaN where ops are fused.
      family: model family of the row.
      beyond: names in `given` of decisions that exceed the tasks of the table.
      published: step times of the paper.
    """

    name: str
    ops: int
    given: dict[str, Given]
    default: str
    begun: str
    found: dict[str, Runs]
    bound: float
    work: float
    family: str
    beyond: tuple[str, ...] = ()
    published: Published | None = None

    @property
    def known(self) -> float:
        """The shortest step of all runs of the table's tasks in which memory suffices, s."""
        decided = [steps(self, m) for m in methods(self) if m not in self.beyond]
        return float(np.nanmin(np.concatenate(decided)))


def methods(row: Measured) -> tuple[str, ...]:
    """Return the names of all methods, including the start of searches."""
    return (*row.given, "start of searches", *row.found)


def steps(row: Measured, method: str) -> np.ndarray:
    """Return the step of each run of a method, s, `[S]`; NaN where memory does not suffice.

    Deterministic methods have one run.
    """
    if method in row.found:
        return row.found[method].cost
    given = row.given[row.begun if method == "start of searches" else method]
    return np.array([given.makespan if given.fits else np.nan])


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
    mean.

    Args:
      rows: rows of the table.
      method: name of the method.
      other: name of the method that it is compared with.
      steps: function that returns the step of each run of a method on a row, s, `[S]`.
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
      with its 95 % interval over runs. The default is an expert, for example;
    - headroom: share of the gap between the default and the best known step that is closed;
    - busy: share of a step in which a device runs ops, mean over devices and rows;
    - fits: rows on which the memory of all devices suffices; others are left out;
    - evaluations: decisions tried;
    - core s: CPU time of a run, s, without compilation;
    - in GO's s: over the default, after as many seconds of one core as GO takes on that row;
    - sooner than HDP, or HDP as published: factor of fewer evaluations to reach its final step, see
      `sooner`.
    """
    every, default = methods(rows[0]), rows[0].default
    mean = {m: np.array([steps(row, m).mean() for row in rows]) for m in every}
    columns = ("simulated s of a step", "ops", *every, "best known")
    table = [
        (row.name, row.ops, *map(_figure, (*(mean[m][k] for m in every), row.known)))
        for k, row in enumerate(rows)
    ]
    if np.isfinite([row.bound for row in rows]).all():
        columns = (*columns, "bound")
        table = [(*line, _figure(row.bound)) for line, row in zip(table, rows, strict=True)]
    tables.show(title, columns, table, folder / "rows.md")
    found = rows[0].found
    timed, others = "GO" in found, [name for name in ("HDP", "HDP, published") if name in found]

    def in_time(row: Measured, method: str) -> np.ndarray:
        return within(row, method, row.found["GO"].seconds)

    known, work = (np.array(x) for x in zip(*((row.known, row.work) for row in rows), strict=True))
    summary: list[tuple[Any, ...]] = []
    for method in every:
        tried, spent = _cost(rows, method)
        over = (_percent(gains(rows, method, other)) for other in (default, "start of searches"))
        share = f"{100 * headroom(mean[default], mean[method], known):.0f}"
        is_busy = [_busy(work, mean[method])] if np.isfinite(work).all() else []
        fits = f"{int(np.isfinite(mean[method]).sum())} of {len(rows)}"
        line = [method, *over, share, *is_busy, fits, tried, f"{spent:.1f}"]
        if timed:
            line.append(_percent(gains(rows, method, default, in_time)) if method in found else "")
        line += [_sooner(rows, method, other) if method in found else "" for other in others]
        summary.append(tuple(line))
    heads = ["method", f"over {default}, %", "over start, %", "of headroom, %"]
    heads += ["busy, %"] if np.isfinite(work).all() else []
    heads += ["fits", "evaluations", "core s", *(["in GO's s, %"] if timed else [])]
    heads += [f"sooner than {other}" for other in others]
    if {"GO", "GO-one", "GO fine-tuned"} <= set(found):
        transfer(rows, folder)
    published = [row.published for row in rows if row.published]
    if default == "expert" and published:
        gain = f"{100 * _published(published):.1f}"
        summary.append(("published GO-one", gain, *[""] * (len(heads) - 2)))
    tables.show(title, heads, summary, folder / "summary.md")


def _busy(work: np.ndarray, step: np.ndarray) -> str:
    has = np.isfinite(step)
    return f"{100 * np.mean(work[has] / step[has]):.0f}" if has.any() else ""


def _sooner(rows: Sequence[Measured], method: str, other: str) -> str:
    ratio, count = sooner(rows, method, other)
    return f"{ratio:.1f} ({count} of {len(rows)})" if count else "never"


def transfer(rows: Sequence[Measured], folder: Path) -> None:
    """Print and save results of a policy on families that it was not trained on, beside GO-one.

    The figure is step ÷ mean step of GO-one, a geometric mean over the rows of a family, with its
    95 % interval over runs. GO-one is trained on the row from scratch. Below 1 the policy is
    better.
    """
    families: dict[str, list[Measured]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    lines = [
        [family, len(each), *(_ratio(each, method) for method in ("GO", "GO fine-tuned"))]
        for family, each in [*families.items(), ("all", list(rows))]
    ]
    columns = ["family", "rows", "GO / GO-one", "GO fine-tuned / GO-one"]
    tables.show(
        "Steps of a policy trained on other families", columns, lines, folder / "transfer.md"
    )


def _ratio(rows: Sequence[Measured], method: str) -> str:
    return statistics.plus_minus(1 - gains(rows, method, "GO-one"), 3)


def save(rows: Sequence[Measured], folder: Path) -> None:
    """Write the figures of every run."""
    values = [
        {
            **row._asdict(),
            # The decisions are in the file of the row.
            "given": {
                m: one._asdict() | {"decision": None, "order": None} for m, one in row.given.items()
            },
            "found": {m: one._replace(best=None)._asdict() for m, one in row.found.items()},
        }
        for row in rows
    ]
    store.save_json(folder / "found.json", values)


def draw(rows: Sequence[Measured], folder: Path) -> None:
    """Save plots of searches: step as a share of the default's, by evaluations and by core s.

    Curves are geometric means over rows, like gains. Core s are shares of GO's on each row, if GO
    was run. Rows are left out if a run does not fit at first, or the default does not. HDP is left
    out, too: it ignores the start, and lies far above.
    """
    found = rows[0].found
    begun = [method for method, runs in found.items() if runs.evaluations[0] == 1]
    label = f"step / step of {rows[0].default}"

    def shares(
        at: dict[str, np.ndarray], steps: Callable[[Measured, str], np.ndarray]
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        each = {m: [steps(row, m) / _mean(row, row.default) for row in rows] for m in at}
        fits = [all(np.isfinite(x).all() for x in row) for row in zip(*each.values(), strict=True)]
        if not any(fits):
            return {}
        return {m: (at[m], np.exp(np.log(np.array(x)[fits]).mean(0))) for m, x in each.items()}

    # The evaluations between two figures may depend on the row.
    evaluations = {method: found[method].evaluations for method in begun}
    if drawn := shares(evaluations, lambda row, m: row.found[m].after(evaluations[m])):
        save_figure(folder / "convergence.png", plots.convergence(drawn, label=label))
    if "GO" not in begun:
        return
    spent = {}
    for method in begun:
        longest = max(row.found[method].seconds / row.found["GO"].seconds for row in rows)
        spent[method] = np.geomspace(0.01, max(longest, 0.02), 200)
    if drawn := shares(spent, lambda row, m: within(row, m, spent[m] * row.found["GO"].seconds)):
        figure = plots.convergence(drawn, label=label, across="core s / core s of GO")
        save_figure(folder / "seconds.png", figure)


def _figure(seconds: float) -> str:
    return f"{seconds:.4f}" if np.isfinite(seconds) else "does not fit"


def _percent(gain: np.ndarray) -> str:
    return statistics.plus_minus(100 * gain, 1)


def _cost(rows: Sequence[Measured], method: str) -> tuple[int, float]:
    """Return the most decisions that a method tries, and s of one core, means over rows."""
    if method in rows[0].found:
        found = [row.found[method] for row in rows]
        tried, spent = [int(one.evaluations[-1]) for one in found], [one.seconds for one in found]
    else:
        given = [row.given[row.begun if method not in row.given else method] for row in rows]
        tried, spent = [one.tried for one in given], [one.seconds for one in given]
    return max(tried), float(np.mean(spent))


def _published(rows: Sequence[Published]) -> float:
    """Return the gain of the paper's GO-one over its experts on these rows."""
    return 1 - float(np.exp(np.mean([np.log(one.go / one.human) for one in rows])))
