"""Make the tables and plots of the REGAL experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness import statistics, store, tables
from experiments.harness.plots import save_figure
from experiments.harness.runs import Runs
from gopt import plots
from gopt.cost.schedule.decoding import decode
from gopt.cost.schedule.execution import simulate
from gopt.cost.schedule.problem import MAX_TICKS, Problem
from gopt.heuristics import HEURISTICS

# Heads of the table of graphs, a column for each method; h: starts from heuristics.
SHORT = {
    "XLA's order, split": "XLA",
    "best heuristic": "best h",
    "random search": "random",
    "tuned BRKGA": "tuned",
    "local search from heuristics": "local + h",
    "BRKGA from heuristics": "BRKGA + h",
    "REGAL untrained": "untrained",
    "REGAL from heuristics": "REGAL + h",
    "best of gopt": "best",
}
DRAWN = (
    *("random search", "BRKGA", "BRKGA from heuristics"),
    *("REGAL untrained", "REGAL", "REGAL from heuristics", "best of gopt"),
    *("samples of the policy", "annealing from the median"),
)


class Row(NamedTuple):
    """Results on one graph.

    Attributes:
      name: name of the graph.
      family: family of the graph.
      found: runs by method.
      long: runs of larger budgets.
      timed: runs of budgets that take equal seconds.
      bound: lower bound of all schedules' costs.
    """

    name: str
    family: str
    found: dict[str, Runs]
    long: dict[str, Runs]
    timed: dict[str, Runs]
    bound: int

    @property
    def known(self) -> float:
        """The least known cost, over all methods."""
        every = [*self.found.values(), *self.long.values(), *self.timed.values()]
        return float(min(runs.cost.min() for runs in every))


def report(title: str, rows: Sequence[Row], folder: Path, *, objective: str) -> None:
    """Print and save the tables: one row for each method, and one for each graph.

    Graphs of a family are alike, so the mean of a family counts as one sample of the interval.
    Columns, of means over families:

    - improvement over BRKGA, and over tuned BRKGA, graph by graph. Where schedules have to fit the
      memory, it is over the best heuristic, because BRKGA does not find a fitting schedule on all
      graphs;
    - of room: improvement as a share of the gap between the reference and the lower bound, which
      perhaps no schedule reaches. Memory that is never freed is part of the bound;
    - at equal seconds: the same improvement, if each search gets as many evaluations as take the
      seconds of the slowest search, on average over the graphs. Empty without such runs;
    - gap to the best known cost, over all methods, seeds, longer runs and runs at equal seconds;
    - of headroom: share that is closed of the reference's gap to the best known cost;
    - seconds of one core for a run, without compilation.

    Where memory binds, a method has figures only if all its schedules fit the memory.
    """
    families = [row.family for row in rows]
    results = [row.found for row in rows]
    mean = _mean_costs(rows, objective)
    known, bound = (np.array([getattr(row, field) for row in rows]) for field in ("known", "bound"))
    against = _against(objective)
    standard, timed = mean[against], _equal_seconds(rows, objective)
    other = mean.get("tuned BRKGA", np.full(len(rows), np.nan))

    def over_families(values: np.ndarray) -> float:
        return float(by_family(values, families).mean())

    def interval(gain: np.ndarray) -> str:
        return percent_interval(gain, families)

    possible, gap = over_families(1 - bound / standard), over_families(standard / known - 1)
    table = []
    for method, cost in mean.items():
        gain = 1 - cost / standard
        left = over_families(cost / known - 1)
        each = [runs[method].seconds for runs in results if method in runs]
        seconds = [second for second in each if second is not None]
        is_standard = method == against
        table.append(
            (
                method,
                "0" if is_standard else interval(gain),
                "" if is_standard else interval(1 - timed[method] / timed[against]),
                "0" if cost is other and not np.isnan(left) else interval(1 - cost / other),
                "0" if is_standard else _share(over_families(gain), possible),
                "" if np.isnan(left) else f"{100 * left:.2f}",
                "0" if is_standard else _share(gap - left, gap),
                f"{np.mean(seconds):.1f}" if seconds else "",
            )
        )
    tables.show(
        f"{title}; {len(rows)} graphs of {len(set(families))} families, means and 95 % intervals "
        "over families; room: above the lower bound; headroom: above the best known; gopt's "
        "performance model",
        (
            *("method", f"improvement over {against}, %", "at equal seconds, %"),
            *("over tuned BRKGA, %", "of room, %"),
            *("gap to best known, %", "of headroom, %", "core s a run"),
        ),
        table,
        folder / "table.md",
    )
    others = [method for method in mean if method != against]
    tables.show(
        f"Improvement over {against} by graph, %; h: from heuristics",
        ("graph", *(SHORT.get(method, method) for method in others)),
        [
            (row.name, *(_percent(1 - mean[m][i] / standard[i]) for m in others))
            for i, row in enumerate(rows)
        ],
        folder / "graphs.md",
    )
    fields = ("cost", "evaluations", "history", "seconds", "ready")
    figures = [
        {
            **{"graph": row.name, "family": row.family, "bound": row.bound, "known": row.known},
            **{
                kind: {m: {f: getattr(each, f) for f in fields} for m, each in runs.items()}
                for kind, runs in (("found", row.found), ("long", row.long), ("timed", row.timed))
            },
        }
        for row in rows
    ]
    store.save_json(folder / "runs.json", figures)


def _mean_costs(rows: Sequence[Row], objective: str) -> dict[str, np.ndarray]:
    """Return the mean cost `[G]` of every method, NaN where a schedule does not fit the memory."""
    mean = {
        m: np.array([_fitting(row.found[m].cost, objective).mean() for row in rows])
        for m in rows[0].found
    }
    tried = {name: mean.pop(name) for name in HEURISTICS}
    mean = {"best heuristic": np.nanmin(list(tried.values()), axis=0), **mean}
    return {"XLA's order, split": tried["xla"], **mean} if objective == "peak_memory" else mean


def _equal_seconds(rows: Sequence[Row], objective: str) -> dict[str, np.ndarray]:
    """Return the means of `_mean_costs` over runs at equal seconds; NaN without such runs.

    Heuristics take less time than all searches that start from them, and count unchanged.
    """
    mean = _mean_costs(rows, objective)
    longer = _mean_costs([row._replace(found=row.found | row.timed) for row in rows], objective)
    is_timed = {*rows[0].timed, "XLA's order, split", "best heuristic"} if rows[0].timed else set()
    unknown = np.full(len(rows), np.nan)
    return {name: longer[name] if name in is_timed else unknown for name in mean}


def _against(objective: str) -> str:
    """Return the method that others are compared with; it has figures on all graphs."""
    return "best heuristic" if objective == "capped_makespan" else "BRKGA"


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{100 * share:+.1f}"


def _fitting(costs: np.ndarray, objective: str) -> np.ndarray:
    """Return costs, NaN for schedules that do not fit where memory binds."""
    too_large = (objective == "capped_makespan") & (costs >= MAX_TICKS)
    return np.where(too_large, np.nan, costs.astype(float))


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:+.0f}" if whole > 0 and not np.isnan(part) else ""


def percent_interval(gain: np.ndarray, families: list[str]) -> str:
    """Return the mean over families of shares `[G]`, with its interval, in %; "" if one is NaN."""
    if np.isnan(gain).any():
        return ""
    return statistics.plus_minus(by_family(100 * gain, families), sign="+")


def by_family(values: np.ndarray, families: list[str]) -> np.ndarray:
    """Return the mean of each family `[F, ...]` of values `[G, ...]`, in alphabetical order."""
    order = sorted(set(families))
    return np.array([values[np.array(families) == name].mean(0) for name in order])


def draw_searches(rows: Sequence[Row], folder: Path, *, objective: str) -> None:
    """Save the plots of best costs against evaluations and seconds, means over families.

    The line of a search begins when it has a fitting schedule of every graph. It ends when the
    search is over on all graphs.
    """
    families = [row.family for row in rows]
    against = _against(objective)
    final = _mean_costs(rows, objective)[against]
    limits = [row.found["BRKGA"].seconds or 0.0 for row in rows]
    shares = np.geomspace(0.05, 8, 240)  # shares of BRKGA's seconds
    histories, timed = {}, {}
    for name in (name for name in DRAWN if name in rows[0].found):
        each = [_fitting(row.found[name].history, objective).mean(0) for row in rows]
        if len(each[0]) == 1:
            continue
        costs = np.array([history / last for history, last in zip(each, final, strict=True)])
        if not np.isnan(costs).any(0).all():
            histories[name] = rows[0].found[name].evaluations, by_family(costs, families)
        costs = np.array(
            [
                [
                    _fitting(row.found[name].within(share * limit), objective).mean() / last
                    for share in shares
                ]
                for row, limit, last in zip(rows, limits, final, strict=True)
            ]
        )
        over = max(
            (row.found[name].seconds or 0.0) / limit
            for row, limit in zip(rows, limits, strict=True)
        )
        is_drawn = ~np.isnan(costs).any(0) & (shares <= over)
        if is_drawn.sum() > 1:
            timed[name] = shares[is_drawn], by_family(costs[:, is_drawn], families)
    label = f"cost / final cost of {against}"
    save_figure(folder / "convergence.png", plots.convergence(histories, label=label))
    figure = plots.convergence(timed, label=label, across="core s / core s of BRKGA")
    save_figure(folder / "seconds.png", figure)


def draw_tradeoff(rows: Sequence[Row], folder: Path, *, objective: str) -> None:
    """Save the plot of gaps against seconds, means over families and over graphs."""
    families = [row.family for row in rows]
    mean, known = _mean_costs(rows, objective), np.array([row.known for row in rows])
    points = {}
    for name, first in rows[0].found.items():
        gap = by_family(100 * (mean.get(name, np.nan) / known - 1), families).mean()
        if first.seconds is not None and not np.isnan(gap):
            seconds = np.mean([row.found[name].seconds for row in rows])
            points[name] = float(seconds), float(gap)
    figure = plots.tradeoff(points, across="core s a run", up="gap to best known, %")
    save_figure(folder / "tradeoff.png", figure)


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
