"""Plans as programs that XLA has compiled, for this machine or for one that is only described."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.padding import pad
from gopt.heuristics.schedule.bounds import peak_bound
from gopt.result import Candidate
from gopt.scheduling.candidate import CompiledKernels, KernelSchedule
from gopt.scheduling.on_this_device import measured
from gopt.scheduling.recompute.plans import Plan
from gopt.scheduling.target import Target
from gopt.xla.applied import executable, jit_donating
from gopt.xla.buffers import kernel_graph, overwritten
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


def least_bytes(kernels: CompiledKernels) -> int:
    """Return bytes that every sequence of runs needs, without arguments; 0 if they are not known.

    A machine that is only described may hold values near its cores, or in fewer bits.
    """
    if kernels.target.device is not None:
        return 0
    program = kernels.program
    graph = kernel_graph(program, kernels.workspace, overwritten(program, alone=False)).graph
    problem = prepare(pad(graph), unit_rate_devices(1))
    given = problem.size[problem.is_input[problem.producer]].sum(dtype=np.int64)
    return max(int((peak_bound(problem) - given) * float(problem.unit)), 0)


def is_order_free(target: Target) -> bool:
    """Return whether XLA should order the kernels on a machine: a whole order harms but on CPUs."""
    return target.platform != "cpu"
