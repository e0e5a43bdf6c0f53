"""Times and slack of ops in plain Python: each op is delayed, and all ops run again."""

from typing import Any

from gopt.cost.schedule.problem import MAX_TICKS, Problem
from tests.reference.dispatch import run
from tests.reference.execution import Plan, times


def timing(problem: Problem, keys: Any) -> dict[str, list[Any]]:
    """Return the fields of `gopt.cost.schedule.op_times.OpTimes`, without padding."""
    plan, found = Plan(problem, keys), run(problem, keys)

    def left(op: int, *, keeps_device: bool) -> int:
        """Return the part of a delay, longer than any schedule, that does not delay the end."""
        busy = MAX_TICKS if keeps_device else 0
        _, end = times(problem, plan, found.order, late=op, by=MAX_TICKS, busy=busy)
        return found.makespan + MAX_TICKS - max(end.values())

    def transfer_arrival(tensor: int, device: int) -> int:
        item = plan.rows + tensor * plan.devices + device
        return found.end[item] if item in plan.transfers else 0

    return {
        "device": plan.device,
        "arrived": [max((found.end[k] for k in plan.needs(op)), default=0) for op in plan.ops],
        "start": [found.start[op] for op in plan.ops],
        "end": [found.end[op] for op in plan.ops],
        "slack": [left(op, keeps_device=True) for op in plan.ops],
        "local_slack": [left(op, keeps_device=False) for op in plan.ops],
        "transfer_arrival": [
            [transfer_arrival(t, d) for d in range(plan.devices)] for t in plan.tensors
        ],
    }
