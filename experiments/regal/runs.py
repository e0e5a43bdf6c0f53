"""What methods start from on one graph, and what they reach."""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.regal.methods import DEVICES
from gopt.classical import HEURISTICS, schedules_tried
from gopt.cost.execution import Keys, evaluate
from gopt.cost.execution import objective as cost_of
from gopt.graph import Graph, Shape
from gopt.hardware import Hardware, h100s
from gopt.nets.graphs import GraphsTuple, to_graphs_tuple
from gopt.padding import bucket, pad
from gopt.problem import Problem, prepare
from gopt.systems import best, regal

# Smaller graphs are padded to this: to compile for one more shape takes longer than to search.
SMALLEST = Shape(ops=1024, tensors=1024, uses=2048)


def machine(objective: str) -> Hardware:
    """Returns two equal devices; transfers are synchronous where memory is what counts.

    So the accounting of memory is exact.
    """
    return h100s(DEVICES)._replace(synchronous=np.bool_(objective == "peak_memory"))


class Runs(NamedTuple):
    """What a method reached on one graph in `S` runs."""

    cost: np.ndarray  # [S]
    evaluations: np.ndarray  # [K]
    history: np.ndarray  # [S, K], best cost by then
    keys: Keys  # of the best run
    seconds: float | None  # of one core, for each run, without compilation; None: not timed


class Case(NamedTuple):
    """One graph on the machine, and what methods start from, with the seconds to make it."""

    host: Problem
    problem: Problem  # the same on the device
    graphs: GraphsTuple
    to_read: float  # s
    starts: best.Starts
    to_start: float  # s


def case(graph: Graph, objective: str) -> Case:
    """Returns one graph, ready for every method."""
    padded = pad(graph, Shape(*map(max, bucket(graph), SMALLEST)))
    host = prepare(padded, machine(objective))
    began = time.perf_counter()
    graphs = to_graphs_tuple(padded)
    read = time.perf_counter()
    starts = best.starts(host, objective)
    started = time.perf_counter()
    problem = jax.tree.map(jnp.asarray, host)
    return Case(host, problem, graphs, read - began, starts, started - read)


def heuristics(case: Case, objective: str) -> dict[str, Runs]:
    """Returns what each heuristic reaches."""
    each = zip(HEURISTICS, _rows(case.starts.keys), strict=False)  # then the program's own order
    return {
        heuristic: once(case, objective, keys, schedules_tried(heuristic, DEVICES), None)
        for heuristic, keys in each
    }


def solvers(case: Case, objective: str, seconds: float) -> dict[str, Runs]:
    """Returns what METIS with a depth-first order, and CP-SAT from the best heuristic, reach.

    Needs the extra `solvers`. CP-SAT gets all cores for these seconds.
    """
    from gopt.classical import cp_sat, partition

    began = time.perf_counter()
    parted = partition.partition_depth_first(case.host)
    to_part = time.perf_counter() - began
    cost = partial(_cost, case.problem, objective=objective)
    hint = min(_rows(case.starts.keys), key=cost)
    cores = jax.device_count()
    began = time.perf_counter()
    solved = cp_sat.solve(case.host, hint, objective=objective, seconds=seconds, workers=cores)
    to_solve = case.to_start + cores * (time.perf_counter() - began)
    return {
        "GP + DFS": once(case, objective, parted, 1, to_part),
        "CP-SAT": once(case, objective, solved.keys, 1, to_solve),
    }


def _rows(keys: Keys) -> list[Keys]:
    """Returns the candidates of a batch."""
    return [jax.tree.map(lambda x, i=i: x[i], keys) for i in range(len(keys.priority))]


def once(case: Case, objective: str, keys: Keys, evaluations: int, seconds: float | None) -> Runs:
    """Returns the only run of a scheduler that finds these keys."""
    cost = np.asarray(_cost(case.problem, keys, objective=objective))[None]
    return Runs(cost, np.array([evaluations]), cost[None], keys, seconds)


class Start(NamedTuple):
    """What a search starts from on one graph, and how many seconds of the host that takes."""

    value: Any
    seconds: float


def starts(case: Case, learned: tuple[Any, regal.Settings], seed: int) -> dict[str, Start]:
    """Returns what each of `SEARCHES` starts from.

    The policy, parameters and settings, is also taken untrained, to tell what its initial
    proposals do from what it learned.
    """
    params, settings = learned
    first = jax.random.fold_in(jax.random.key(seed), 0)  # as in training
    untrained = regal.init(first, case.graphs, settings=settings).params
    nothing = Start((), 0.0)
    given = Start(case.starts.keys, case.to_start)
    actions = []
    for weights in (untrained, params):
        _action(weights, case.graphs, settings=settings)  # compiles
        began = time.perf_counter()
        action = jax.block_until_ready(_action(weights, case.graphs, settings=settings))
        actions.append(Start(action, case.to_read + time.perf_counter() - began))
    proposed, lead = actions
    return {
        "random search": nothing,
        "local search": given,
        "BRKGA": nothing,
        "BRKGA from heuristics": given,
        "REGAL untrained": proposed._replace(value=(proposed.value, None)),
        "REGAL": lead._replace(value=(lead.value, None)),
        "REGAL from heuristics": Start((lead.value, given.value), lead.seconds + given.seconds),
        "best of gopt": Start(case.starts, case.to_start),
    }


def run(search: Any, keys: jax.Array, case: Case, objective: str, start: Start) -> Runs:
    """Returns what a compiled search reaches from each of the random keys `[S]`.

    Raises:
      RuntimeError: the schedule that is returned costs something else than is said.
    """
    rows = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(keys), *x.shape)), (case.problem, start.value)
    )
    ready = search.lower(keys, *rows).compile()
    began = time.perf_counter()
    result = jax.block_until_ready(ready(keys, *rows))
    cores = min(len(keys), jax.device_count())
    seconds = start.seconds + (time.perf_counter() - began) * cores / len(keys)
    result = jax.device_get(result)
    top = int(np.argmin(result.cost))
    best_keys = jax.tree.map(lambda x: x[top], result.keys)
    again = float(_cost(case.problem, best_keys, objective=objective))
    if again != float(result.cost[top]):
        raise RuntimeError(f"a search reports {result.cost[top]}, its schedule {again}")
    return Runs(result.cost, result.evaluations[0], result.history, best_keys, seconds)


def pinned(problem: Problem) -> float:
    """Returns the memory that is always in use on each device, if it is spread evenly, units."""
    return float(jnp.sum(jnp.where(problem.pinned, problem.size, 0.0))) / problem.num_devices


@partial(jax.jit, static_argnames="settings")
def _action(params: Any, graphs: GraphsTuple, settings: regal.Settings) -> jax.Array:
    return regal.action(params, graphs, devices=DEVICES, settings=settings)


@partial(jax.jit, static_argnames="objective")
def _cost(problem: Problem, keys: Keys, objective: str) -> jax.Array:
    return cost_of(problem, evaluate(problem, keys), objective)
