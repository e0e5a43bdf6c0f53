"""Solve scheduling instances of known value with one method, and write the schedules.

    python -m experiments.yardsticks INSTANCES.json --solutions OUT.json --method best

A makespan instance has "tasks", "edges" and "processors", or "results" with a key for each number
of processors. A peak-memory instance has "sizes" and "edges", one of recomputation also "times" and
"budget" (see `gopt.sources.instances`). A solution is {"name", "processors", "device", "start"},
{"name", "order"} or {"name", "runs"}.
"""

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from experiments.harness import command_line, store, tables
from experiments.harness.command_line import UsageError, at_least, choice
from gopt.cost.recompute import problem as recompute_problem
from gopt.cost.recompute.cost import evaluate, runs_of
from gopt.cost.schedule import decoding, execution
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.decoding import Keys, Schedule
from gopt.cost.schedule.problem import Problem, prepare, to_bytes, to_seconds
from gopt.graph import padding
from gopt.heuristics import HEURISTICS
from gopt.heuristics.schedule.evolve import evolve
from gopt.scheduling import best
from gopt.scheduling.recompute import search as recompute_search
from gopt.search.parallel import shard_candidates
from gopt.sources.instances import (
    Instance,
    makespan_instance,
    peak_memory_instance,
    recompute_instance,
)

