"""Tables and figures of the experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.harness import statistics, tables
from experiments.harness.plots import save_figure
from experiments.local_advantage.graphs import DEFAULT, Case
from experiments.local_advantage.runs import (
    Pair,
    Row,
    improvement,
    label,
    share,
    share_interval,
    target,
    until,
    written,
)
from gopt.plots.style import COLOURS, LINES, label_decades, new_figure

BASE = "random"  # the search that others are compared with


class Graph(NamedTuple):
    """A graph and the results of the searches on it.

    Attributes:
      case: graph.
      found: runs of searches, by `label`.
    """

    case: Case
    found: Row


def report(graphs: Sequence[Graph], names: Sequence[str], folder: Path, *, title: str) -> None:
    """Print and save the results of searches, and evaluations until they equal random search."""
    starts = list(dict.fromkeys(each.split(", ")[0] for each in graphs[0].found))
    rows = []
    for graph in graphs:
        for start in starts:
            cells = [_mean(improvement(graph.found[label(start, name)])[:, -1]) for name in names]
            known = [_known(graph.case, kind) for kind in ("priority fusion", "nothing")]
            rows.append(
                (graph.case.name, int(graph.case.problem.num_choices), start, *cells, *known)
            )
    tables.show(
        f"Improvement over XLA's default, %: {title}",
        ("graph", "configurable", "start", *names, "priority fusion", "nothing fused"),
        rows,
        folder / "improvement.md",
    )
    _speed(graphs, starts, names, folder)
    _seconds(graphs, starts, names, folder)


def _known(case: Case, kind: str) -> str:
    return f"{100 * (1 - case.costs[kind] / case.costs[DEFAULT]):.2f}"


def _mean(values: np.ndarray) -> str:
    return statistics.plus_minus(100 * values)


def _speed(
    graphs: Sequence[Graph], starts: Sequence[str], names: Sequence[str], folder: Path
) -> None:
    """Print evaluations until the final improvement of random search."""
    rows = []
    for start in starts:
        pairs: dict[str, list[Pair]] = {name: [] for name in names}
        never = dict.fromkeys(names, 0)
        for graph in graphs:
            base = improvement(graph.found[label(start, BASE)])
            goal = target(base)
            own, _ = until(base, goal)
            cells = []
            for name in names:
                counts, failed = until(improvement(graph.found[label(start, name)]), goal)
                cells.append(written(counts, failed))
                pairs[name].append((counts, own))
                never[name] += failed
            rows.append((graph.case.name, start, f"{100 * goal:.2f}", *cells))
        means = [_share(pairs[name], never[name], name == BASE) for name in names]
        rows.append(("geometric mean, of random's", start, "", *means))
        fewer = [sum(share([pair]) < 1 for pair in pairs[name]) for name in names]
        rows.append(
            ("graphs with fewer", start, "", *(f"{count} of {len(graphs)}" for count in fewer))
        )
    tables.show(
        "Evaluations until the final improvement of random search, mean of the runs; those that "
        "never get there, as many as brackets say, count as the budget. Shares with the 95 % "
        "interval of a bootstrap over runs, unless most never get there",
        ("graph", "start", "improvement, %", *names),
        rows,
        folder / "evaluations.md",
    )


def _share(pairs: Sequence[Pair], never: int, is_base: bool) -> str:
    """Return a cell; without the interval if most runs end at their budget."""
    cell, runs = f"{100 * share(pairs):.0f} %", sum(len(found) for found, _ in pairs)
    if is_base or runs == len(pairs) or 2 * never > runs:
        return cell
    low, high = share_interval(pairs)
    return f"{cell} ({100 * low:.0f} to {100 * high:.0f})"


def _seconds(
    graphs: Sequence[Graph], starts: Sequence[str], names: Sequence[str], folder: Path
) -> None:
    """Print the results of searches in the seconds that random search takes."""
    rows = []
    for graph in graphs:
        for start in starts:
            limit = graph.found[label(start, BASE)].seconds
            cells = []
            for name in names:
                runs = graph.found[label(start, name)]
                done = int(min(1.0, limit / runs.seconds) * improvement(runs).shape[1])
                cells.append(_mean(improvement(runs)[:, max(done, 1) - 1]))
            rows.append((graph.case.name, start, f"{limit:.2f}", *cells))
    tables.show(
        "Improvement over XLA's default, %, when random search is over",
        ("graph", "start", "seconds", *names),
        rows,
        folder / "seconds.md",
    )


def draw(graphs: Sequence[Graph], names: Sequence[str], folder: Path) -> None:
    """Save plots of improvement against evaluations, one for each kind of start."""
    for start in dict.fromkeys(each.split(", ")[0] for each in graphs[0].found):
        figure, panels = new_figure([1.25] * len(graphs))
        for axes, graph in zip(panels, graphs, strict=True):
            _panel(axes, graph, start, names)
        panels[-1].set_xlabel("evaluations")
        panels[len(panels) // 2].set_ylabel("improvement over XLA's default, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=7)
        save_figure(folder / f"{start}.png", figure)


def _panel(axes: Any, graph: Graph, start: str, names: Sequence[str]) -> None:
    best = 0.0
    for index, name in enumerate(names):
        runs = 100 * improvement(graph.found[label(start, name)])
        steps = np.unique(np.geomspace(1, runs.shape[1], 200).astype(int))
        runs = runs[:, steps - 1]
        mean, colour = runs.mean(0), COLOURS[index % len(COLOURS)]
        half = np.array([statistics.mean_interval(column)[1] for column in runs.T])
        axes.plot(steps, mean, LINES[index % len(LINES)], color=colour, linewidth=1, label=name)
        axes.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
        best = max(best, float(mean[-1]))
    axes.set_title(graph.case.name, fontsize=7, loc="left", pad=2)
    axes.set_xscale("log")
    label_decades(axes.xaxis)
    top = 1.1 * best or 1.0
    axes.set_ylim(bottom=-0.5 * top if start == "random" else 0, top=top)


def values(graphs: Sequence[Graph]) -> list[Mapping[str, Any]]:
    """Return the figures of all runs, as JSON values."""
    return [
        {
            "graph": graph.case.name,
            "configurable": int(graph.case.problem.num_choices),
            "costs": graph.case.costs,
            "start": name.split(", ", 1)[0],
            "method": name.split(", ", 1)[1],
            "seconds": runs.seconds,
            "improvement": improvement(runs)[:, _kept(improvement(runs).shape[1]) - 1],
            "evaluations": _kept(improvement(runs).shape[1]),
        }
        for graph in graphs
        for name, runs in graph.found.items()
    ]


def _kept(evaluations: int) -> np.ndarray:
    return np.unique(np.geomspace(1, evaluations, 100).astype(int))
