"""The fastest program of a function that fits into a budget of bytes.

XLA's own programs come first. If none fits, kernels run again: what runs again, and in which order,
is searched by the model, and compiled. If XLA needs more than the budget for it, the search is
repeated for fewer bytes.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.padding import pad
from gopt.heuristics.schedule.bounds import peak_bound
from gopt.host.progress import Progress
from gopt.measure.timing import Memory
from gopt.plots.units import format_bytes, parse_bytes
from gopt.program.program import Program
from gopt.result import Candidate, Result, flag_note
from gopt.scheduling.candidate import CompiledKernels, KernelSchedule, kernels_of
from gopt.scheduling.on_this_device import confirmed, own_programs
from gopt.scheduling.plan import SchedulePlan, make_plan
from gopt.scheduling.recompute.plans import Plan, search_plan
from gopt.scheduling.recompute.program import Repeatable, repeatable
from gopt.xla.buffers import kernel_graph, overwritten
from gopt.xla.grouping import cloned_for_memory
from gopt.xla.ordered import jit_ordered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Budget = int | float | str

COMPILATIONS = 4  # of programs of gopt, at most
MARGIN = 0.002  # share of the budget that is left free from the start


@dataclass(frozen=True, eq=False, repr=False)
class BudgetReport:
    """Details of a search for a program within a budget.

    Attributes:
      budget: bytes that the program may need, arguments included.
      max_trips: every `scan` of at most so many iterations was unrolled.
      cut_note: a sentence if the search was cut short; else empty.
    """

    budget: int
    max_trips: int
    cut_note: str = ""

    verb = "schedule"
    constant_argnums = ()
    unit = "s"

    def fits(self, candidate: Candidate[KernelSchedule]) -> bool:
        """Return whether a candidate needs no more than the budget, by XLA's own account."""
        return candidate.memory is not None and candidate.memory.total <= self.budget

    def plan(self, result: Result) -> SchedulePlan:
        """Return the decision as a plan."""
        return make_plan(result.after.decision, result.program, self.max_trips)

    def plot(self, result: Result) -> "Figure":
        """Return the memory in use before and after."""
        from gopt import plots

        chosen = {"before": result.before, "after": result.after}
        return plots.confirmed_memory(
            {name: (c.decision.problem, c.decision.schedule) for name, c in chosen.items()},
            {name: c.memory.total for name, c in chosen.items() if c.memory},
        )

    def header(self, result: Result) -> str:
        """Return the line above the table."""
        kernels = len(result.before.decision.kernels.groups)
        return (
            f"{len(result.program.equations)} equations, {kernels} kernels; budget "
            f"{format_bytes(self.budget)} with arguments; time by the model of one CPU core"
        )

    def notes(self, result: Result) -> list[str]:
        """Return bytes of the chosen program against the budget, and what is not counted."""
        after = result.after
        lines = [self._need(after)]
        nested = f"{after.name}, nested"
        lines += [self._need(c) + ": inside jax.jit" for c in result.candidates if c.name == nested]
        captured = sum(getattr(value, "nbytes", 0) for value in result.program.values)
        if captured:
            lines.append(f"captured arrays are not counted: {format_bytes(captured)}")
        return [*lines, self.cut_note] if self.cut_note else lines

    def _need(self, candidate: Candidate[KernelSchedule]) -> str:
        needs = candidate.memory.total if candidate.memory else 0
        text = f"{candidate.name} needs {format_bytes(needs)} with arguments"
        over = needs - self.budget
        return f"{text}, {format_bytes(over)} above the budget" if over > 0 else text


def check_budget(memory: Any) -> None:
    """Check the type and the range of a budget.

    Raises:
      ValueError: it is not a positive whole number, a text with a unit, or a share in (0, 1].
    """
    if isinstance(memory, str):
        parse_bytes(memory)
        return
    if isinstance(memory, Integral) and not isinstance(memory, bool) and int(memory) > 0:
        return
    if isinstance(memory, Real) and not isinstance(memory, Integral) and 0 < float(memory) <= 1:
        return
    raise ValueError(
        f"memory is {memory!r}: expected a positive whole number of bytes, a text such as "
        "'30 GiB', or a float in (0, 1], a share of the bytes without arguments"
    )


def budget_bytes(memory: Budget, own: Sequence[Memory]) -> int:
    """Return a budget in bytes, arguments included.

    Args:
      memory: bytes, a text with a unit, or a share of the bytes without arguments.
      own: memory of XLA's own programs; a share is of the one that needs least.
    """
    if isinstance(memory, str):
        return parse_bytes(memory)
    if isinstance(memory, Integral):
        return int(memory)
    least = min(own, key=lambda needs: needs.without_arguments)
    return least.arguments + int(memory * least.without_arguments)


