"""Exhaustive search over a tiny problem: every placement, and every order of issue."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from tests.reference.execution import Plan, memory, times


def least_costs(problem: Problem) -> dict[str, int]:
    """Return the shortest makespan, ticks, and the lowest largest peak, units, of any schedule."""
    (n, t, _), devices = problem.shape, problem.num_devices
    least = {"makespan": 2**31, "peak_memory": 2**31}
    for placement in product(range(devices), repeat=int(problem.num_ops)):
        if not all(problem.allowed[op, device] for op, device in enumerate(placement)):
            continue
        place = np.zeros((n, devices))
        place[np.arange(len(placement)), list(placement)] = 1
        plan = Plan(problem, Keys(place, np.zeros(n), np.zeros((t, devices))))
        for order in _orders(plan, []):
            _, end = times(problem, plan, order)
            peak, _ = memory(problem, plan, order)
            least["makespan"] = min(least["makespan"], max(end.values()))
            least["peak_memory"] = min(least["peak_memory"], max(peak))
    return least


def _orders(plan: Plan, issued: list[int]) -> Iterator[list[int]]:
    waiting = [item for item in [*plan.ops, *plan.transfers] if item not in issued]
    if not waiting:
        yield issued
    for item in waiting:
        if plan.needs(item) <= set(issued):
            yield from _orders(plan, [*issued, item])
