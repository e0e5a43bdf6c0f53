"""Starts of the methods on one graph, and their runs."""

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

# Smaller graphs are padded to this: to compile for one more shape takes longer than to search.
SMALLEST = Shape(ops=1024, tensors=1024, uses=2048)

# The heuristics that capacities are made from. Other ones do not change the task.
SCALE = (
    *("heft", "etf", "critical_path"),
    *("depth_first", "breadth_first", "greedy_release", "xla"),
)


def machine(objective: str) -> Hardware:
    """Return two equal devices; transfers are synchronous where memory is what counts.

    So the accounting of memory is exact.
    """
    return h100s(DEVICES)._replace(synchronous=np.bool_(objective == "peak_memory"))


def task(graph: Graph, objective: str) -> Problem:
    """Return a graph on the machine, with memory that binds where it is part of the objective."""
    problem = prepare(graph, machine(objective))
    if objective == "capped_makespan":
        problem = problem._replace(capacity=np.full(DEVICES, _tight(problem), np.int32))
    return problem


def _tight(problem: Problem) -> int:
    """Return the geometric mean of two peaks of `SCALE`, units: the lowest, and the fastest's.

    So there is a schedule that fits, and the fastest one does not, unless it is the lowest, too.
    """
    found = [HEURISTICS[name](problem) for name in SCALE]
    costs = jax.device_get(_costs(problem, jax.tree.map(lambda *keys: np.stack(keys), *found)))
    peak = costs.peak.max(-1).astype(np.float64)
    return int(np.sqrt(peak.min() * peak[costs.makespan.argmin()]))


class Timed(NamedTuple):
    """Something that the host makes of a graph, and the process time that this takes."""

    value: Any
    seconds: float


class Case(NamedTuple):
    """One graph on the machine, and what methods start from."""

    host: Problem
    problem: Problem  # the same on the device
    graphs: Timed  # regal.Inputs
    heuristics: Timed  # Keys of all heuristics, and of the program's own order, [H + 1, ...]
    proposed: Timed  # the action of `gopt.scheduling.best`


def padded_graph(graph: Graph) -> Graph:
    """Return a graph of a shape for which programs are compiled once."""
    return pad(graph, Shape(*map(max, bucket(graph), SMALLEST)))


def case(graph: Graph, objective: str) -> Case:
    """Return one graph, ready for every method."""
    padded = padded_graph(graph)
    host = task(padded, objective)
    read = partial(regal.inputs, settings=regal.Settings(), objective=objective)
    read(padded, host)  # compiles
    best.proposed(host, objective)
    return Case(
        host,
        jax.tree.map(jnp.asarray, host),
        Timed(*timed(lambda: read(padded, host))),
        Timed(*timed(lambda: baselines.heuristic_keys(host))),
        Timed(*timed(lambda: best.proposed(host, objective))),
    )


def heuristics(case: Case, objective: str) -> dict[str, Runs]:
    """Return what each heuristic reaches."""
    # The last candidate is the program's own order.
    each = zip(HEURISTICS, _rows(case.heuristics.value), strict=False)
    return {
        heuristic: once(case, objective, keys, schedules_tried(heuristic, DEVICES), None)
        for heuristic, keys in each
    }


def solvers(case: Case, objective: str, seconds: float) -> dict[str, Runs]:
    """Return what METIS with a depth-first order, and CP-SAT from the best heuristic, reach.

    Needs the extra `solvers`. CP-SAT gets all cores for these seconds, after it has made its model,
    and is said to keep them busy all the time. It has no model of the makespan under capacities.
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
    """Return the only run of a scheduler that finds these keys."""
    cost = np.asarray(_cost(case.problem, keys, objective=objective))[None]
    return Runs(cost, np.array([evaluations]), cost[None], keys, seconds)


def starts(case: Case, learned: tuple[Any, regal.Settings], seed: int) -> dict[str, Timed]:
    """Return what each of `methods.searches` starts from.

    The policy, parameters and settings, is also taken as it is before training with this seed, to
    tell what its initial proposals do from what it learned.
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
    """Return the key of the parameters that training with a seed starts from."""
    return jax.random.fold_in(jax.random.key(seed), 0)


def acted(case: Case, learned: tuple[Any, regal.Settings]) -> Timed:
    """Return the action of a policy; to read the graph is part of the time."""
    params, settings = learned
    act = partial(_action, params, case.graphs.value, settings=settings)
    act()  # compiles
    value, seconds = timed(act)
    return Timed(value, case.graphs.seconds + seconds)


def run(search: Any, keys: jax.Array, case: Case, objective: str, start: Timed) -> Runs:
    """Return what a compiled search reaches from each of the random keys `[S]`.

    Raises:
      RuntimeError: the schedule that is returned does not cost what is reported.
    """
    rows = alike(len(keys), (case.problem, start.value))
    found, seconds = timed_runs(search.lower(keys, *rows).compile(), keys, *rows)
    best_keys = top(found)
    check_cost(found.cost.min(), _cost(case.problem, best_keys, objective=objective))
    spent = start.seconds + seconds
    return Runs(found.cost, found.evaluations[0], found.history, best_keys, spent, start.seconds)


def equal_budgets(found: Sequence[Mapping[str, Runs]], names: Sequence[str]) -> dict[str, int]:
    """Return how many evaluations take some searches as long as the slowest of them.

    On average over graphs: to be ready takes as long as before, and evaluations last equally long.
    In hundreds, and no less than they had. What evaluates less than the others, and so does not use
    its budget, is left out.

    Args:
      found: what each of them reached on every graph, with one budget.
      names: of the searches.
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
    """Return what no schedule of a graph can fall below; what is never freed is part of it."""
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
