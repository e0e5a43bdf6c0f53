"""The fastest program of a function that fits into a budget of bytes.

XLA's own programs come first. If none fits, kernels run again: what runs again, and in which order,
is searched by the model, and compiled. If XLA needs more or much less than the budget for it, the
search is repeated for other bytes.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from gopt.host.progress import Progress
from gopt.measure.kernel_times import KernelTimes
from gopt.measure.timing import Memory
from gopt.plots.units import format_bytes, format_seconds, parse_bytes
from gopt.program.program import Program
from gopt.result import Candidate, Result, flag_note
from gopt.scheduling.candidate import KernelSchedule, kernels_of
from gopt.scheduling.on_this_device import own_programs
from gopt.scheduling.plan import SchedulePlan, make_plan
from gopt.scheduling.recompute.compiled import compiled_plan, is_order_free
from gopt.scheduling.recompute.names import Names, names_of
from gopt.scheduling.recompute.plans import search_plan, segments_plan
from gopt.scheduling.recompute.program import Repeatable, repeatable
from gopt.scheduling.target import Target
from gopt.xla.grouping import groups_for_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Budget = int | float | str
Cost = KernelTimes | None

COMPILATIONS = 4  # of programs of gopt, at most
MARGIN = 0.002  # share of the budget that is left free from the start
SPARE = 0.9  # a program of a smaller share of the budget could be faster


@dataclass(frozen=True, eq=False, repr=False)
class BudgetReport:
    """Details of a search for a program within a budget.

    Attributes:
      budget: bytes that the program may need, arguments included.
      max_trips: every `scan` of at most so many iterations was unrolled.
      target: machine that programs were compiled for.
      is_measured: whether kernels were timed; else times are by a model.
      least_seconds: lower bound on the time of these kernels within the budget, by the same times,
        s; `None` if it is not known.
      cut_note: a sentence if the search was cut short; else empty.
    """

    budget: int
    max_trips: int
    target: Target
    is_measured: bool = False
    least_seconds: float | None = None
    cut_note: str = ""

    verb = "schedule"
    constant_argnums = ()
    unit = "s"

    def fits(self, candidate: Candidate[KernelSchedule]) -> bool:
        """Return whether a candidate needs no more than the budget, by XLA's own account."""
        return candidate.memory is not None and candidate.memory.total <= self.budget

    def choose(self, candidates: Sequence[Candidate[KernelSchedule]]) -> int:
        """Return the index of the fastest candidate that fits, or of the one that comes nearest."""
        needs = [c.memory.total if c.memory else np.inf for c in candidates]
        times = [
            np.inf if c.predicted is None or not self.fits(c) else c.predicted for c in candidates
        ]
        return int(np.argmin(times if any(map(self.fits, candidates)) else needs))

    def plan(self, result: Result) -> SchedulePlan:
        """Return the decision as a plan."""
        return make_plan(result.after.decision, result.program, self.max_trips)

    def policy(self, result: Result) -> Names:
        """Return the names of what is held, for `jax.checkpoint`."""
        return names_of(result.after.decision)

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
            f"{format_bytes(self.budget)} with arguments; {self.time_note()}"
        )

    def notes(self, result: Result) -> list[str]:
        """Return bytes of the chosen program against the budget, and what is not counted."""
        after = result.after
        lines = [self._need(after)]
        nested = f"{after.name}, nested"
        lines += [self._need(c) + ": inside jax.jit" for c in result.candidates if c.name == nested]
        if self.least_seconds is not None:
            least = format_seconds(self.least_seconds)
            lines.append(f"within the budget, these kernels take at least {least}, in every order")
        captured = sum(getattr(value, "nbytes", 0) for value in result.program.values)
        if captured:
            lines.append(f"captured arrays are not counted: {format_bytes(captured)}")
        return [*lines, self.cut_note] if self.cut_note else lines

    def time_note(self) -> str:
        """Return where times are from."""
        if self.is_measured:
            return "time: sum of kernels, each measured on this CPU"
        if self.target.hardware is None:
            return "time by the model of one CPU core"
        return f"compiled for {self.target.name}, one chip; roofline with a tenth of the bytes"

    def _need(self, candidate: Candidate[KernelSchedule]) -> str:
        needs = candidate.memory.total if candidate.memory else 0
        text = f"{candidate.name} needs {format_bytes(needs)} with arguments"
        over = needs - self.budget
        return f"{text}, {format_bytes(over)} above the budget" if over > 0 else text


