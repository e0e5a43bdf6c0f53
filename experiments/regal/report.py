"""Make the tables and plots of the REGAL experiment."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness import report, tables
from experiments.harness.plots import save_figure
from experiments.harness.report import Row, by_family, gains, mean_costs, percent
from gopt import plots
from gopt.cost.schedule.decoding import decode
from gopt.cost.schedule.execution import simulate
from gopt.cost.schedule.problem import Problem

DRAWN = (
    *("random search", "BRKGA", "BRKGA from heuristics"),
    *("REGAL untrained", "REGAL", "REGAL from heuristics", "best of gopt"),
    *("samples of the policy", "annealing from the median"),
)
HEURISTICS = ("XLA's order, split", "best heuristic")


def write(title: str, rows: Sequence[Row], folder: Path, *, objective: str) -> None:
    """Print and save the tables, one row for each method and one for each graph.

    Columns, of means over families:

    - improvement over BRKGA, and over tuned BRKGA, graph by graph. Where schedules have to fit the
      memory, it is over the best heuristic, because BRKGA does not find a fitting schedule on all
      graphs;
    - of room: improvement as a share of the gap between the reference and the lower bound, which
      perhaps no schedule reaches. Memory that is never freed is part of the bound;
    - at equal seconds: the same improvement, if each search gets as many evaluations as take the
      seconds of the slowest search, on average over the graphs. Heuristics count unchanged, as they
      take less. Empty without such runs;
    - gap to the best known cost, over all methods, seeds, longer runs and runs at equal seconds;
    - of headroom: share that is closed of the reference's gap to the best known cost;
    - seconds of one core for a run, without compilation.

    Where memory binds, a method has figures only if all its schedules fit the memory.
    """
    base = _base(objective)
    methods = list(rows[0].found)
    known, bound = np.array([(row.known, row.about["bound"]) for row in rows]).T
    longer = [
        row._replace(found={m: row.found[m] for m in HEURISTICS if m in row.found} | {**timed})
        for row in rows
        if (timed := row.others["timed"])
    ]

    def mean(values: np.ndarray) -> float:
        return float(by_family(values, rows).mean())

    def gap(method: str) -> float:
        return mean(mean_costs(rows, method) / known - 1)

    def improvement(method: str) -> str:
        return percent(gains(rows, method, base), rows)

    def at_equal_seconds(method: str) -> str:
        if not longer or method == base:
            return ""
        return percent(gains(longer, method, base), rows)

    def over_tuned(method: str) -> str:
        cell = percent(gains(rows, method, "tuned BRKGA"), rows)
        return "0" if cell and method == "tuned BRKGA" else cell

    def of_room(method: str) -> str:
        room = mean(1 - bound / mean_costs(rows, base))
        return report.part_of(mean(gains(rows, method, base)), room)

    def of_headroom(method: str) -> str:
        return report.part_of(gap(base) - gap(method), gap(base))

    def gap_cell(method: str) -> str:
        return "" if np.isnan(gap(method)) else f"{100 * gap(method):.2f}"

    def seconds(method: str) -> str:
        each = [row.found[method].seconds for row in rows]
        return "" if None in each else f"{np.mean(each):.1f}"

    tables.show_rows(
        f"{title}; {len(rows)} graphs of {len({row.family for row in rows})} families, means and "
        "95 % intervals over families; room: above the lower bound; headroom: above the best "
        "known; gopt's performance model",
        methods,
        [
            ("method", str),
            (f"improvement over {base}, %", lambda m: "0" if m == base else improvement(m)),
            ("at equal seconds, %", at_equal_seconds),
            ("over tuned BRKGA, %", over_tuned),
            ("of room, %", lambda m: "0" if m == base else of_room(m)),
            ("gap to best known, %", gap_cell),
            ("of headroom, %", lambda m: "0" if m == base else of_headroom(m)),
            ("core s a run", seconds),
        ],
        folder / "table.md",
    )
    others = [method for method in methods if method != base]
    cells = np.array([100 * gains(rows, method, base) for method in others]).T
    tables.show(
        f"Improvement over {base} by graph, %",
        ("graph", *others),
        [
            (row.name, *("" if np.isnan(cell) else f"{cell:+.1f}" for cell in line))
            for row, line in zip(rows, cells, strict=True)
        ],
        folder / "graphs.md",
    )
    report.save(rows, folder / "runs.json")


def draw(rows: Sequence[Row], folder: Path, *, objective: str) -> None:
    """Save the plots of searches, means over families."""
    report.draw_searches(
        rows,
        DRAWN,
        folder,
        base=_base(objective),
        clock="BRKGA",
        over_rows=lambda shares: by_family(shares.mean(1), rows),
    )
    report.draw_tradeoff(rows, folder / "tradeoff.png")


def _base(objective: str) -> str:
    """Return the method that others are compared with; it has figures on all graphs."""
    return "best heuristic" if objective == "capped_makespan" else "BRKGA"


def draw_schedules(problem: Problem, row: Row, folder: Path) -> None:
    """Save plots of one graph: run times of ops in REGAL's schedule, and its memory."""
    schedules = {
        m: simulate(problem, decode(problem, row.found[m].best)) for m in ("BRKGA", "REGAL")
    }
    figures = {
        "gantt": plots.gantt(problem, schedules["REGAL"]),
        "memory": plots.memory_profile(problem, schedules),
    }
    for name, figure in figures.items():
        figure.suptitle(row.name, fontsize="medium")
        save_figure(folder / f"{name}.png", figure)
