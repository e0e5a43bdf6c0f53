"""Schedules of the kernels of a function, and their cost by the model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax.extend.core import JaxprEqn, Var

from gopt.cost.schedule.decoding import Keys, Schedule, decode
from gopt.cost.schedule.execution import simulate
from gopt.cost.schedule.problem import Problem, to_bytes, to_seconds
from gopt.graph.tracing import TracedGraph
from gopt.program.equations import variables
from gopt.program.program import Program
from gopt.scheduling.target import Target, this_machine
from gopt.search.parallel import on_host
from gopt.xla import Group, group, groups, materialised, merge_duplicates
from gopt.xla.ordered import jit_ordered
from gopt.xla.workspace import workspaces


@dataclass(frozen=True, eq=False, repr=False)
class CompiledKernels:
    """A program as the kernels that XLA makes of it on a machine.

    Attributes:
      merged: whether equations that compute the same were merged first.
      source: the equations.
      program: one equation for each kernel, in the order of the equations that end them.
      groups: the equations of each kernel. `[K]`
      written: equations whose results XLA writes to memory, in its own order.
      workspace: bytes that a kernel needs only while it runs, by the first result.
      target: the machine.
      function: the kernels in the order of the program, jitted.
      compiled: the same, through XLA; `None` for a machine that is only described.
    """

    merged: bool
    source: Program
    program: Program
    groups: tuple[Group, ...]
    written: tuple[int, ...]
    workspace: dict[Var, float]
    target: Target
    function: Any
    compiled: jax.stages.Compiled | None

    def in_order_of_xla(self, written: tuple[int, ...]) -> Program:
        """Return the kernels in the order in which XLA has written equations."""
        equations = self.program.equations
        ends = dict(zip((part[-1] for part in self.groups), equations, strict=True))
        maker = {v: kernel for kernel in equations for v in kernel.outvars}
        placed: dict[int, JaxprEqn] = {}

        def place(kernel: JaxprEqn) -> None:
            if id(kernel) not in placed:
                for v in variables(kernel.invars):
                    if v in maker:
                        place(maker[v])
                placed[id(kernel)] = kernel

        # What XLA has not as a kernel comes just before its first reader.
        for kernel in (*map(ends.__getitem__, written), *equations):
            place(kernel)
        return replace(self.program, equations=tuple(placed.values()))


def kernels_of(
    program: Program,
    *,
    merged: bool,
    grouping: Callable[[Program, tuple[int, ...]], tuple[Group, ...]] = groups,
    target: Target | None = None,
) -> CompiledKernels:
    """Return a program as kernels. It is compiled, from shapes alone; nothing runs.

    Args:
      program: equations as they were traced.
      merged: whether equations that compute the same are merged first, as XLA merges them.
      grouping: makes groups of a program and the equations that XLA writes to memory.
      target: machine to compile for, by default this one.
    """
    target = target or this_machine()
    source = merge_duplicates(program) if merged else program
    written = materialised(source, device=target.device)
    parts = grouping(source, written)
    kernels = group(source, parts)
    function = jit_ordered(kernels)
    compiled = function.lower(*kernels.arguments()).compile() if target.device is None else None
    return CompiledKernels(
        merged=merged,
        source=source,
        program=kernels,
        groups=parts,
        written=written,
        workspace=workspaces(kernels, compiled),
        target=target,
        function=function,
        compiled=compiled,
    )


class KernelSchedule(NamedTuple):
    """A schedule of the kernels of a function.

    Attributes:
      kernels: the program as kernels.
      traced: the graph of the kernels.
      problem: the graph on a machine, quantised.
      keys: random keys that decode to the schedule.
      schedule: order, start, end and memory of all items.
      peak: bytes that each device holds by the model, arguments included. `[D]`
      options: compiler options, if it is XLA's own program; `None` for a decision of gopt.
      is_free: whether XLA orders kernels, and second runs alone wait.
    """

    kernels: CompiledKernels
    traced: TracedGraph
    problem: Problem
    keys: Keys
    schedule: Schedule
    peak: tuple[int, ...]
    options: dict[str, Any] | None = None
    is_free: bool = False

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end, by the model."""
        return float(to_seconds(self.problem, self.schedule.makespan))

    @property
    def fits(self) -> bool:
        """Whether no device holds more than its capacity, by the model."""
        return bool((self.schedule.peak <= self.problem.capacity).all())

    @property
    def order(self) -> Program:
        """The kernels in the order of the schedule."""
        items = self.schedule.order[: int(self.schedule.num_items)].tolist()
        return self.traced.with_order([item for item in items if item < self.problem.shape.ops])


def modelled(
    kernels: CompiledKernels, traced: TracedGraph, problem: Problem, keys: Keys
) -> KernelSchedule:
    """Return the schedule that keys decode to, and its peak by the model."""
    schedule = replay(problem, keys)
    peak = tuple(to_bytes(problem, schedule.peak).tolist())
    return KernelSchedule(kernels, traced, problem, jax.device_get(keys), schedule, peak)


@on_host
def replay(problem: Problem, keys: Keys) -> Schedule:
    """Return the schedule that keys decode to, on the host."""
    return jax.device_get(_replay(problem, keys))


@jax.jit
def _replay(problem: Problem, keys: Keys) -> Schedule:
    return simulate(problem, decode(problem, keys))
