"""Heuristics and lower bounds, as baselines and starting points for searches."""

from collections.abc import Callable

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.bounds import makespan_bound, peak_bound
from gopt.heuristics.schedule.encode import keys_from_items, keys_in_order
from gopt.heuristics.schedule.orders.memory_orders import ORDERS
from gopt.heuristics.schedule.orders.xla_orders import XLA_ORDERS
from gopt.heuristics.schedule.placement.list_scheduling import critical_path, etf, heft, memory_etf
from gopt.heuristics.schedule.placement.order_splits import (
    SPLIT_METHODS,
    breadth_first,
    depth_first,
    greedy_release,
    xla,
)
from gopt.heuristics.schedule.placement.repair import fit_memory
from gopt.heuristics.schedule.placement.spectral import (
    TURNS,
    op_coordinates,
    spectral_coordinates,
    spectral_cut,
)

HEURISTICS: dict[str, Callable[[Problem], Keys]] = {
    "heft": heft,
    "etf": etf,
    "critical_path": critical_path,
    "depth_first": depth_first,
    "breadth_first": breadth_first,
    "greedy_release": greedy_release,
    "xla": xla,
    "spectral_cut": spectral_cut,
}


def schedules_tried(name: str, devices: int) -> int:
    """Return the number of schedules that a heuristic compares; each counts as one evaluation.

    Args:
      name: heuristic, a key of `HEURISTICS`.
      devices: number of devices.
    """
    splits = devices + len(SPLIT_METHODS) * (devices - 1)
    if name == "xla":
        return len(XLA_ORDERS) + splits
    if name == "spectral_cut":
        return len(ORDERS) + devices + TURNS * (devices - 1)
    return splits if name in ("depth_first", "breadth_first", "greedy_release") else 1


__all__ = (
    "HEURISTICS",
    "breadth_first",
    "critical_path",
    "depth_first",
    "etf",
    "fit_memory",
    "greedy_release",
    "heft",
    "keys_from_items",
    "keys_in_order",
    "makespan_bound",
    "memory_etf",
    "op_coordinates",
    "peak_bound",
    "schedules_tried",
    "spectral_coordinates",
    "spectral_cut",
    "xla",
)
