"""Compare searches by measured times: each kernel is compiled and timed once on one CPU core."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import track

from experiments.harness import statistics, tables
from experiments.harness.plots import save_figure
from experiments.local_advantage.methods import ALIKE, GUIDED, RANDOM, starts
from experiments.local_advantage.runs import target, until, written
from gopt.fusion import CPU, KernelTimes, fused
from gopt.fusion.api import parts_of
from gopt.fusion.search import search
from gopt.graph.tracing import from_program
from gopt.heuristics.fusion.presets import instruction_fusion, priority_fusion
from gopt.measure.equality import random_arguments
from gopt.plots import convergence
from gopt.program.program import trace_program
from gopt.search import guided
from gopt.systems import local_advantage
from gopt.workloads.cases import Case, step
from gopt.xla import simplify
from gopt.xla.ordered import MEMORY_SCHEDULER

# From families that the network was not trained on. Small, so that kernels take little time.
BLOCKS: dict[str, Callable[[], Case]] = {
    "mnasnet step": partial(step, "mnasnet", size=64, blocks=(1,) * 7),
    "deeprank step": partial(
        step, "deeprank", batch=20, terms=5, contexts=4, vocabulary=1000, width=32
    ),
}


def compare(
    learned: tuple[Any, local_advantage.Settings],
    *,
    evaluations: int,
    seeds: int,
    seed: int,
    folder: Path,
    blocks: tuple[str, ...] = tuple(BLOCKS),
) -> None:
    """Print the results of guided and random search on each block, and measure whole programs."""
    rows, programs = [], []
    root = jax.random.key(seed)
    for index, name in enumerate(blocks):
        key = jax.random.fold_in(root, index)
        found, whole = _compare(name, learned, evaluations, seeds, key, folder)
        rows += found
        programs += whole
        columns = ("start", "method", "ms at the start", "improvement over the default, %")
        tables.show(
            f"Sums of measured kernels, {evaluations} evaluations, {seeds} seeds",
            ("block", *columns, "evaluations until that of random search"),
            rows,
            folder / "table.md",
        )
        tables.show(
            "Whole programs: process time, and the median ratio to XLA's own with 95 % interval",
            ("block", "program", "sum of kernels, ms", "measured, ms", "of XLA"),
            programs,
            folder / "programs.md",
        )


def _compare(
    name: str,
    learned: tuple[Any, local_advantage.Settings],
    evaluations: int,
    seeds: int,
    key: jax.Array,
    folder: Path,
) -> tuple[list[tuple], list[tuple]]:
    case = BLOCKS[name]()
    program = simplify(trace_program(case.fn, *case.args))
    traced = from_program(program)
    problem = CPU.problem(traced.graph)
    times = KernelTimes(folder / f"{name.replace(' ', '_')}.sqlite")
    params, settings = learned
    graphs = local_advantage.inputs(traced.graph, problem, settings=local_advantage.Settings())
    can = problem.configurable
    flips_and_shifts = guided.flip, *local_advantage.shifts(graphs, can)
    ways: dict[str, dict[str, Any]] = {
        "guided": {
            "guide": local_advantage.guide(params, graphs, can, settings=settings),
            "moves": flips_and_shifts,
            "settings": GUIDED,
        },
        "no network": {
            "guide": local_advantage.uniform(can),
            "moves": flips_and_shifts,
            "settings": ALIKE,
        },
        "random": {"guide": local_advantage.uniform(can), "settings": RANDOM},
    }

    def cost(fuse: np.ndarray) -> float:
        return times.of(program, parts_of(traced, problem, fuse))

    default = instruction_fusion(problem)
    base = cost(default)
    to_start, to_run = jax.random.split(key)
    rows, known = [], {"default": default, "priority fusion": priority_fusion(problem)}
    best: tuple[float, np.ndarray] = (np.inf, default)
    for start, configurations in starts(to_start, default, problem, seeds).items():
        improvements: dict[str, np.ndarray] = {}
        for method, way in ways.items():
            runs = []
            for k in track(range(seeds), f"{name}, {method} from {start}"):
                found = search(
                    jax.random.fold_in(to_run, k),
                    cost,
                    configurations[k],
                    evaluations=evaluations,
                    **way,
                )
                runs.append(found.seconds)
                best = min(best, (found.seconds[-1], found.fuse), key=lambda pair: pair[0])
            improvements[method] = 1 - np.array(runs) / base
        goal = target(improvements["random"])
        for method, improvement in improvements.items():
            gain = statistics.plus_minus(100 * improvement[:, -1])
            first = 1e3 * base * (1 - improvement[:, 0].mean())
            cell = written(*until(improvement, goal))
            rows.append((name, start, method, f"{first:.3f}", gain, cell))
        steps = np.arange(1, evaluations + 1)
        figure = convergence(
            {method: (steps, 100 * runs) for method, runs in improvements.items()},
            label="improvement over XLA's default, %",
        )
        save_figure(folder / f"{name.replace(' ', '_')}_{start}.png", figure)
    known["best found"] = best[1]
    return rows, _whole(
        name, case, program, {k: (parts_of(traced, problem, v), cost(v)) for k, v in known.items()}
    )


def _whole(name: str, case: Case, program: Any, ways: dict[str, tuple[Any, float]]) -> list[tuple]:
    options = MEMORY_SCHEDULER["cpu"]
    args = random_arguments(case.args)
    programs: dict[str, Callable[..., Any]] = {"XLA": jax.jit(case.fn, compiler_options=options)}
    for way, (parts, _) in ways.items():
        programs[way] = jax.jit(fused(program, parts), compiler_options=options)
    calls = {way: partial(program, *args) for way, program in programs.items()}
    measured = statistics.compare_in_rounds(calls, "XLA", repeats=20)
    rows = []
    for way, row in measured.items():
        predicted = f"{1e3 * ways[way][1]:.3f}" if way in ways else ""
        least = tables.milliseconds("times", "process")(row)
        rows.append((name, way, predicted, least, tables.interval(row["ratio"])))
    return rows