def within_budget(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    program: Program,
    memory: Budget,
    evaluations: int,
    seed: int,
    donate_argnums: int | Sequence[int],
    max_trips: int,
    work: Progress,
) -> Result[KernelSchedule, BudgetReport]:
    """Return the fastest program found that fits; arguments are as in `gopt.schedule`.

    Raises:
      ValueError: no program of the kernels can fit.
    """
    work.phase("kernels compiled")
    kernels = kernels_of(program, merged=True, is_cloned=cloned_for_memory)
    work.phase("XLA's own programs compiled")
    candidates = list(own_programs(fn, args, program, donate_argnums, kernels, work))
    found = repeatable(kernels)
    candidates = [c._replace(predicted=found.seconds) for c in candidates]
    own = [c.memory for c in candidates if c.memory is not None]
    report = BudgetReport(budget_bytes(memory, own), max_trips)
    if kernels.program.equations and not any(map(report.fits, candidates)):
        least = least_bytes(kernels) + own[0].arguments
        if report.budget < least:
            loops = any(e.primitive.name in ("scan", "while") for e in kernels.source.equations)
            hint = "; a loop is one kernel, and max_trips= unrolls short ones" if loops else ""
            raise ValueError(
                f"memory is {memory!r}, {format_bytes(report.budget)} with arguments: the largest "
                f"kernel alone needs {format_bytes(least)} with arguments{hint}"
            )
        arguments = own[0].arguments
        candidates += recomputed(args, found, report, arguments, evaluations, seed, work)
    needs = [c.memory.total for c in candidates if c.memory is not None]  # all are compiled
    times = [c.predicted if report.fits(c) else np.inf for c in candidates]
    chosen = int(np.argmin(times if any(map(report.fits, candidates)) else needs))
    if report.fits(candidates[chosen]):
        reason = "it fits, and nothing that fits is faster by the model"
    else:
        reason = "nothing that was found fits, and it comes nearest"
        over = format_bytes(needs[chosen] - report.budget)
        warnings.warn(f"nothing that was found fits: {over} above the budget", stacklevel=4)
    after = candidates[chosen]
    reason += flag_note(after.decision.options or {})
    if after.decision.options is None and after.executable is not None and after.executable.options:
        candidates.append(after.nested(args)._replace(predicted=after.predicted))
    report = replace(report, cut_note=work.cut_note)
    return Result(program, tuple(candidates), chosen, reason, report)


def recomputed(
    args: tuple[Any, ...],
    found: Repeatable,
    report: BudgetReport,
    arguments: int,
    evaluations: int,
    seed: int,
    work: Progress,
) -> Iterator[Candidate[KernelSchedule]]:
    """Yield programs that run kernels again, compiled, until one fits or no plan does.

    Args:
      args: arguments of the function; shapes are enough.
      found: kernels that may run more than once.
      report: the budget.
      arguments: bytes of the arguments by XLA's account.
      evaluations: number of candidates of one search.
      seed: random seed.
      work: shows progress, and ends searches.
    """
    limit = report.budget - arguments  # bytes without arguments
    aim = round(limit * (1 - MARGIN))
    for compilation in range(COMPILATIONS):
        key = COMPILATIONS * seed + compilation
        plan = search_plan(found, limit, aim, evaluations, key, work)
        name = "recomputed" if not compilation else f"recomputed {compilation + 1}"
        work.phase("program compiled")
        candidate = compiled_plan(name, plan, args)
        yield candidate
        needs = candidate.memory.total if candidate.memory else 0
        if needs <= report.budget or plan.packed > limit or work.is_over:
            return
        aim -= needs - report.budget


def compiled_plan(name: str, plan: Plan, args: tuple[Any, ...]) -> Candidate[KernelSchedule]:
    """Return a plan as a candidate, compiled."""
    function = jit_ordered(plan.schedule.kernels.program)
    candidate = confirmed(name, plan.schedule, function, function.lower(*args).compile())
    return candidate._replace(predicted=plan.seconds)


def least_bytes(kernels: CompiledKernels) -> int:
    """Return bytes that every sequence of runs needs, without arguments."""
    program = kernels.program
    graph = kernel_graph(program, kernels.workspace, overwritten(program, alone=False)).graph
    problem = prepare(pad(graph), unit_rate_devices(1))
    given = problem.size[problem.is_input[problem.producer]].sum(dtype=np.int64)
    return max(int((peak_bound(problem) - given) * float(problem.unit)), 0)