def times_of(cost: str | KernelTimes, target: Target) -> Cost:
    """Return what measures kernels; `None` for the model.

    Args:
      cost: "model", "measured", or what remembers measured times.
      target: machine of the kernels.

    Raises:
      ValueError: `cost` is something else, or kernels cannot be timed on the machine.
    """
    if isinstance(cost, str) and cost == "model":
        return None
    if not isinstance(cost, KernelTimes) and cost != "measured":
        raise ValueError(f"cost is {cost!r}: expected 'model', 'measured' or KernelTimes")
    if target.device is not None:
        raise ValueError(f"cost is {cost!r}: expected 'model' beside target=, where nothing runs")
    return cost if isinstance(cost, KernelTimes) else KernelTimes()


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
    target: Target,
    cost: Cost,
    work: Progress,
) -> Result[KernelSchedule, BudgetReport]:
    """Return the fastest program found that fits; arguments are as in `gopt.schedule`.

    Raises:
      ValueError: no program of the kernels can fit.
    """
    work.phase("kernels compiled")
    kernels = kernels_of(program, merged=True, grouping=groups_for_memory, target=target)
    work.phase("XLA's own programs compiled")
    candidates = list(own_programs(fn, args, program, donate_argnums, kernels, work))
    own = [c.memory for c in candidates if c.memory is not None]
    report = BudgetReport(budget_bytes(memory, own), max_trips, target)
    is_searched = bool(kernels.program.equations) and not any(map(report.fits, candidates))
    if is_searched and cost is not None:
        work.phase("kernels timed")
        report = replace(report, is_measured=True)
    found = repeatable(kernels, cost if is_searched else None)
    candidates = [c._replace(predicted=found.seconds) for c in candidates]
    if is_searched:
        least = found.least_bytes + own[0].arguments
        # XLA writes some results of loops over operands, which the model does not know.
        is_bound = least <= min(needs.total for needs in own)
        if is_bound and report.budget < least:
            loops = any(e.primitive.name in ("scan", "while") for e in kernels.source.equations)
            hint = "; a loop is one kernel, and max_trips= unrolls short ones" if loops else ""
            text = f"these kernels need {format_bytes(least)} with arguments in every order{hint}"
            if target.device is not None:
                text = f"the arguments alone need {format_bytes(least)}"
            raise ValueError(
                f"memory is {memory!r}, {format_bytes(report.budget)} with arguments: {text}"
            )
        if is_bound:
            least_seconds = found.least_seconds(report.budget - own[0].arguments)
            report = replace(report, least_seconds=least_seconds)
        candidates += recomputed(args, found, report, candidates[0], evaluations, seed, work)
    chosen = report.choose(candidates)
    after = candidates[chosen]
    if report.fits(after):
        reason = "it fits, and nothing that fits is faster by these times"
    else:
        reason = "nothing that was found fits, and it comes nearest"
        over = format_bytes(after.memory.total - report.budget if after.memory else 0)
        warnings.warn(f"nothing that was found fits: {over} above the budget", stacklevel=4)
    reason += flag_note(after.decision.options or {})
    has_options = after.executable is not None and after.executable.options
    if target.device is None and after.decision.options is None and has_options:
        candidates.append(after.nested(args)._replace(predicted=after.predicted))
    report = replace(report, cut_note=work.cut_note)
    return Result(program, tuple(candidates), chosen, reason, report)


def recomputed(
    args: tuple[Any, ...],
    found: Repeatable,
    report: BudgetReport,
    own: Candidate[KernelSchedule],
    evaluations: int,
    seed: int,
    work: Progress,
) -> Iterator[Candidate[KernelSchedule]]:
    """Yield programs that run kernels again, compiled, until one fits well or no plan does.

    If the first program needs far more than the budget, something else is compiled once. On a CPU
    it is the same plan in XLA's own order, in which only later runs wait. On other machines XLA
    orders kernels anyway; there it is a plan of segments, see `segments_plan`.

    Args:
      args: arguments of the function; shapes are enough.
      found: kernels that may run more than once.
      report: the budget.
      own: XLA's own program.
      evaluations: number of candidates of one search.
      seed: random seed.
      work: shows progress, and ends searches.
    """
    if own.memory is None:
        return
    limit = report.budget - own.memory.arguments  # bytes without arguments
    (peak,) = own.decision.peak
    # Bytes by the model for one of XLA's: more than one where XLA holds values near the cores, or
    # in fewer bits.
    ratio = (peak - own.memory.arguments) / max(own.memory.without_arguments, 1)
    is_free, left = is_order_free(report.target), COMPILATIONS
    ratio = ratio if is_free and ratio > 1 / SPARE else 1.0
    low, high = 0.0, np.inf  # bytes by the model for which a plan fits, and does not
    while left:
        scaled = round(limit * ratio)
        key = COMPILATIONS * seed + COMPILATIONS - left
        plan = search_plan(found, scaled, round(scaled * (1 - MARGIN)), evaluations, key, work)
        name = "recomputed" if left == COMPILATIONS else f"recomputed {COMPILATIONS - left + 1}"
        work.phase("program compiled")
        ways = {is_free: compiled_plan(_named(name, is_free), plan, args, is_free=is_free)}
        yield ways[is_free]
        is_far = _needs(ways[is_free]) > limit / SPARE
        if is_far and left == COMPILATIONS and not work.is_over:
            left -= 1
            if is_free:
                segments = segments_plan(found)
                yield compiled_plan(_named("segments", True), segments, args, is_free=True)
            else:
                ways[True] = compiled_plan(_named(name, True), plan, args, is_free=True)
                yield ways[True]
        left -= 1
        is_free = min(ways, key=lambda way: _needs(ways[way]))
        needs = _needs(ways[is_free])
        before, ratio = ratio, plan.packed / max(needs, 1)
        is_near = ratio <= before / SPARE if needs <= limit else plan.packed > scaled
        if is_near or work.is_over:
            return
        ratio *= min(limit / max(needs, 1), 1) ** 0.1  # the further from it, the less is known
        low, high = (max(low, scaled), high) if needs <= limit else (low, min(high, scaled))
        if 0 < low < high < np.inf and not low < limit * ratio < high:
            ratio = (low * high) ** 0.5 / limit


def _named(name: str, is_free: bool) -> str:
    return f"{name}, XLA's order" if is_free else name


def _needs(candidate: Candidate[KernelSchedule]) -> int:
    return candidate.memory.without_arguments if candidate.memory else 0
