"""Tables and plots of the REGAL experiment."""

from pathlib import Path

import numpy as np

from experiments import common
from experiments.regal.runs import Runs
from gopt import plots
from gopt.classical import HEURISTICS
from gopt.cost.execution import decode, simulate
from gopt.problem import Problem


def report(
    title: str,
    names: list[str],
    families: list[str],
    results: list[dict[str, Runs]],
    known: np.ndarray,
    pinned: np.ndarray,
    folder: Path,
) -> None:
    """Prints and saves the tables: one row for each method, and one for each graph.

    Graphs of a family are alike, so it is their mean that counts as one sample of the interval.

    Args:
      title: of the table.
      names: of the graphs.
      families: of the graphs.
      results: what each method reached on each graph.
      known: the least cost known of each graph.
      pinned: memory of each graph that no schedule can free, on the device that has least of it.
      folder: where tables and figures are saved.
    """
    mean = {m: np.array([runs[m].cost.mean(dtype=float) for runs in results]) for m in results[0]}
    heuristic = np.min([mean.pop(name) for name in HEURISTICS], axis=0)
    mean = {"best heuristic": heuristic, **mean}
    standard = mean["BRKGA"]
    left = by_family(standard / known - 1, families).mean()
    rows = []
    for method, cost in mean.items():
        gain = by_family(100 * (1 - cost / standard), families)
        middle, error = common.mean_interval(gain)
        above = by_family(100 * (standard - cost) / (standard - pinned), families).mean()
        gap = by_family(cost / known - 1, families).mean()
        timed = [runs[method].seconds for runs in results if method in runs]
        seconds = [each for each in timed if each is not None]
        rows.append(
            (
                method,
                _interval(middle, error) if method != "BRKGA" else "0",
                f"{above:+.2f}" if method != "BRKGA" else "0",
                f"{100 * gap:.2f}",
                f"{100 * (1 - gap / left):.0f}" if left else "",
                f"{np.mean(seconds):.1f}" if seconds else "",
            )
        )
    common.show(
        f"{title}; {len(names)} graphs of {len(set(families))} families, means and 95 % intervals "
        "over families; gopt's performance model",
        (
            *("method", "improvement over BRKGA, %", "above pinned memory, %"),
            *("gap to best known, %", "of the headroom, %", "core s a run"),
        ),
        rows,
        folder / "table.md",
    )
    common.show(
        "Improvement over BRKGA by graph, %",
        ("graph", *(m for m in mean if m != "BRKGA")),
        [
            (
                name,
                *(f"{100 * (1 - mean[m][i] / standard[i]):+.1f}" for m in mean if m != "BRKGA"),
            )
            for i, name in enumerate(names)
        ],
        folder / "graphs.md",
    )
    figures = [
        {
            "graph": name,
            **{
                m: {"cost": runs[m].cost, "history": runs[m].history, "seconds": runs[m].seconds}
                for m in runs
            },
        }
        for name, runs in zip(names, results, strict=True)
    ]
    common.save_json(folder / "runs.json", figures)


def _interval(middle: float, error: float) -> str:
    return f"{middle:+.2f}" + ("" if np.isnan(error) else f" ± {error:.2f}")


def by_family(values: np.ndarray, families: list[str]) -> np.ndarray:
    """Returns the means `[F, ...]` of each family of values `[G, ...]`, in alphabetical order."""
    order = sorted(set(families))
    return np.array([values[np.array(families) == name].mean(0) for name in order])


def draw_searches(families: list[str], results: list[dict[str, Runs]], folder: Path) -> None:
    """Saves the plot of best costs against evaluations, means over families."""
    final = [runs["BRKGA"].cost.mean() for runs in results]
    histories = {}
    for name in ("random search", "local search", "BRKGA", "REGAL", "REGAL from heuristics"):
        each = [
            runs[name].history.mean(0) / last for runs, last in zip(results, final, strict=True)
        ]
        evaluations = results[0][name].evaluations
        histories[name] = evaluations, by_family(np.array(each), families)
    figure = plots.convergence(histories, label="cost / final cost of BRKGA")
    common.save_figure(folder / "convergence.png", figure)


def draw_schedules(problem: Problem, runs: dict[str, Runs], folder: Path) -> None:
    """Saves plots of one graph: when its ops run in the schedule of REGAL, and its memory."""
    schedules = {m: simulate(problem, decode(problem, runs[m].keys)) for m in ("BRKGA", "REGAL")}
    common.save_figure(folder / "gantt.png", plots.gantt(problem, schedules["REGAL"]))
    common.save_figure(folder / "memory.png", plots.memory_profile(problem, schedules))
