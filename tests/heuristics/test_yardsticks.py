"""Heuristics on instances whose best values are known, checked by an independent scorer."""

import functools
import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from gopt.cost.schedule import decoding, execution
from gopt.cost.schedule.problem import prepare, to_bytes
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.heuristics import HEURISTICS, makespan_bound, peak_bound
from gopt.sources.instances import makespan_instance, peak_memory_instance

FOLDER = Path(__file__).parents[2].parent / "shared" / "yardsticks"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs the yardstick files, which do not come with gopt"
)


@functools.cache
def load(name):
    return json.loads((FOLDER / name).read_text())


@pytest.fixture(scope="module")
def score():
    spec = importlib.util.spec_from_file_location("score", FOLDER / "score.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.score


@jax.jit
def schedule_of(problem, keys):
    return execution.simulate(problem, decoding.decode(problem, keys))


def solve(instance, processors, heuristic, shape):
    """Returns devices and starts by task."""
    graph, hardware, seconds, task = makespan_instance(instance, processors)
    problem = prepare(padding.pad(graph, shape), hardware, seconds=seconds)
    assert problem.tick == 1
    best = instance["results"][str(processors)] if "results" in instance else instance
    assert makespan_bound(problem) <= best["best"]
    schedule = schedule_of(problem, HEURISTICS[heuristic](problem))
    device, start = np.zeros(len(task), int), np.zeros(len(task), int)
    device[task] = np.asarray(schedule.device)[: len(task)]
    start[task] = np.asarray(schedule.start)[: len(task)]
    return {"device": device.tolist(), "start": start.tolist()}


def gaps(score, instances, heuristic):
    """Returns the gaps to the best known values, and checks every schedule."""
    rows = [len(instance["tasks"]) + 1 for instance in instances]
    edges = [len(instance["edges"]) + 1 for instance in instances]
    shape = graphs.Shape(max(rows), max(edges), max(edges))
    solutions = [
        {"name": instance["name"], "processors": p, **solve(instance, p, heuristic, shape)}
        for instance in instances
        for p in map(int, instance.get("results", [instance.get("processors")]))
    ]
    found = []
    for name, value, best, _, error in score(instances, solutions):
        assert error is None, (name, error)
        found.append(value / best - 1)
    assert len(found) == len(solutions)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("heuristic, hits", (("heft", 0.7), ("etf", 0.7), ("critical_path", 0.6)))
def test_without_communication(score, heuristic, hits):
    found = gaps(score, load("makespan_nocomm.json")[::10], heuristic)
    assert len(found) == 72
    assert (found < 1e-9).mean() >= hits
    assert found.mean() < 0.015


@pytest.mark.parametrize(
    "heuristic, most", (("heft", 0.15), ("etf", 0.12), ("critical_path", 0.18))
)
def test_planted(score, heuristic, most):
    assert gaps(score, load("makespan_comm_planted.json"), heuristic).mean() < most


@pytest.mark.slow
@pytest.mark.parametrize(
    "heuristic, most", (("heft", 0.27), ("etf", 0.31), ("critical_path", 0.36))
)
def test_small_with_heavy_communication(score, heuristic, most):
    instances = load("makespan_comm_small.json")
    found = []
    for processors in sorted({instance["processors"] for instance in instances}):
        same = [i for i in instances if i["processors"] == processors]
        found.append(gaps(score, same, heuristic))
    assert np.concatenate(found).mean() < most


@pytest.mark.parametrize(
    "heuristic, given, optimal",
    (("depth_first", "dfs", 25), ("breadth_first", "bfs", 15), ("greedy_release", "greedy", 35)),
)
def test_peak_memory(score, heuristic, given, optimal):
    instances = load("peak_memory.json")
    rows = max(len(instance["sizes"]) for instance in instances) + 1
    shape = graphs.Shape(rows, rows, max(len(instance["edges"]) for instance in instances) + 1)
    solutions, claimed = [], []
    for instance in instances:
        graph, hardware, seconds, task = peak_memory_instance(instance)
        problem = prepare(padding.pad(graph, shape), hardware, seconds=seconds)
        assert to_bytes(problem, peak_bound(problem)) <= instance["best"]
        keys = HEURISTICS[heuristic](problem)
        order = np.argsort(keys.priority[: len(task)], kind="stable")
        solutions.append({"name": instance["name"], "order": task[order].tolist()})
        claimed.append(to_bytes(problem, np.asarray(schedule_of(problem, keys).peak).max()))
    found = list(score(instances, solutions))
    assert not [error for *_, error in found if error]
    values = np.array([value for _, value, *_ in found])
    assert values.tolist() == claimed  # the two accounts agree
    best = np.array([instance["best"] for instance in instances])
    simple = np.array([instance["simple_heuristics"][given] for instance in instances])
    assert (values == best).sum() >= optimal
    assert (values / best).mean() <= 1.01 * (simple / best).mean()
