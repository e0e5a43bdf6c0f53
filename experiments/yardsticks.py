"""Solve scheduling instances of known value with one method, and write the schedules.

    python -m experiments.yardsticks INSTANCES.json --solutions OUT.json --method best

A makespan instance has "tasks", "edges" and "processors", or "results" with a key for each number
of processors. A peak-memory instance has "sizes" and "edges" (see `gopt.sources.instances`). A
solution is {"name", "processors", "device", "start"} or {"name", "order"}.
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
from gopt.cost.schedule import decoding, execution
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.decoding import Keys, Schedule
from gopt.cost.schedule.problem import Problem, prepare, to_bytes, to_seconds
from gopt.graph import padding
from gopt.heuristics import HEURISTICS
from gopt.heuristics.schedule.evolve import evolve
from gopt.scheduling import best
from gopt.search.parallel import shard_candidates
from gopt.sources.instances import Instance, makespan_instance, peak_memory_instance

METHODS = (*HEURISTICS, "brkga", "best")


@dataclass(frozen=True)
class Settings(command_line.Settings):
    """Settings of the solver.

    Attributes:
      instances: JSON file of a list of instances, to read.
      solutions: JSON file of a list of solutions, to write.
      method: heft, etf, critical_path, depth_first, breadth_first, greedy_release, xla or
        spectral_cut (heuristics), brkga (with uniform keys) or best.
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
    objective: str
    known: float | None  # best known value, in s or bytes


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


def solve(cases: Sequence[Case], settings: Settings) -> list[tuple[Problem, Keys]]:
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
    solved = solve(cases, settings)
    rows = [solution(case, *found) for case, found in zip(cases, solved, strict=True)]
    store.save_json(settings.solutions, [row for row, _ in rows])
    pairs = zip(cases, rows, strict=True)
    gaps = np.array([value / case.known - 1 for case, (_, value) in pairs if case.known])
    figures = ["-", "-", "-"]
    if gaps.size:
        hits = np.count_nonzero(gaps < 1e-9)
        figures = [f"{100 * gaps.mean():.2f} %", f"{100 * gaps.max():.2f} %", str(hits)]
    columns = ("file", "method", "cases", "mean gap", "worst gap", "at best known", "s")
    line = [
        settings.instances.stem,
        settings.method,
        len(cases),
        *figures,
        f"{time.perf_counter() - began:.0f}",
    ]
    Console().print(tables.table(columns, [line]))


if __name__ == "__main__":
    command_line.run(main, Settings, __doc__)
