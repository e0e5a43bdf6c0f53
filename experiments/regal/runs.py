"""Prepare starts of the methods on one graph, and run them."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.harness import runs as harness
from experiments.harness.runs import Runs, Timed, alike, timed
from experiments.regal import methods
from experiments.regal.methods import DEVICES
from gopt.cost.hardware import Hardware, h100s
from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.execution import evaluate
from gopt.cost.schedule.objectives import objective as cost_of
from gopt.cost.schedule.problem import MAX_TICKS, Problem, prepare
from gopt.graph.graph import Graph, Shape
from gopt.graph.padding import bucket, pad
from gopt.heuristics import HEURISTICS, makespan_bound, peak_bound, schedules_tried
from gopt.heuristics.schedule import baselines
from gopt.measure.timing import cores
from gopt.scheduling import best
from gopt.systems import regal

# Smaller graphs are padded to this size: compiling another shape takes longer than a search.
SMALLEST = Shape(ops=1024, tensors=1024, uses=2048)

# Heuristics that define the capacities, so that new heuristics do not change the task.
SCALE = (
    *("heft", "etf", "critical_path"),
    *("depth_first", "breadth_first", "greedy_release", "xla"),
)


def machine(objective: str) -> Hardware:
    """Return two equal devices; transfers are synchronous if memory is the objective.

    So memory is accounted exactly.
    """
    return h100s(DEVICES)._replace(synchronous=np.bool_(objective == "peak_memory"))


def task(graph: Graph, objective: str) -> Problem:
    """Return a graph on the machine, with memory that binds if it is part of the objective."""
    problem = prepare(graph, machine(objective))
    if objective == "capped_makespan":
        problem = problem._replace(capacity=np.full(DEVICES, _tight(problem), np.int32))
    return problem


def _tight(problem: Problem) -> int:
    """Return the geometric mean of two peaks of `SCALE`: the lowest, and the fastest schedule's.

    So one schedule fits. The fastest schedule does not fit, unless it also has the lowest peak.
    """
    found = [HEURISTICS[name](problem) for name in SCALE]
    costs = jax.device_get(_costs(problem, jax.tree.map(lambda *keys: np.stack(keys), *found)))
    peak = costs.peak.max(-1).astype(np.float64)
    return int(np.sqrt(peak.min() * peak[costs.makespan.argmin()]))


Learned = tuple[Any, regal.Settings]  # parameters and settings of a policy


class Case(NamedTuple):
    """One graph on the machine, and the starts of methods.

    Attributes:
      problem: graph on the machine.
      graphs: `regal.Inputs`.
      heuristics: keys of all heuristics and of the program's own order, [H + 1, ...].
      proposed: action of `gopt.scheduling.best`.
    """

    problem: Problem
    graphs: Timed
    heuristics: Timed
    proposed: Timed


def padded_graph(graph: Graph) -> Graph:
    """Return a graph of a shape for which programs are compiled once."""
    return pad(graph, Shape(*map(max, bucket(graph), SMALLEST)))


def case(graph: Graph, objective: str) -> Case:
    """Return one graph, ready for every method."""
    padded = padded_graph(graph)
    problem = task(padded, objective)
    read = partial(regal.inputs, settings=regal.Settings(), objective=objective)
    read(padded, problem)  # compile first
    best.proposed(problem, objective)
    return Case(
        problem,
        timed(lambda: read(padded, problem)),
        timed(lambda: baselines.heuristic_keys(problem)),
        timed(lambda: best.proposed(problem, objective)),
    )


def heuristics(case: Case, objective: str) -> dict[str, Runs]:
    """Return the result of each heuristic."""
    # The last candidate is the program's own order.
    each = zip(HEURISTICS, _rows(case.heuristics.value), strict=False)
    return {
        name: once(case, objective, keys, schedules_tried(name, DEVICES), None)
        for name, keys in each
    }


def best_heuristics(tried: Mapping[str, Runs], objective: str) -> dict[str, Runs]:
    """Return the rows of the table that stand for all heuristics."""
    least = int(np.nanargmin([runs.cost[0] for runs in tried.values()]))
    xla = {"XLA's order, split": tried["xla"]} if objective == "peak_memory" else {}
    return {**xla, "best heuristic": list(tried.values())[least]}


def solvers(case: Case, objective: str, seconds: float) -> dict[str, Runs]:
    """Return results of METIS with a depth-first order, and of CP-SAT from the best heuristic.

    Needs the extra `solvers`. CP-SAT gets all cores for these seconds once its model is built, and
    is assumed to keep them busy. It has no model of the makespan under capacities.
    """
    from gopt.heuristics.solvers import cp_sat, metis

    parted, seconds_parted = timed(lambda: metis.partition_depth_first(case.problem))
    found = {"GP + DFS": once(case, objective, parted, 1, seconds_parted)}
    if objective not in cp_sat.OBJECTIVES:
        return found
    hint = min(_rows(case.heuristics.value), key=partial(_cost, case.problem, objective=objective))
    workers = cores()
    began = time.perf_counter()
    solved = cp_sat.solve(case.problem, hint, objective=objective, seconds=seconds, workers=workers)
    spent = case.heuristics.seconds + workers * (time.perf_counter() - began)
    return {**found, "CP-SAT": once(case, objective, solved.keys, 1, spent)}


def _rows(keys: Keys) -> list[Keys]:
    """Return the candidates of a batch."""
    return [jax.tree.map(lambda x, i=i: x[i], keys) for i in range(len(keys.priority))]


def once(case: Case, objective: str, keys: Keys, evaluations: int, seconds: float | None) -> Runs:
    """Return a single run for a scheduler that finds these keys."""
    cost = np.asarray(_cost(case.problem, keys, objective=objective))[None]
    found = Runs(cost, np.array([evaluations]), cost[None], keys, seconds)
    return _fitting(found, objective)


def starts(case: Case, learned: Learned, seed: int) -> dict[str, Timed]:
    """Return the start of each of `methods.searches`.

    The policy before training with this seed is included, to separate the effect of its initial
    proposals from the effect of training.
    """
    given, proposed, nothing = case.heuristics, case.proposed, Timed(None, 0.0)
    alone = acted(case, learned)
    both = Timed((alone.value[0], given.value), alone.seconds + given.seconds)
    every = Timed(best.Starts(given.value, proposed.value), given.seconds + proposed.seconds)
    return {
        **dict.fromkeys(("random search", "BRKGA", "tuned BRKGA"), nothing),
        **dict.fromkeys(("local search from heuristics", "BRKGA from heuristics"), given),
        "REGAL untrained": untrained(case, learned[1], seed),
        "REGAL from heuristics": both,
        "best of gopt": every,
        **dict.fromkeys(("REGAL", *methods.WITHOUT_BRKGA), alone),
    }


def untrained(case: Case, settings: regal.Settings, seed: int) -> Timed:
    """Return the start of REGAL with the policy from which a training with this seed begins."""
    return acted(
        case, (regal.init(first_key(seed), case.graphs.value, settings=settings), settings)
    )


def first_key(seed: int) -> jax.Array:
    """Return the random key of the initial parameters of a training with a seed."""
    return jax.random.fold_in(jax.random.key(seed), 0)


def acted(case: Case, learned: Learned) -> Timed:
    """Return the start of REGAL with a policy; its time includes reading the graph."""
    params, settings = learned
    act = partial(_action, params, case.graphs.value, settings=settings)
    act()  # compile first
    action, seconds = timed(act)
    return Timed((action, None), case.graphs.seconds + seconds)


def run(search: Any, keys: jax.Array, case: Case, objective: str, start: Timed) -> Runs:
    """Return the results of a search from random keys; seconds include the making of its start."""
    rows = alike(len(keys), (case.problem, start.value))
    cost = partial(_cost, case.problem, objective=objective)
    found = harness.run(search.lower(keys, *rows).compile(), keys, *rows, cost=cost)
    found = found._replace(seconds=start.seconds + found.seconds, ready=start.seconds)
    return _fitting(found, objective)


def _fitting(runs: Runs, objective: str) -> Runs:
    """Return runs with costs of NaN for schedules that do not fit, where memory binds."""
    if objective != "capped_makespan":
        return runs
    cost, history = (np.where(x >= MAX_TICKS, np.nan, x) for x in (runs.cost, runs.history))
    return runs._replace(cost=cost, history=history)


def bound(graph: Graph, objective: str) -> int:
    """Return a lower bound of all schedules' costs; memory that is never freed is part of it."""
    least = peak_bound if objective == "peak_memory" else makespan_bound
    return least(task(padded_graph(graph), objective))


@partial(jax.jit, static_argnames="settings")
def _action(params: Any, inputs: regal.Inputs, settings: regal.Settings) -> regal.Action:
    return regal.act(None, params, inputs, settings=settings)


@jax.jit
def _costs(problem: Problem, keys: Keys) -> Cost:
    return jax.vmap(partial(evaluate, problem))(keys)


@partial(jax.jit, static_argnames="objective")
def _cost(problem: Problem, keys: Keys, objective: str) -> jax.Array:
    return cost_of(problem, evaluate(problem, keys), objective)
