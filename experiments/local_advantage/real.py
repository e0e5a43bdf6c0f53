"""Compare searches by measured times: each kernel is compiled and timed once on one CPU core."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from rich.progress import track

from experiments.harness import statistics, tables
from experiments.harness.report import Row
from experiments.harness.runs import Runs
from experiments.local_advantage.methods import ALIKE, GUIDED, RANDOM, starts
from experiments.local_advantage.settings import Settings
from experiments.local_advantage.training import Network
from gopt.fusion import CPU, KernelTimes, fused
from gopt.fusion.configurations import parts_of
from gopt.fusion.search import search
from gopt.graph.tracing import from_program
from gopt.heuristics.fusion.presets import instruction_fusion, priority_fusion
from gopt.measure.equality import random_arguments
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


def rows(network: Network, settings: Settings) -> list[Row]:
    """Return the results of searches on each block, by start; a network guides some of them.

    Times whole programs, too. Prints and saves a table of these times.
    """
    found, programs = list[Row](), list[tuple[str, ...]]()
    for index, name in enumerate(BLOCKS):
        key = jax.random.fold_in(jax.random.key(settings.seed), index)
        each, whole = _block(name, network, settings, key)
        found += each
        programs += whole
    tables.show(
        "Whole programs: process time, and the median ratio to XLA's own with 95 % interval",
        ("block", "program", "sum of kernels, ms", "measured, ms", "of XLA"),
        programs,
        settings.folder / "programs.md",
    )
    return found


def _block(
    name: str, network: Network, settings: Settings, key: jax.Array
) -> tuple[list[Row], list[tuple[str, ...]]]:
    """Return the results of searches on a block, by start, and the lines of whole programs."""
    case = BLOCKS[name]()
    program = simplify(trace_program(case.fn, *case.args))
    traced = from_program(program)
    problem = CPU.problem(traced.graph)
    times = KernelTimes(settings.folder / f"{name.replace(' ', '_')}.sqlite")
    params, sizes = network
    evaluations, seeds = settings.evaluations, settings.seeds
    graphs = local_advantage.inputs(traced.graph, problem, settings=local_advantage.Settings())
    can = problem.configurable
    uniform = local_advantage.uniform(can)
    moves = guided.flip, *local_advantage.shifts(graphs, can)
    learned = local_advantage.guide(params, graphs, can, settings=sizes)
    ways: dict[str, dict[str, Any]] = {
        "guided": {"guide": learned, "moves": moves, "settings": GUIDED},
        "no network": {"guide": uniform, "moves": moves, "settings": ALIKE},
        "random": {"guide": uniform, "settings": RANDOM},
    }

    def cost(fuse: np.ndarray) -> float:
        return times.of(program, parts_of(traced, problem, fuse))

    default, known = instruction_fusion(problem), {"priority fusion": priority_fusion(problem)}
    base = cost(default)
    to_start, to_run = jax.random.split(key)
    about = {
        "configurable": int(problem.num_choices),
        "known": {kind: cost(fuse) / base for kind, fuse in known.items()},
    }
    rows, best = [], (np.inf, default)
    for start, configurations in starts(to_start, default, problem, seeds).items():
        found = {}
        for method, way in ways.items():
            runs = []
            for k in track(range(seeds), f"{name}, {method} from {start}"):
                to_search, begin = jax.random.fold_in(to_run, k), configurations[k]
                one = search(to_search, cost, begin, evaluations=evaluations, **way)
                runs.append(one.seconds)
                best = min(best, (one.seconds[-1], one.fuse), key=lambda pair: pair[0])
            shares = np.array(runs) / base
            found[method] = Runs(shares[:, -1], np.arange(1, evaluations + 1), shares)
        rows.append(Row(name, name.split()[0], found, {}, {"start": start, **about}))
    known = {"default": default, **known, "best found": best[1]}
    programs = {k: (parts_of(traced, problem, fuse), cost(fuse)) for k, fuse in known.items()}
    return rows, _whole(name, case, program, programs)


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
