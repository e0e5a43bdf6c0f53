"""Prepare starts of the methods on one graph, and run them."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.runs import Runs, alike, check_cost, timed, timed_runs, top
from experiments.regal import methods
from experiments.regal.methods import DEVICES
from gopt.cost.hardware import Hardware, h100s
from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.execution import evaluate
from gopt.cost.schedule.objectives import objective as cost_of
from gopt.cost.schedule.problem import Problem, prepare
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


class Timed(NamedTuple):
    """A value computed on the host from a graph, and the CPU time that this takes.

    Attributes:
      value: value.
      seconds: CPU time, s.
    """

    value: Any
    seconds: float


class Case(NamedTuple):
    """One graph on the machine, and the starts of methods.

    Attributes:
      host: problem on the host.
      problem: problem on the device.
      graphs: `regal.Inputs`.
      heuristics: keys of all heuristics and of the program's own order, [H + 1, ...].
      proposed: action of `gopt.scheduling.best`.
    """

    host: Problem
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
    host = task(padded, objective)
    read = partial(regal.inputs, settings=regal.Settings(), objective=objective)
    read(padded, host)  # compile first
    best.proposed(host, objective)
    return Case(
        host,
        jax.tree.map(jnp.asarray, host),
        Timed(*timed(lambda: read(padded, host))),
        Timed(*timed(lambda: baselines.heuristic_keys(host))),
        Timed(*timed(lambda: best.proposed(host, objective))),
    )


def heuristics(case: Case, objective: str) -> dict[str, Runs]:
    """Return the result of each heuristic."""
    # The last candidate is the program's own order.
    each = zip(HEURISTICS, _rows(case.heuristics.value), strict=False)
    return {
        heuristic: once(case, objective, keys, schedules_tried(heuristic, DEVICES), None)
        for heuristic, keys in each
    }


def solvers(case: Case, objective: str, seconds: float) -> dict[str, Runs]:
    """Return results of METIS with a depth-first order, and of CP-SAT from the best heuristic.

    Needs the extra `solvers`. CP-SAT gets all cores for these seconds once its model is built, and
    is assumed to keep them busy. It has no model of the makespan under capacities.
    """
    from gopt.heuristics.solvers import cp_sat, metis

    parted, seconds_parted = timed(lambda: metis.partition_depth_first(case.host))
    found = {"GP + DFS": once(case, objective, parted, 1, seconds_parted)}
    if objective not in cp_sat.OBJECTIVES:
        return found
    hint = min(_rows(case.heuristics.value), key=partial(_cost, case.problem, objective=objective))
    workers = cores()
    began = time.perf_counter()
    solved = cp_sat.solve(case.host, hint, objective=objective, seconds=seconds, workers=workers)
    spent = case.heuristics.seconds + workers * (time.perf_counter() - began)
    return {**found, "CP-SAT": once(case, objective, solved.keys, 1, spent)}


def _rows(keys: Keys) -> list[Keys]:
    """Return the candidates of a batch."""
    return [jax.tree.map(lambda x, i=i: x[i], keys) for i in range(len(keys.priority))]


def once(case: Case, objective: str, keys: Keys, evaluations: int, seconds: float | None) -> Runs:
    """Return a single run for a scheduler that finds these keys."""
    cost = np.asarray(_cost(case.problem, keys, objective=objective))[None]
    return Runs(cost, np.array([evaluations]), cost[None], keys, seconds)


def starts(case: Case, learned: tuple[Any, regal.Settings], seed: int) -> dict[str, Timed]:
    """Return the start of each of `methods.searches`.

    `learned` holds the policy's parameters and settings. The policy before training with this seed
    is included, to separate the effect of its initial proposals from the effect of training.
    """
    settings = learned[1]
    first = regal.init(first_key(seed), case.graphs.value, settings=settings)
    untrained, trained = acted(case, (first, settings)), acted(case, learned)
    given, proposed = case.heuristics, case.proposed
    nothing, alone = Timed((), 0.0), Timed((trained.value, None), trained.seconds)
    return {
        "random search": nothing,
        "BRKGA": nothing,
        "tuned BRKGA": nothing,
        "local search from heuristics": given,
        "BRKGA from heuristics": given,
        "REGAL untrained": Timed((untrained.value, None), untrained.seconds),
        "REGAL": alone,
        "REGAL from heuristics": Timed(
            (trained.value, given.value), trained.seconds + given.seconds
        ),
        "best of gopt": Timed(
            best.Starts(given.value, proposed.value), given.seconds + proposed.seconds
        ),
        **dict.fromkeys(methods.WITHOUT_BRKGA, alone),
    }


def first_key(seed: int) -> jax.Array:
    """Return the random key of the initial parameters of a training with a seed."""
    return jax.random.fold_in(jax.random.key(seed), 0)


def acted(case: Case, learned: tuple[Any, regal.Settings]) -> Timed:
    """Return the action of a policy; its time includes reading the graph."""
    params, settings = learned
    act = partial(_action, params, case.graphs.value, settings=settings)
    act()  # compile first
    value, seconds = timed(act)
    return Timed(value, case.graphs.seconds + seconds)


def run(search: Any, keys: jax.Array, case: Case, objective: str, start: Timed) -> Runs:
    """Return the results of a compiled search from each of the random keys `[S]`.

    Raises:
      RuntimeError: the returned schedule does not have the reported cost.
    """
    rows = alike(len(keys), (case.problem, start.value))
    found, seconds = timed_runs(search.lower(keys, *rows).compile(), keys, *rows)
    best_keys = top(found)
    check_cost(found.cost.min(), _cost(case.problem, best_keys, objective=objective))
    spent = start.seconds + seconds
    return Runs(found.cost, found.evaluations[0], found.history, best_keys, spent, start.seconds)


def equal_budgets(found: Sequence[Mapping[str, Runs]], names: Sequence[str]) -> dict[str, int]:
    """Return budgets with which searches take as long as the slowest one, on average over graphs.

    Preparation is assumed to take as long as before, and all evaluations equally long. Budgets are
    in hundreds, and not below the given one. Methods that do not use their whole budget are left
    out.

    Args:
      found: runs of each search on every graph, with one budget.
      names: names of the searches.
    """
    budget = max(int(found[0][name].evaluations[-1]) for name in names)
    names = [name for name in names if found[0][name].evaluations[-1] == budget]
    seconds, ready = (
        {name: np.mean([getattr(each[name], field) for each in found]) for name in names}
        for field in ("seconds", "ready")
    )
    limit = max(seconds.values())
    longer = {name: (limit - ready[name]) / (seconds[name] - ready[name]) for name in names}
    return {name: max(budget, 100 * round(budget * longer[name] / 100)) for name in names}


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
