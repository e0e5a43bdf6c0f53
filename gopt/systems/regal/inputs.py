"""Inputs of the policy: features of a graph along a schedule that is good for the objective."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.cost.schedule.decoding import Keys, Schedule, decode
from gopt.cost.schedule.execution import simulate
from gopt.cost.schedule.objectives import population_cost
from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph
from gopt.heuristics import critical_path, etf, heft
from gopt.heuristics.schedule.orders.memory_orders import ORDERS, lowest_order
from gopt.heuristics.schedule.placement.spectral import sides
from gopt.learning.graphs import GraphsTuple, Guide, to_graphs_tuple
from gopt.systems.regal.settings import Settings

_FAST: tuple[Callable[[Problem], Keys], ...] = (heft, etf, critical_path)


class Inputs(NamedTuple):
    """A graph on a machine, as a policy reads it. `N` ops, `E` uses, `D` devices.

    Attributes:
      graphs: features of ops `[N, F]` and uses `[E, 2]`, see `gopt.learning.graphs`.
      directions: float32 `[D, 2]`, direction of each device in the plane of op coordinates.
    """

    graphs: GraphsTuple
    directions: Any


def inputs(
    graph: Graph, problem: Problem, *, settings: Settings, objective: str = "makespan"
) -> Inputs:
    """Return the inputs of a policy; on the host.

    Args:
      graph: the graph, padded or not.
      problem: the same graph, with the same padding, on the machine that it is scheduled for.
      settings: settings of the policy. All read the same.
      objective: objective of the policy, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
    """
    del settings
    graphs = to_graphs_tuple(graph, guide(problem, objective=objective))
    return on_devices(graphs, problem.num_devices)


def on_devices(graphs: GraphsTuple, devices: int) -> Inputs:
    """Return the inputs of a policy from features.

    Args:
      graphs: the graph with features.
      devices: number of devices, `D`.
    """
    return Inputs(graphs, np.asarray(sides(np.arange(devices), devices), np.float32))


def guide(problem: Problem, *, objective: str) -> Guide:
    """Return the schedule that features describe; on the host.

    For the peak memory it is the order with the lowest peak on one device, divided along the
    spectral places. Else it is the fastest list schedule, whether it fits the memory or not: a
    search makes a fast schedule fit more easily than it makes a fitting one fast.
    """
    if objective == "peak_memory":
        return Guide(lowest_order(problem))
    found = [heuristic(problem) for heuristic in _FAST]
    schedule = jax.device_get(_fastest(problem, jax.tree.map(lambda *k: np.stack(k), *found)))
    is_op = (schedule.order >= 0) & (schedule.order < int(problem.num_ops))
    order = schedule.order[is_op].astype(np.int64)
    side = sides(schedule.device, problem.num_devices)
    return Guide(order[~np.asarray(problem.is_input)[order]], side)


def schedules_compared(objective: str) -> int:
    """Return the number of schedules compared for the guide; each is one evaluation."""
    return len(ORDERS if objective == "peak_memory" else _FAST)


@jax.jit
def _fastest(problem: Problem, keys: Keys) -> Schedule:
    """Return the schedule of the candidate with the least makespan."""
    top = population_cost(problem, "makespan")(keys).argmin()
    return simulate(problem, decode(problem, jax.tree.map(lambda leaf: leaf[top], keys)))
