"""From a JAX function to a schedule of its kernels, and back to a function that runs by it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from gopt.cost.hardware import PRESETS, Hardware
from gopt.cost.schedule.objectives import OBJECTIVES
from gopt.cost.schedule.problem import prepare, to_seconds
from gopt.graph.kinds import KINDS
from gopt.graph.padding import pad
from gopt.heuristics.schedule.encode import keys_in_order
from gopt.plots.units import format_bytes, format_seconds
from gopt.program.program import Program, check_one_device, trace_program, unroll
from gopt.scheduling.candidate import Candidate, kernels_of, modelled
from gopt.scheduling.methods import LEARNED, METHODS, find
from gopt.scheduling.on_this_device import through_xla
from gopt.scheduling.plan import Plan, make_plan
from gopt.xla.buffers import unshared_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Row(NamedTuple):
    """A kernel, an input or a transfer of a schedule."""

    name: str  # of the kernel; of the kernel whose tensor is sent
    kind: str  # one of `gopt.graph.kinds.KINDS`, or "transfer"
    device: int  # where the kernel runs; where the tensor goes
    start: float  # s
    end: float  # s


@dataclass(frozen=True, eq=False, repr=False)
class Scheduling:
    """Ways to run a function, and what each costs. Print it for a table.

    Attributes:
      program: the function as equations.
      max_trips: every `scan` of at most so many iterations was unrolled.
      objective: what was minimised.
      method: what found the schedule.
      candidates: what was compared, as it is without gopt first: XLA's own program on this machine;
        on another, all kernels on device 0 in the order of the program.
    """

    program: Program
    max_trips: int
    objective: str
    method: str
    candidates: tuple[Candidate, ...]

    @property
    def before(self) -> Candidate:
        """What there is without gopt."""
        return self.candidates[0]

    @cached_property
    def after(self) -> Candidate:
        """What was chosen: through XLA what needs least memory, its own program where none less."""
        measured = [(c.memory.total, k) for k, c in enumerate(self.candidates) if c.memory]
        return self.candidates[min(measured)[1] if measured else -1]

    @cached_property
    def plan(self) -> Plan:
        """What was chosen as a plan, to be saved."""
        return make_plan(self.after, self.program, self.max_trips)

    def apply(self, devices: Sequence[jax.Device] | None = None) -> Any:
        """Returns the function as scheduled: same arguments, same values.

        On one device that is a jitted function. On several it is a `gopt.scheduling.staged.Staged`.

        Args:
          devices: for each device of a machine that was given one to run on, by default the first
            ones of JAX. One may stand for several. What was compiled runs where its arguments are.

        Raises:
          ValueError: a device is missing, or devices are given for what was compiled; the message
            says which.
        """
        if self.after.function is not None:
            if devices is not None:
                raise ValueError("devices are given: expected none, the arguments say where to run")
            return self.after.function
        return self.plan.carry_out(self.program, devices)

    def rows(self) -> list[Row]:
        """Returns kernels, inputs and transfers in the order in which they are issued."""
        traced, problem, schedule = self.after.traced, self.after.problem, self.after.schedule
        n, d = problem.shape.ops, problem.num_devices
        items = schedule.order[: int(schedule.num_items)]
        start = to_seconds(problem, schedule.start[items]).tolist()
        end = to_seconds(problem, schedule.end[items]).tolist()
        rows = []
        for item, begin, finish in zip(items.tolist(), start, end, strict=True):
            if item < n:
                kind = KINDS[traced.graph.kind[item]]
                what = traced.names[item], kind, int(schedule.device[item])
            else:
                tensor, device = divmod(item - n, d)
                what = traced.names[problem.producer[tensor]], "transfer", device
            rows.append(Row(*what, begin, finish))
        return rows

    def plot(self) -> "Figure":
        """Returns the memory in use before and after; on several devices below a Gantt chart."""
        from gopt import plots

        chosen = {"before": self.before, "after": self.after}
        if self.before.memory is None:
            schedules = {name: candidate.schedule for name, candidate in chosen.items()}
            return plots.overview(self.after.problem, schedules, names=self.after.traced.names)
        return plots.confirmed_memory(
            {name: (c.problem, c.schedule) for name, c in chosen.items()},
            {name: c.memory.total for name, c in chosen.items() if c.memory},
        )

    def __str__(self) -> str:
        return self._on_a_machine() if self.before.memory is None else self._through_xla()

    def _through_xla(self) -> str:
        """A line for each candidate: memory beside the arguments, predicted and planned by XLA."""
        width = 2 + max(len(candidate.name) for candidate in self.candidates)
        arguments, before = _beside(self.before)[0], _beside(self.before)[2]
        lines = [
            f"{len(self.program.equations)} equations, {_num_kernels(self.candidates)} kernels; "
            f"{format_bytes(arguments)} of arguments, and beside them:",
            f"{'':{width}}{'predicted':>12}{'XLA needs':>12}{'change':>10}",
        ]
        for candidate in self.candidates:
            _, predicted, needs = _beside(candidate)
            texts = format_bytes(predicted), format_bytes(needs), _change(before, needs)
            lines.append(f"{candidate.name:{width}}{texts[0]:>12}{texts[1]:>12}{texts[2]:>10}")
        kept = " (nothing needs less)" if self.after is self.before else ""
        return "\n".join([*lines, f"chosen: {self.after.name}{kept}"])

    def _on_a_machine(self) -> str:
        """A line for each cost before and after, by the model."""
        before, after = self.before, self.after
        count, devices = int(after.problem.num_ops), after.problem.num_devices
        lines = [
            f"{self.objective} of {count} ops on {devices} devices, by {self.method}",
            f"{'':14}{'before':>12}{'after':>12}{'change':>10}",
            _line("makespan", before.makespan, after.makespan, format_seconds),
            _line("peak memory", max(before.peak), max(after.peak), format_bytes),
        ]
        for device, peaks in enumerate(zip(before.peak, after.peak, strict=True)):
            lines.append(_line(f"  device {device}", *peaks, format_bytes))
        sent = [int(candidate.schedule.num_items) - count for candidate in (before, after)]
        lines.append(_line("transfers", sent[0], sent[1], str))
        for name, candidate in (("before", before), ("after", after)):
            if not candidate.fits:
                lines.append(f"{name}: needs more memory than the devices have")
        return "\n".join(lines)


def schedule(
    fn: Callable[..., Any],
    *args: Any,
    hardware: Hardware | str | None = None,
    objective: str = "peak_memory",
    method: str = "best",
    evaluations: int = 20_000,
    confirm: int = 2,
    seed: int = 0,
    donate_argnums: int | Sequence[int] = (),
    max_trips: int = 0,
    weights: str | os.PathLike[str] | None = None,
) -> Scheduling:
    """Returns a schedule of the kernels of `fn(*args)`, to be looked at and to be applied.

    The function is compiled for the default backend to see what XLA fuses; what it fuses is one
    kernel, and kernels are what is scheduled. Nothing is run or allocated.

    By default the machine is the default device of this one: the order of the kernels is searched
    for the least memory, the best few orders are compiled, and what needs least memory by XLA's own
    account is chosen; XLA's own program where nothing needs less. (Orders were measured on CPUs so
    far. Other backends may not keep them; what XLA needs is what is reported.) On a machine that is
    given, schedules are those of the performance model, see `gopt.cost.schedule.execution`.

    What comes back has the values of the function, but no custom derivative rules: so schedule the
    gradient, not the function that it is of.

    Args:
      fn: any function of pytrees of arrays. Bind other arguments with `functools.partial`.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      hardware: a machine, or the name of one of `gopt.cost.hardware.PRESETS`; by default this one.
      objective: what to minimise, one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      method: "best", the strongest search without training (see `gopt.scheduling.best`); "regal", a
        genetic algorithm guided by a trained policy, which takes the devices to be alike; "go", a
        policy that draws changes of the best schedule so far, trained for the makespan on two and
        four GPUs that are alike; "brkga", the genetic algorithm alone; or one of
        `gopt.heuristics.HEURISTICS`, which do not search.
        The first three start from all heuristics, and are never worse than those that the budget
        allows.
      evaluations: how many candidates a search may evaluate, what it starts from included; it
        evaluates one at least. On this machine there are two searches where equations can be
        merged: one with these merged, one without.
      confirm: on this machine, how many orders are compiled besides XLA's and the program's.
      seed: of the search.
      donate_argnums: positions of the arguments whose buffers may be reused.
      max_trips: every `scan` of at most so many iterations is unrolled.
      weights: file with a policy for "regal" or "go", as of `save` of
        `gopt.systems.regal` or `gopt.systems.go`; by default the one that ships, of "regal" for
        the objective.

    Raises:
      ValueError: an argument is out of range, the function cannot be traced (see `gopt.trace`), has
        neither an argument nor an equation, or runs on several devices, the machine is not valid
        (see `gopt.prepare`), or there is no such policy.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}: expected one of {', '.join(METHODS)}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}: expected one of {', '.join(OBJECTIVES)}")
    if hardware is None and objective != "peak_memory":
        raise ValueError(f"objective is {objective!r}: without hardware, expected 'peak_memory'")
    if weights is not None and method not in LEARNED:
        raise ValueError(
            f"weights are given for method {method!r}: expected one of {', '.join(LEARNED)}"
        )
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    if confirm < 0:
        raise ValueError(f"confirm is {confirm}: expected 0 at least")
    if isinstance(hardware, str):
        if hardware not in PRESETS:
            raise ValueError(f"hardware is {hardware!r}: expected one of {', '.join(PRESETS)}")
        hardware = PRESETS[hardware]()
    program = trace_program(fn, *args, donate_argnums=donate_argnums)
    check_one_device(args, program)
    program = unroll(program, max_trips=max_trips) if max_trips else program
    if hardware is None:
        ways = through_xla(
            fn,
            args,
            program,
            donate_argnums=donate_argnums,
            method=method,
            evaluations=evaluations,
            confirm=confirm,
            seed=seed,
            weights=weights,
        )
        return Scheduling(program, max_trips, objective, method, tuple(ways))
    kernels = kernels_of(program, merged=True)
    traced = unshared_graph(kernels.program, kernels.workspace)
    graph = pad(traced.graph)
    problem = prepare(graph, hardware)
    found = find(
        method,
        graph,
        problem,
        objective=objective,
        evaluations=evaluations,
        seed=seed,
        weights=weights,
    )
    in_order = keys_in_order(problem)
    candidates = (
        modelled("program order", kernels, traced, problem, in_order),
        modelled(method, kernels, traced, problem, found),
    )
    return Scheduling(program, max_trips, objective, method, candidates)


def _num_kernels(candidates: Sequence[Candidate]) -> int:
    return sum(index >= 0 for index in candidates[0].traced.equations)


def _beside(candidate: Candidate) -> tuple[int, int, int]:
    """Returns bytes of arguments, and what is predicted and what XLA needs beside them."""
    assert candidate.memory is not None  # all candidates of this machine are compiled
    arguments = candidate.memory.arguments
    return arguments, candidate.peak[0] - arguments, candidate.memory.beside


def _line(name: str, before: Any, after: Any, text: Callable[[Any], str]) -> str:
    return f"{name:14}{text(before):>12}{text(after):>12}{_change(before, after):>10}"


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before else ""
