"""From a JAX function to a schedule of its kernels, and back to a function that runs by it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gopt.cost.hardware import PRESETS, Hardware
from gopt.cost.schedule.objectives import OBJECTIVES
from gopt.cost.schedule.problem import prepare, to_seconds
from gopt.graph.kinds import KINDS
from gopt.graph.padding import pad
from gopt.heuristics.schedule.encode import keys_in_order
from gopt.host.progress import Progress, Show
from gopt.measure.kernel_times import KernelTimes
from gopt.plots.units import format_bytes, format_seconds
from gopt.program.arguments import check_whole_numbers, keywords_are_options
from gopt.program.checks import check_alone, check_arrays, check_one_device
from gopt.program.effects import DropEffects, drop
from gopt.program.program import Program, trace_program, unroll
from gopt.result import Candidate, Result, flag_note
from gopt.scheduling.budget import Budget, BudgetReport, check_budget, times_of, within_budget
from gopt.scheduling.candidate import KernelSchedule, kernels_of, modelled
from gopt.scheduling.on_this_device import through_xla
from gopt.scheduling.plan import SchedulePlan, make_plan
from gopt.scheduling.searches import LEARNED, SEARCHES, Finder, ScheduleSearch
from gopt.scheduling.target import target_of
from gopt.search_argument import Weights, check_search, search_name
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
class ScheduleReport:
    """Details of a search for a schedule.

    Attributes:
      objective: cost that was minimised.
      search: name of the search.
      max_trips: every `scan` of at most so many iterations was unrolled.
      schedules: schedule of all kernels on device 0 in the order of the program; chosen schedule.
      is_compiled: whether candidates were compiled for this machine.
      cut_note: a sentence if the search was cut short; else empty.
    """

    objective: str
    search: str
    max_trips: int
    schedules: tuple[KernelSchedule, KernelSchedule]
    is_compiled: bool
    cut_note: str = ""

    verb = "schedule"
    constant_argnums = ()

    @property
    def unit(self) -> str:
        """Unit of predicted costs, "B" or "s"."""
        return "B" if self.objective == "peak_memory" else "s"

    def rows(self) -> list[Row]:
        """Return kernels, inputs and transfers in the order in which they are issued."""
        _, chosen = self.schedules
        traced, problem, schedule = chosen.traced, chosen.problem, chosen.schedule
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

    def plan(self, result: Result) -> SchedulePlan:
        """Return the decision as a plan."""
        return make_plan(result.after.decision, result.program, self.max_trips)

    def plot(self, result: Result) -> "Figure":
        """Return the memory in use before and after; on several devices below a Gantt chart."""
        from gopt import plots

        before, after = self.schedules
        if not self.is_compiled:
            schedules = {"before": before.schedule, "after": after.schedule}
            return plots.overview(after.problem, schedules, names=after.traced.names)
        chosen = {"before": result.before, "after": result.after}
        return plots.confirmed_memory(
            {name: (c.decision.problem, c.decision.schedule) for name, c in chosen.items()},
            {name: c.memory.total for name, c in chosen.items() if c.memory},
        )

    def header(self, result: Result) -> str:
        """Return the line above the table."""
        before, after = self.schedules
        if not self.is_compiled:
            count, devices = int(after.problem.num_ops), after.problem.num_devices
            return f"{self.objective} of {count} ops on {devices} devices, by {self.search}"
        kernels = sum(index >= 0 for index in before.traced.equations)
        return (
            f"{len(result.program.equations)} equations, {kernels} kernels; bytes beside the "
            "arguments, predicted and as XLA plans them"
        )

    def notes(self, result: Result) -> list[str]:
        """Return costs by the model, if candidates were not compiled, and whether it was cut."""
        del result
        cut = [self.cut_note] if self.cut_note else []
        if self.is_compiled:
            return cut
        before, after = self.schedules
        lines = [
            f"{'':14}{'before':>12}{'after':>12}{'change':>10}",
            _line("makespan", before.makespan, after.makespan, format_seconds),
            _line("peak memory", max(before.peak), max(after.peak), format_bytes),
        ]
        for device, peaks in enumerate(zip(before.peak, after.peak, strict=True)):
            lines.append(_line(f"  device {device}", *peaks, format_bytes))
        count = int(after.problem.num_ops)
        sent = [int(each.schedule.num_items) - count for each in (before, after)]
        lines.append(_line("transfers", sent[0], sent[1], str))
        for name, each in (("before", before), ("after", after)):
            if not each.fits:
                lines.append(f"{name}: needs more memory than the devices have")
        return lines + cut


@keywords_are_options
def schedule(
    fn: Callable[..., Any],
    *args: Any,
    search: str | ScheduleSearch = "best",
    weights: Weights | None = None,
    hardware: Hardware | str | None = None,
    memory: Budget | None = None,
    objective: str | None = None,
    evaluations: int = 20_000,
    seed: int = 0,
    confirm: int = 2,
    donate_argnums: int | Sequence[int] = (),
    max_trips: int = 0,
    target: str | None = None,
    cost: str | KernelTimes = "model",
    drop_effects: DropEffects = None,
    seconds: float | None = None,
    progress: Show = True,
) -> Result[KernelSchedule, ScheduleReport] | Result[KernelSchedule, BudgetReport]:
    """Return the best schedule found of the kernels of `fn(*args)`.

    The function is compiled to see what XLA fuses. Each fusion is one kernel, and kernels are
    scheduled. Nothing runs, but for `cost="measured"`.

    Without `hardware`, the order of the kernels on this machine's default device is searched for
    the least memory, and the best few orders are compiled. The program that needs least memory by
    XLA's own account is chosen; XLA's own program if none needs less. Orders were measured on CPUs
    so far.

    With `hardware`, kernels are also placed on its devices. Costs follow the performance model of
    `gopt.cost.schedule.execution`.

    The result computes the values of the function, but has no custom derivative rules. So schedule
    the gradient, not the function that is differentiated.

    Args:
      fn: any function of pytrees of arrays.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      search: name of a search, or a callable as `gopt.search_argument` describes.
        "best": the strongest search without training, see `gopt.scheduling.best`.
        "brkga": the genetic algorithm of "best" alone.
        "regal": the genetic algorithm, guided by a trained policy, for two equal devices.
        "go": a trained policy draws changes of the best schedule so far; trained for the makespan
        on two and four equal GPUs.
        A name of `gopt.HEURISTICS`: that heuristic, without a search.
        "best", "regal" and "go" start from all heuristics.
      weights: policy for "regal" or "go": a file that `save` of the system wrote, or the pair that
        its `load` returns. By default the policy that ships.
      hardware: a machine, or the name of one of `gopt.PRESETS`; by default this machine's device.
      memory: budget of bytes on one device, with arguments, without captured arrays: a whole
        number, or a text such as "30 GiB". A float in (0, 1] is a share of the bytes without
        arguments of the better of XLA's two schedulers. Kernels may run again, so that their
        results need not be held, and the least time that fits is searched; what `jax.checkpoint`
        says is decided anew. If nothing found fits, the nearest program comes with a warning;
        `result.report.fits(result.after)` is false.
      objective: objective to minimise, one of `gopt.OBJECTIVES`, by default "peak_memory".
      evaluations: number of candidates that one search may cost, starting points included. On this
        machine there are two searches if XLA can merge equations: with and without merging. With
        `memory`, up to eight for each of four programs.
      seed: random seed.
      confirm: without `memory`, number of orders to compile besides XLA's and the program's.
      donate_argnums: positions of the arguments whose buffers may be reused. What a jitted `fn`
        donates is donated, too.
      max_trips: largest number of iterations of a `scan` that is unrolled.
      target: with `memory`, machine to compile for, which need not be here: "h100" (the extra
        `gpu`), or a TPU such as "tpu v5e:2x2" (the extra `tpu`). Times are by its rates. A saved
        plan is for its platform alone.
      cost: with `memory`, times of kernels: "model", of one CPU core; "measured", each alone on
        this CPU; or a `gopt.fusion.KernelTimes(path)`, which keeps them.
      drop_effects: "debug" drops `jax.debug.print` and `jax.debug.callback`.
      seconds: time from the call on after which searches end with the best so far, s; by default
        only Ctrl-C ends them early. Compilation counts, but is not cut. A second Ctrl-C ends the
        program. A search that is a callable is not cut.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Returns:
      A `gopt.Result`. Decisions of candidates are `gopt.scheduling.candidate.KernelSchedule`s.

    Raises:
      ValueError: an argument is out of range; the function cannot be traced (see `gopt.trace`), has
        neither an argument nor an equation, or runs on several devices; the call is traced; the
        machine is not valid (see `gopt.prepare`); `memory` is less than the kernels need in every
        order; or `weights` holds something else than a policy for the objective and the number of
        devices.
      FileNotFoundError: the file `weights` does not exist.
      ImportError: the extra for `target` is not installed.

    Example:
      import gopt, jax, jax.numpy as jnp

      step = jax.grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2))
      args = jnp.ones((64, 64)), jnp.ones((32, 64))
      print(gopt.schedule(step, *args, evaluations=100))
      placed = gopt.schedule(step, *args, search="heft", hardware="2xh100", objective="makespan")
      gradient = placed.apply(devices=2 * jax.devices()[:1])(*args)  # one device stands for two
    """
    check_search(search, weights, SEARCHES, LEARNED)
    if memory is not None:
        check_budget(memory)
        given = {"hardware": hardware, "objective": objective, "weights": weights}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} is given: expected none beside memory=")
        if search != "best":
            raise ValueError(f"search is {search!r}: expected 'best' beside memory=")
    elif target is not None or cost != "model":
        name = "cost" if target is None else "target"
        raise ValueError(f"{name} is given: expected none without memory=")
    objective = objective or "peak_memory"
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}: expected one of {', '.join(OBJECTIVES)}")
    if hardware is None and objective != "peak_memory":
        raise ValueError(f"objective is {objective!r}: without hardware, expected 'peak_memory'")
    check_whole_numbers(1, evaluations=evaluations)
    check_whole_numbers(0, confirm=confirm, seed=seed, max_trips=max_trips)
    work = Progress("gopt.schedule", progress, seconds=seconds)
    if isinstance(hardware, str):
        if hardware not in PRESETS:
            raise ValueError(f"hardware is {hardware!r}: expected one of {', '.join(PRESETS)}")
        hardware = PRESETS[hardware]()
    if not isinstance(hardware, Hardware | None):
        raise ValueError(f"hardware is {hardware!r}: expected a gopt.Hardware or a name")
    fn = drop(fn, drop_effects)
    program = trace_program(fn, *args, donate_argnums=donate_argnums)
    check_alone(args, program)
    check_one_device(args, program)
    check_arrays((), program)  # of arguments, shapes are enough
    program = unroll(program, max_trips=max_trips) if max_trips else program
    if memory is not None:
        machine = target_of(target)
        how = donate_argnums, max_trips, machine, times_of(cost, machine)
        with work, work.interrupts_noted():
            return within_budget(fn, args, program, memory, evaluations, seed, *how, work)
    finder = Finder(search, weights, evaluations, seed, work)
    if hardware is None:
        with work, work.interrupts_noted():
            ways = through_xla(fn, args, program, finder, confirm, donate_argnums, work)
            return _least_memory(args, program, list(ways), search_name(search), max_trips, work)
    with work, work.interrupts_noted():
        work.phase("kernels compiled")
        kernels = kernels_of(program, merged=True)
        traced = unshared_graph(kernels.program, kernels.workspace)
        graph = pad(traced.graph)
        problem = prepare(graph, hardware)
        found = finder.find(graph, problem, objective)
    before = modelled(kernels, traced, problem, keys_in_order(problem))
    after = modelled(kernels, traced, problem, found)
    report = ScheduleReport(
        objective,
        search_name(search),
        max_trips,
        (before, after),
        is_compiled=False,
        cut_note=work.cut_note,
    )
    costs = [max(each.peak) if report.unit == "B" else each.makespan for each in (before, after)]
    candidates = (
        Candidate("program order", before, costs[0]),
        Candidate(report.search, after, costs[1]),
    )
    reason = (
        "it costs less under the performance model"
        if costs[1] < costs[0]
        else "the search found it; the program order costs no more under the model"
    )
    return Result(program, candidates, 1, reason, report)


def _least_memory(
    args: tuple[Any, ...],
    program: Program,
    candidates: list[Candidate[KernelSchedule]],
    search: str,
    max_trips: int,
    work: Progress,
) -> Result[KernelSchedule, ScheduleReport]:
    """Return the compiled candidate that needs least memory; the first one of equals."""
    needs = [c.memory for c in candidates if c.memory is not None]  # all are compiled
    chosen = min(range(len(needs)), key=lambda k: needs[k].without_arguments)
    before, after = candidates[0], candidates[chosen]
    reason = "nothing needs less"
    if chosen:
        less = 100 * (1 - needs[chosen].without_arguments / needs[0].without_arguments)
        reason = f"it needs {less:.1f} % less than {before.name}"
    reason += flag_note(after.decision.options or {})
    if after.decision.options is None and after.executable is not None and after.executable.options:
        candidates.append(after.nested(args))
    schedules = before.decision, after.decision
    report = ScheduleReport(
        "peak_memory", search, max_trips, schedules, is_compiled=True, cut_note=work.cut_note
    )
    return Result(program, tuple(candidates), chosen, reason, report)


def _line(name: str, before: Any, after: Any, text: Callable[[Any], str]) -> str:
    return f"{name:14}{text(before):>12}{text(after):>12}{_change(before, after):>10}"


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before else ""
