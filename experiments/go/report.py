"""The table of the GO experiment: seconds of a step by method, and what they are worth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import common
from experiments.go.heuristics import Placed
from experiments.go.rows import ROWS, Published
from experiments.go.runs import Runs
from gopt import plots


class Measured(NamedTuple):
    """What was found on one row of the table."""

    name: str
    ops: int
    placed: dict[str, Placed]
    found: dict[str, Runs]
    bound: float  # no step is shorter, s

    @property
    def known(self) -> float:
        """The shortest step of all methods and runs, s."""
        placed = (one.makespan for one in self.placed.values())
        return min(*placed, *(float(runs.makespan.min()) for runs in self.found.values()))


def seconds(rows: Sequence[Measured]) -> dict[str, np.ndarray]:
    """Returns the step of each method on each row, s; of searches the mean over runs."""
    first = rows[0]
    placed = {m: np.array([row.placed[m].makespan for row in rows]) for m in first.placed}
    found = {m: np.array([row.found[m].makespan.mean() for row in rows]) for m in first.found}
    return {**placed, **found}


def headroom(expert: np.ndarray, method: np.ndarray, known: np.ndarray) -> float:
    """Returns the share of what experts leave that a method captures, on average over rows.

    Rows on which the expert is the best known have no such share.
    """
    left = expert - known
    has = left > 1e-9 * expert
    return float(np.mean((expert - method)[has] / left[has])) if has.any() else float("nan")


def report(title: str, rows: Sequence[Measured], folder: Path) -> None:
    """Prints and saves both tables: the rows, s, and what each method is worth over all of them.

    - over expert: 1 − geometric mean of step / that of the expert;
    - headroom: what it captures of the gap between expert and best known, on average over rows;
    - evaluations: placements tried; core s: of one core for a run, on average over rows.
    """
    every = seconds(rows)
    columns = ("simulated s of a step", "ops", *every, "best known", "bound")
    table = [
        (
            row.name,
            row.ops,
            *(f"{every[m][k]:.4f}" + ("" if _fits(row, m) else " !") for m in every),
            f"{row.known:.4f}",
            f"{row.bound:.4f}",
        )
        for k, row in enumerate(rows)
    ]
    common.show(f"{title}; ! does not fit", columns, table, folder / "rows.md")
    expert, known = every["expert"], np.array([row.known for row in rows])
    summary: list[tuple[Any, ...]] = []
    for method, step in every.items():
        gain = 1 - float(np.exp(np.log(step / expert).mean()))
        tried, spent = _cost(rows, method)
        share = headroom(expert, step, known)
        cells = (f"{100 * gain:.1f}", f"{100 * share:.0f}", tried, f"{spent:.1f}")
        summary.append((method, *cells))
    summary.append(("published GO-one", f"{100 * _published(rows):.1f}", "", "", ""))
    columns = ("method", "over expert, %", "of headroom, %", "evaluations", "core s")
    common.show(title, columns, summary, folder / "summary.md")


def save(rows: Sequence[Measured], folder: Path) -> None:
    """Writes the figures of every run."""
    values = [
        {
            **row._asdict(),
            "placed": {m: one._asdict() for m, one in row.placed.items()},
            "found": {m: one._asdict() for m, one in row.found.items()},
        }
        for row in rows
    ]
    common.save_json(folder / "found.json", values)


def draw(rows: Sequence[Measured], folder: Path) -> None:
    """Saves the plot of searches: step in shares of the expert's by evaluations, mean over rows."""
    histories: dict[str, Any] = {}
    for method, runs in rows[0].found.items():
        costs = [row.found[method].history.mean(0) / row.placed["expert"].makespan for row in rows]
        histories[method] = runs.evaluations, np.array(costs)
    label = "step / step of the expert"
    common.save_figure(folder / "convergence.png", plots.convergence(histories, label=label))


def _fits(row: Measured, method: str) -> bool:
    return method not in row.placed or row.placed[method].fits


def _cost(rows: Sequence[Measured], method: str) -> tuple[int, float]:
    if method in rows[0].placed:
        tried = max(row.placed[method].tried for row in rows)
        return tried, float(np.mean([row.placed[method].seconds for row in rows]))
    runs = [row.found[method] for row in rows]
    return max(int(one.evaluations[-1]) for one in runs), float(
        np.mean([one.seconds for one in runs])
    )


def _published(rows: Sequence[Measured]) -> float:
    """Returns what the paper's GO gains over its experts, on these rows."""
    published: list[Published] = [ROWS[row.name].published for row in rows]
    return 1 - float(np.exp(np.mean([np.log(one.go / one.human) for one in published])))
