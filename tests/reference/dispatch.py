"""Priority dispatch in plain Python: of all ready items, the earliest one is next."""

from typing import Any

from gopt.cost.schedule.problem import Problem
from tests.reference.execution import Plan, ReferenceSchedule, memory, times


def run(problem: Problem, keys: Any) -> ReferenceSchedule:
    """Return the schedule of one candidate, issued in its order of dispatch."""
    plan = Plan(problem, keys)
    order = _dispatch(problem, plan, first_come=keys.priority is None)
    start, end = times(problem, plan, order)
    peak, usage = memory(problem, plan, order)
    return ReferenceSchedule(plan.device, order, start, end, max(end.values()), peak, usage)


def _dispatch(problem: Problem, plan: Plan, *, first_come: bool) -> list[int]:
    waiting = {item: plan.needs(item) for item in [*plan.ops, *plan.transfers]}
    order: list[int] = []
    while waiting:
        _, end = times(problem, plan, order)

        def free(device: int, end: dict[int, int] = end) -> int:
            """Return the end of the last item that occupies a device."""
            on = [item for item in end if device in _occupied(problem, plan, item)]
            return max((end[item] for item in on), default=0)

        def moment(item: int, end: dict[int, int] = end, free: Any = free) -> tuple[float, ...]:
            arrived = max((end[needed] for needed in plan.needs(item)), default=0)
            if item in plan.transfers:
                made = plan.transfers[item][0]
                by_input = problem.is_input[problem.producer[made]]
                return arrived, 1, -1 if by_input else plan.home[made], item
            if problem.is_input[item]:
                return arrived, 0, item
            on = plan.device[item]
            best = arrived if first_come else plan.key(item)
            return max(arrived, free(on)), 2, on, best, item

        order.append(min((i for i, needs in waiting.items() if needs <= end.keys()), key=moment))
        del waiting[order[-1]]
    return order


def _occupied(problem: Problem, plan: Plan, item: int) -> set[int]:
    if item in plan.transfers:
        t, to = plan.transfers[item]
        return {plan.home[t], to} if problem.synchronous else set()
    return set() if problem.is_input[item] else {plan.device[item]}
