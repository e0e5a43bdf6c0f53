"""Make the tables and figures of the local advantage experiment."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness import report, statistics, tables
from experiments.harness.report import Row
from experiments.harness.statistics import Pair, mean_ratio, mean_ratio_interval

BASE = "random"  # the search that others are compared with


def write(title: str, rows: Sequence[Row], folder: Path) -> None:
    """Print and save the results of searches; costs are shares of the default's.

    Args:
      title: title of the tables.
      rows: graphs, with each kind of start in its own row. `about` has the number of
        "configurable" ops, the kind of "start", and "known" costs by name.
      folder: folder of the tables and figures.
    """
    names, known = tuple(rows[0].found), tuple(rows[0].about["known"])
    gain = "Improvement over XLA's default, %"
    tables.show(
        f"{gain}: {title}",
        ("graph", "configurable", "start", *names, *known),
        [
            (
                *(row.name, row.about["configurable"], row.about["start"]),
                *(_mean(row.found[name].cost) for name in names),
                *(f"{100 * (1 - row.about['known'][name]):.2f}" for name in known),
            )
            for row in rows
        ],
        folder / "improvement.md",
    )
    starts = {
        start: [row for row in rows if row.about["start"] == start]
        for start in dict.fromkeys(row.about["start"] for row in rows)
    }
    tables.show(
        "Evaluations until the final improvement of random search, mean of the runs; those that "
        "never get there, as many as brackets say, count as the budget. Shares with the 95 % "
        "interval of a bootstrap over runs, unless most never get there",
        ("graph", "start", "improvement, %", *names),
        [line for start, each in starts.items() for line in _evaluations(start, each, names)],
        folder / "evaluations.md",
    )
    if rows[0].found[BASE].seconds is not None:
        tables.show(
            f"{gain}, when random search is over",
            ("graph", "start", "seconds", *names),
            [
                (
                    *(row.name, row.about["start"], f"{row.found[BASE].seconds:.2f}"),
                    *(_mean(_in_time(row, name)) for name in names),
                )
                for row in rows
            ],
            folder / "seconds.md",
        )
    report.save(rows, folder / "runs.json")
    for start, each in starts.items():
        report.draw_panels(
            {
                row.name: {name: 100 * (1 - row.found[name].history) for name in names}
                for row in each
            },
            folder / f"{start}.png",
            label="improvement over XLA's default, %",
            deepest=-0.5 if start == "random" else 0.0,
        )
    print(f"saved in {folder}")


def _mean(costs: np.ndarray) -> str:
    return statistics.plus_minus(100 * (1 - costs))


def _in_time(row: Row, name: str) -> np.ndarray:
    """Return the cost of each run of a search in the seconds that random search takes."""
    runs = row.found[name]
    return runs.after(min(1.0, row.found[BASE].seconds / runs.seconds) * runs.evaluations[-1])


def _evaluations(start: str, rows: Sequence[Row], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the lines of one kind of start in the table of evaluations."""
    lines = []
    pairs: dict[str, list[Pair]] = {name: [] for name in names}
    never = dict.fromkeys(names, 0)
    for row in rows:
        goal = float(row.found[BASE].cost.mean())
        base, _ = row.found[BASE].until(goal)
        cells = []
        for name in names:
            counts, failed = row.found[name].until(goal)
            cells.append(f"≥ {counts.mean():.0f} ({failed})" if failed else f"{counts.mean():.0f}")
            pairs[name].append((counts, base))
            never[name] += failed
        lines.append((row.name, start, f"{100 * (1 - goal):.2f}", *cells))
    means = [share_cell(pairs[name], never[name], is_base=name == BASE) for name in names]
    fewer = [sum(mean_ratio([pair]) < 1 for pair in pairs[name]) for name in names]
    return [
        *lines,
        ("geometric mean, of random's", start, "", *means),
        ("graphs with fewer", start, "", *(f"{count} of {len(rows)}" for count in fewer)),
    ]


def share_cell(pairs: Sequence[Pair], never: int, *, is_base: bool) -> str:
    """Return the cell of a share; without the interval if most runs never get there."""
    cell, runs = f"{100 * mean_ratio(pairs):.0f} %", sum(len(found) for found, _ in pairs)
    if is_base or runs == len(pairs) or 2 * never > runs:
        return cell
    low, high = mean_ratio_interval(pairs)
    return f"{cell} ({100 * low:.0f} to {100 * high:.0f})"
