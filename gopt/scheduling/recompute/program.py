"""Kernels of a program as a problem of recomputation, and candidates as programs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gopt.cost.fusion import rates
from gopt.cost.hardware import op_seconds, unit_rate_devices
from gopt.cost.recompute.cost import cost_of_runs, runs_of
from gopt.cost.recompute.problem import Problem, prepare
from gopt.graph.padding import pad
from gopt.graph.tracing import TracedGraph, from_program
from gopt.heuristics.recompute.bound import LowerBounds
from gopt.heuristics.recompute.early import early
from gopt.measure.kernel_times import KernelTimes
from gopt.program.equations import may_not_end
from gopt.scheduling.candidate import CompiledKernels
from gopt.xla.buffers import repeatable_graph
from gopt.xla.recomputed import kernel_runs, may_repeat, repeated

# Share of a kernel's bytes that takes time. The rest is still in a cache; or XLA, where it orders
# kernels, fuses them with their readers. Our choice, by measurement: with it, plans have fewer flop
# (transformers on a TPU v5e and on a CPU, ResNet on a CPU), and are not slower on the CPU.
MOVED = 0.1
MAX_RUNS = 3  # of a kernel; two are mostly enough (MOCCASIN, ICML 2023)


class Repeatable(NamedTuple):
    """Kernels that may run more than once.

    Attributes:
      kernels: the kernels, as XLA makes them of the program.
      traced: graph of the kernels.
      problem: the graph, quantised, with times in s under `kernel_seconds`.
      seconds: time of all kernels, each run once, s.
      given: bytes of arguments and captured arrays in the problem.
      bounds: what holds for every sequence of runs of the problem.
      other: the same kernels in another order, for budgets that this one does not reach.
    """

    kernels: CompiledKernels
    traced: TracedGraph
    problem: Problem
    seconds: float
    given: int
    bounds: LowerBounds
    other: "Repeatable | None" = None

    def units(self, size: int) -> int:
        """Return bytes without arguments as units of the problem, arguments included."""
        return int(np.clip((size + self.given) // float(self.problem.unit), 0, 2**31 - 1))

    @property
    def least_bytes(self) -> int:
        """Bytes that every sequence of runs needs, without arguments; 0 if they are not known."""
        if not self.kernels.target.is_cpu_here:
            return 0
        needs = [int(o.bounds.peak * float(o.problem.unit)) - o.given for o in self._orders()]
        return max(min(needs), 0)

    def least_seconds(self, size: int) -> float | None:
        """Return a lower bound on the time within so many bytes, s; `None` if it is not known.

        Args:
          size: bytes without arguments.
        """
        if not self.kernels.target.is_cpu_here:
            return None
        ticks = [(o.bounds.ticks(o.units(size)), float(o.problem.tick)) for o in self._orders()]
        return min((count * tick for count, tick in ticks if count is not None), default=None)

    def _orders(self) -> "list[Repeatable]":
        return [self, *([self.other] if self.other else [])]


def repeatable(kernels: CompiledKernels, times: KernelTimes | None = None) -> Repeatable:
    """Return kernels as a problem of recomputation.

    They are in the order of `gopt.heuristics.recompute.early` or of the program, whichever takes
    less memory. Weights that are updated early cannot be read by second runs, so the other order
    may reach a budget that the first one does not.

    Args:
      kernels: the kernels.
      times: measures each kernel, in place of `kernel_seconds`. Loops, and what fails alone, have
        the time of the model.
    """
    as_given = _repeatable(kernels, times)
    order = early(as_given.problem)
    reordered = _repeatable(expanded(as_given, order), times)
    if _peak(reordered.problem) <= _peak(as_given.problem):
        return reordered._replace(other=as_given)
    return as_given._replace(other=reordered)


def _peak(problem: Problem) -> float:
    """Return the peak memory without second runs, bytes."""
    _, peak = cost_of_runs(problem, runs_of(problem, None))
    return peak * float(problem.unit)


def _repeatable(kernels: CompiledKernels, times: KernelTimes | None) -> Repeatable:
    graph = repeatable_graph(kernels.program, kernels.workspace)
    traced = graph.traced
    equations = kernels.program.equations
    seconds = kernel_seconds(kernels, traced)
    if times is not None:
        measured = times.of_kernels(kernels.source, kernels.groups)
        for op, k in enumerate(traced.equations):
            if k >= 0 and np.isfinite(measured[k]) and not may_not_end([equations[k]]):
                seconds[op] = measured[k]
    problem = prepare(
        pad(traced.graph),
        unit_rate_devices(1),
        max_runs=MAX_RUNS,
        seconds=seconds,
        may_repeat=[k >= 0 and may_repeat(equations[k]) for k in traced.equations],
        waits=graph.waits,
        in_place=graph.in_place,
    )
    given = problem.size[problem.is_input[problem.producer]].sum(dtype=np.int64)
    return Repeatable(
        kernels,
        traced,
        problem,
        float(seconds.sum()),
        int(given * problem.unit),
        LowerBounds(problem),
    )


def kernel_seconds(kernels: CompiledKernels, traced: TracedGraph) -> np.ndarray:
    """Return the time of each op of a graph of kernels, s, `[N]`; 0 for arguments.

    On a CPU, the time on one core: work of the equations, `MOVED` of the bytes of the kernel's
    operands and results, and one launch, at the rates of `gopt.cost.fusion.rates`. On other
    machines, the roofline of the same.
    """
    source = from_program(kernels.source)
    machine = kernels.target.hardware
    work = source.graph.flops if machine is not None else rates.CPU.compute(source.graph)
    of_equation = {k: work[op] for op, k in enumerate(source.equations)}
    seconds = np.zeros(len(traced.equations))
    for op, k in enumerate(traced.equations):
        if k < 0:
            continue
        its_work = sum(float(of_equation.get(equation, 0.0)) for equation in kernels.groups[k])
        its_bytes = MOVED * float(traced.graph.bytes[op])
        if machine is not None:
            ((seconds[op],),) = op_seconds([its_work], [its_bytes], machine)
        else:
            moved = its_bytes * rates.CPU.seconds_per_byte
            seconds[op] = its_work + moved + rates.CPU.seconds_per_kernel
    return seconds


def expanded(found: Repeatable, ops: Sequence[int]) -> CompiledKernels:
    """Return kernels with one equation for each run.

    Args:
      found: kernels that may run more than once.
      ops: ops of the graph in the order in which they run.
    """
    kernels = found.kernels
    runs = kernel_runs(found.traced, ops)
    program = repeated(kernels.program, runs)
    before = kernels.program.equations
    workspace = {
        equation.outvars[0]: kernels.workspace[before[k].outvars[0]]
        for equation, k in zip(program.equations, runs, strict=True)
    }
    groups = tuple(kernels.groups[k] for k in runs)
    return replace(kernels, program=program, groups=groups, workspace=workspace)