METHODS = (*HEURISTICS, "brkga", "best")
MAX_RUNS = 3  # of a task in recomputation


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the solver.

    Attributes:
      instances: JSON file of a list of instances, to read.
      solutions: JSON file of a list of solutions, to write.
      method: heft, etf, critical_path, depth_first, breadth_first, greedy_release, xla or
        spectral_cut (heuristics), brkga (with uniform keys) or best. Recomputation has best alone.
      evaluations: budget of a search for each instance; heuristics ignore it.
      seed: seed of everything random.
    """

    instances: tyro.conf.Positional[Path]
    solutions: Path
    method: str = choice(METHODS, "best")
    evaluations: int = at_least(1, 5000)
    seed: int = 0


class Case(NamedTuple):
    """One instance on one number of processors."""

    name: str
    processors: int | None  # None for peak memory
    instance: Instance
    objective: str  # of `gopt.OBJECTIVES`, or "recompute"
    known: float | None  # best known value, in s or bytes
    once: float | None = None  # s, the time without recomputation


def read_cases(path: Path) -> list[Case]:
    """Return the cases of all instances of a file.

    Raises:
      ValueError: the file is not a list of instances; the message names the first bad one.
    """
    try:
        rows = json.loads(path.read_text())
    except ValueError as error:
        raise UsageError(f"{path} is truncated, or no JSON file: {error}") from error
    if not isinstance(rows, list):
        raise UsageError(f"{path} holds a {type(rows).__name__}: expected a list of instances")
    cases = []
    for index, row in enumerate(rows):
        try:
            cases += _cases(row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path}: instance {index} is not valid: {error}") from error
    return cases


def _cases(row: dict[str, Any]) -> list[Case]:
    name, known = row["name"], row.get("best")
    if "budget" in row:
        return [Case(name, None, recompute_instance(row), "recompute", known, row.get("once"))]
    if "sizes" in row:
        return [Case(name, None, peak_memory_instance(row), "peak_memory", known)]
    values = {row["processors"]: known} if "processors" in row else {}
    values |= {int(count): result.get("best") for count, result in row.get("results", {}).items()}
    if not values:
        raise ValueError("no 'sizes', 'processors' or 'results': it is of no known format")
    return [
        Case(name, count, makespan_instance(row, count), "makespan", known)
        for count, known in values.items()
    ]


def solve(cases: Sequence[Case], settings: Settings) -> list[tuple[dict[str, Any], float]]:
    """Return the solution of each case in its file format, and its value in s or bytes.

    Raises:
      UsageError: the method has no recomputation, and there is a case of it.
    """
    again = [case for case in cases if case.objective == "recompute"]
    if again and settings.method != "best":
        raise UsageError(f"{again[0].name} is about recomputation: expected the method best")
    others = [case for case in cases if case.objective != "recompute"]
    solved = zip(others, schedule(others, settings), strict=True)
    rows = {id(case): solution(case, *found) for case, found in solved}
    rows |= {id(case): recompute(case, settings) for case in track(again, settings.method)}
    return [rows[id(case)] for case in cases]


def schedule(cases: Sequence[Case], settings: Settings) -> list[tuple[Problem, Keys]]:
    """Return the problem and the keys of a schedule for each case.

    They depend on the case and the seed alone: a case has its own padding and its own random key.
    Cases of one shape and number of devices are solved together.
    """
    prepared = [_problem(case.instance) for case in cases]
    groups = defaultdict(list)
    for index, (case, problem) in enumerate(zip(cases, prepared, strict=True)):
        groups[case.objective, problem.num_devices, problem.shape].append(index)
    keys: dict[int, Keys] = {}
    for (objective, *_), members in track(groups.items(), settings.method):
        chosen = [prepared[index] for index in members]
        if settings.method in HEURISTICS:
            found = [HEURISTICS[settings.method](problem) for problem in chosen]
        else:
            random = [_random_key(cases[index], settings.seed) for index in members]
            found = search(random, chosen, objective, settings)
        keys |= dict(zip(members, found, strict=True))
    return [(problem, keys[index]) for index, problem in enumerate(prepared)]


def recompute(case: Case, settings: Settings) -> tuple[dict[str, Any], float]:
    """Return the solution of a case of recomputation, and its time in s; infinite if none fits."""
    graph, hardware, seconds, task = case.instance
    problem = recompute_problem.prepare(
        padding.pad(graph), hardware, max_runs=MAX_RUNS, seconds=seconds
    )
    budget = int(hardware.capacity[0] // float(problem.unit))
    found = recompute_search.search(
        _random_key(case, settings.seed),
        problem,
        budget=budget,
        evaluations=settings.evaluations,
        max_runs=MAX_RUNS,
    )
    cost = jax.jit(evaluate)(problem, found.best, budget)
    value = float(cost.ticks) * float(problem.tick) if cost.peak <= budget else np.inf
    return {"name": case.name, "runs": task[runs_of(problem, found.best)].tolist()}, value


def _problem(instance: Instance) -> Problem:
    graph = padding.pad(instance.graph)
    return prepare(graph, instance.hardware, seconds=instance.seconds)


def _random_key(case: Case, seed: int) -> jax.Array:
    # Python's own hash of a string differs between runs.
    name = zlib.crc32(f"{case.name} {case.processors}".encode())
    return jax.random.fold_in(jax.random.key(seed), name)


def search(
    random: Sequence[jax.Array], members: Sequence[Problem], objective: str, settings: Settings
) -> list[Keys]:
    """Return the keys that a search finds for each of several problems of one shape."""
    how: Any = {"objective": objective, "evaluations": settings.evaluations}
    find: Callable[..., Any] = partial(evolve, **how)
    given: tuple[Any, ...] = (jax.numpy.stack(random), problems.stack(members))
    if settings.method == "best":
        find = partial(best.improve, **how)
        starts = [best.starts(problem, objective) for problem in members]
        given += (jax.tree.map(lambda *leaves: np.stack(leaves), *starts),)
    run = jax.jit(shard_candidates(jax.vmap(lambda *args: find(*args).best)))
    keys = jax.tree.map(np.asarray, run(*given))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], keys) for i in range(len(members))]


def solution(case: Case, problem: Problem, keys: Keys) -> tuple[dict[str, Any], float]:
    """Return the solution of a case in its file format, and its value in s or bytes."""
    schedule = _carry_out(problem, keys)
    task = case.instance.task
    if case.objective == "peak_memory":
        items = np.asarray(schedule.order)[: int(schedule.num_items)]
        value = to_bytes(problem, np.asarray(schedule.peak).max())
        return {"name": case.name, "order": task[items].tolist()}, value
    device, start = np.empty(task.size, int), np.empty(task.size)
    device[task] = np.asarray(schedule.device)[: task.size]
    start[task] = to_seconds(problem, schedule.start)[: task.size]
    row = {"name": case.name, "processors": case.processors}
    value = float(to_seconds(problem, schedule.makespan))
    return {**row, "device": device.tolist(), "start": start.tolist()}, value


@jax.jit
def _carry_out(problem: Problem, keys: Keys) -> Schedule:
    return execution.simulate(problem, decoding.decode(problem, keys))


def main(settings: Settings) -> None:
    """Solve the instances, write the solutions and print the gaps to the best known values."""
    began = time.perf_counter()
    cases = read_cases(settings.instances)
    rows = solve(cases, settings)
    store.save_json(settings.solutions, [row for row, _ in rows])
    pairs = zip(cases, rows, strict=True)
    gaps = np.array([value / case.known - 1 for case, (_, value) in pairs if case.known])
    columns: dict[str, Any] = {
        "file": settings.instances.stem,
        "method": settings.method,
        "cases": len(cases),
    }
    columns |= dict.fromkeys(("mean gap", "worst gap", "at best known"), "-")
    if gaps.size:
        columns |= {
            "mean gap": f"{100 * gaps.mean():.2f} %",
            "worst gap": f"{100 * gaps.max():.2f} %",
            "at best known": str(np.count_nonzero(gaps < 1e-9)),
        }
    timed = [(case, value) for case, (_, value) in zip(cases, rows, strict=True)]
    added = [(c.once, c.known, value) for c, value in timed if c.once and c.known]
    least = sum(known - once for once, known, _ in added)
    if least:
        more = sum(value - known for _, known, value in added)
        columns["added time above the least"] = f"{100 * more / least:.2f} %"
    columns["s"] = f"{time.perf_counter() - began:.0f}"
    Console().print(tables.table(tuple(columns), [list(columns.values())]))


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
