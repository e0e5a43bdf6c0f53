"""What a policy reads of a graph: its features, along a schedule that is good for the objective."""

from collections.abc import Callable

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

_FAST: tuple[Callable[[Problem], Keys], ...] = (heft, etf, critical_path)


def features(graph: Graph, problem: Problem, *, objective: str) -> GraphsTuple:
    """Returns what a policy for this objective reads of a graph; on the host.

    Args:
      graph: padded or not.
      problem: the same graph, with the same padding, on the machine that it is scheduled for.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
    """
    return to_graphs_tuple(graph, guide(problem, objective=objective))


def guide(problem: Problem, *, objective: str) -> Guide:
    """Returns the schedule that features describe; on the host.

    For the peak memory it is the order that peaks least on one device, parted along the spectral
    places; else the fastest list schedule, whether it fits the memory or not: a search makes it
    fit more easily than it makes one fast that fits.
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
    """Returns how many schedules are compared for the guide, each of them one evaluation."""
    return len(ORDERS if objective == "peak_memory" else _FAST)


@jax.jit
def _fastest(problem: Problem, keys: Keys) -> Schedule:
    """Returns the schedule of that of some candidates which takes least time."""
    top = population_cost(problem, "makespan")(keys).argmin()
    return simulate(problem, decode(problem, jax.tree.map(lambda leaf: leaf[top], keys)))
