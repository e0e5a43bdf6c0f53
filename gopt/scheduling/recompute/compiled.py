"""Plans as programs that XLA has compiled, for this machine or for one that is only described."""

from collections.abc import Callable
from typing import Any

import jax

from gopt.result import Candidate
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.on_this_device import measured
from gopt.scheduling.recompute.plans import Plan
from gopt.scheduling.target import Target
from gopt.xla.applied import executable, jit_donating
from gopt.xla.ordered import COMPILER_OPTIONS, ordered
from gopt.xla.recomputed import in_free_order


def compiled_plan(
    name: str, plan: Plan, args: tuple[Any, ...], *, is_free: bool
) -> Candidate[KernelSchedule]:
    """Return a plan as a candidate, compiled.

    Args:
      name: name of the candidate.
      plan: what runs again, and the order.
      args: arguments of the function; shapes are enough.
      is_free: whether XLA orders kernels, and second runs alone wait.
    """
    schedule = plan.schedule._replace(is_free=is_free)
    target, program = schedule.kernels.target, schedule.kernels.program
    function = jit_schedule(schedule)
    compiled = target.compile(function, args)
    # It runs where its arguments are, and not on a machine that is only described.
    own = function if target.device is None else None
    options = COMPILER_OPTIONS.get(jax.default_backend())
    run = executable(_equations(schedule), options, program, function=own)
    return measured(name, schedule, run, compiled)._replace(predicted=plan.seconds)


def jit_schedule(schedule: KernelSchedule) -> Any:
    """Return a schedule of one device as a function, jitted for the machine of its kernels."""
    kernels = schedule.kernels
    options = COMPILER_OPTIONS.get(kernels.target.platform)
    return jit_donating(_equations(schedule), kernels.program, options)


def _equations(schedule: KernelSchedule) -> Callable[..., Any]:
    kernels = schedule.kernels
    if schedule.is_free:
        return in_free_order(kernels.program, kernels.groups)
    return ordered(kernels.program)


def is_order_free(target: Target) -> bool:
    """Return whether XLA should order the kernels on a machine: a whole order harms but on CPUs."""
    return target.platform != "cpu"
