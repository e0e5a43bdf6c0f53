"""Tables and figures of the experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import common
from experiments.local_advantage.graphs import DEFAULT, Case
from experiments.local_advantage.runs import Row, Runs, needed, target
from gopt.plots.style import COLOURS, LINES, label_decades, new_figure

BASE = "random"  # the search that others are compared with


class Graph(NamedTuple):
    """A graph and what the searches reached on it."""

    case: Case
    found: Row


def report(graphs: Sequence[Graph], names: Sequence[str], folder: Path, *, title: str) -> None:
    """Prints and saves what searches reach, and by when they are as good as random search."""
    evaluations = next(iter(graphs[0].found.values())).improvement.shape[1]
    starts = list(dict.fromkeys(start for start, _ in graphs[0].found))
    rows = []
    for graph in graphs:
        for start in starts:
            cells = [_mean(graph.found[start, name].improvement[:, -1]) for name in names]
            known = [_known(graph.case, kind) for kind in ("priority fusion", "nothing")]
            rows.append(
                (graph.case.name, int(graph.case.problem.num_choices), start, *cells, *known)
            )
    common.show(
        f"Improvement over XLA's default, %: {title}",
        ("graph", "configurable", "start", *names, "priority fusion", "nothing fused"),
        rows,
        folder / "improvement.md",
    )
    _speed(graphs, starts, names, folder, evaluations)
    _seconds(graphs, starts, names, folder)


def _known(case: Case, kind: str) -> str:
    return f"{100 * (1 - case.costs[kind] / case.costs[DEFAULT]):.2f}"


def _mean(values: np.ndarray) -> str:
    mean, half = common.mean_interval(100 * values)
    return f"{mean:.2f} ± {half:.2f}"


def _speed(
    graphs: Sequence[Graph], starts: Sequence[str], names: Sequence[str], folder: Path, budget: int
) -> None:
    """Prints evaluations until the final improvement of random search."""
    rows = []
    for start in starts:
        shares: dict[str, list[float]] = {name: [] for name in names}
        for graph in graphs:
            base = graph.found[start, BASE]
            goal = target(base.improvement)
            counts = needed(base.improvement, goal)
            own = float(np.where(counts == 0, budget, counts).mean())
            cells = []
            for name in names:
                cell, share = _reached(graph.found[start, name], goal, budget, own)
                cells.append(cell)
                shares[name].append(share)
            rows.append((graph.case.name, start, f"{100 * goal:.2f}", *cells))
        # Both sides are censored, random's and the others': this is no bound.
        means = [f"{100 * np.exp(np.mean(np.log(shares[name]))):.0f} %" for name in names]
        rows.append(("geometric mean, of random's", start, "", *means))
        fewer = [f"{sum(s < 1 for s in shares[name])} of {len(graphs)}" for name in names]
        rows.append(("graphs with fewer than random", start, "", *fewer))
    common.show(
        "Evaluations until the final improvement of random search, mean of the runs; those that "
        f"never get there, as many as brackets say, count as {budget}",
        ("graph", "start", "improvement, %", *names),
        rows,
        folder / "evaluations.md",
    )


def _reached(found: Runs, goal: float, budget: int, own: float) -> tuple[str, float]:
    counts = needed(found.improvement, goal)
    never = int((counts == 0).sum())
    mean = np.where(counts == 0, budget, counts).mean()
    cell = f"≥ {mean:.0f} ({never})" if never else f"{mean:.0f}"
    return cell, float(mean / own)


def _seconds(
    graphs: Sequence[Graph], starts: Sequence[str], names: Sequence[str], folder: Path
) -> None:
    """Prints what searches reach in the seconds that random search takes."""
    rows = []
    for graph in graphs:
        for start in starts:
            limit = graph.found[start, BASE].seconds
            cells = []
            for name in names:
                runs = graph.found[start, name]
                done = int(min(1.0, limit / runs.seconds) * runs.improvement.shape[1])
                cells.append(_mean(runs.improvement[:, max(done, 1) - 1]))
            rows.append((graph.case.name, start, f"{limit:.2f}", *cells))
    common.show(
        "Improvement over XLA's default, %, when random search is over",
        ("graph", "start", "seconds", *names),
        rows,
        folder / "seconds.md",
    )


def draw(graphs: Sequence[Graph], names: Sequence[str], folder: Path) -> None:
    """Saves improvement against evaluations, a figure for each start."""
    for start in dict.fromkeys(start for start, _ in graphs[0].found):
        figure, panels = new_figure([1.25] * len(graphs))
        for axes, graph in zip(panels, graphs, strict=True):
            _panel(axes, graph, start, names)
        panels[-1].set_xlabel("evaluations")
        panels[len(panels) // 2].set_ylabel("improvement over XLA's default, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=7)
        common.save_figure(folder / f"{start}.png", figure)


def _panel(axes: Any, graph: Graph, start: str, names: Sequence[str]) -> None:
    best = 0.0
    for index, name in enumerate(names):
        runs = 100 * graph.found[start, name].improvement
        steps = np.unique(np.geomspace(1, runs.shape[1], 200).astype(int))
        runs = runs[:, steps - 1]
        mean, colour = runs.mean(0), COLOURS[index % len(COLOURS)]
        half = np.array([common.mean_interval(column)[1] for column in runs.T])
        axes.plot(steps, mean, LINES[index % len(LINES)], color=colour, linewidth=1, label=name)
        axes.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
        best = max(best, float(mean[-1]))
    axes.set_title(graph.case.name, fontsize=7, loc="left", pad=2)
    axes.set_xscale("log")
    label_decades(axes.xaxis)
    top = 1.1 * best or 1.0
    axes.set_ylim(bottom=-0.5 * top if start == "random" else 0, top=top)


def values(graphs: Sequence[Graph]) -> list[Mapping[str, Any]]:
    """Returns the figures of all runs, as JSON values."""
    return [
        {
            "graph": graph.case.name,
            "configurable": int(graph.case.problem.num_choices),
            "costs": graph.case.costs,
            "start": start,
            "method": name,
            "seconds": runs.seconds,
            "improvement": runs.improvement[:, _kept(runs.improvement.shape[1]) - 1],
            "evaluations": _kept(runs.improvement.shape[1]),
        }
        for graph in graphs
        for (start, name), runs in graph.found.items()
    ]


def _kept(evaluations: int) -> np.ndarray:
    return np.unique(np.geomspace(1, evaluations, 100).astype(int))
