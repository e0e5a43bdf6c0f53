"""Memory against time: programs of one function that no other one beats in both."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gopt.cost.recompute.cost import runs_of
from gopt.host.progress import Progress, Show
from gopt.measure.kernel_times import KernelTimes
from gopt.plots.tables import aligned
from gopt.plots.units import format_bytes, format_seconds, parse_bytes
from gopt.program.arguments import check_whole_numbers, keywords_are_options
from gopt.program.checks import check_alone, check_arrays, check_one_device
from gopt.program.effects import DropEffects, drop
from gopt.program.program import trace_program, unroll
from gopt.result import Candidate, Result
from gopt.scheduling.budget import BudgetReport, times_of
from gopt.scheduling.candidate import KernelSchedule, kernels_of
from gopt.scheduling.on_this_device import own_programs
from gopt.scheduling.recompute.compiled import compiled_plan, is_order_free
from gopt.scheduling.recompute.plans import PARTS, Plan, plan_of, search_plan, segments_plan
from gopt.scheduling.recompute.policies import POLICIES, choices_of
from gopt.scheduling.recompute.program import Repeatable, repeatable
from gopt.scheduling.target import target_of
from gopt.xla.grouping import groups_for_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = Result[KernelSchedule, BudgetReport]


@dataclass(frozen=True, eq=False, repr=False)
class Front:
    """Programs of one function. Print it for a table; changes are from the fastest one.

    Attributes:
      points: programs that no other one beats in bytes and time, by falling bytes; each is a result
        with `apply()`, `save()` and `plan`.
      others: programs that were compared, and are beaten.
    """

    points: tuple[Point, ...]
    others: tuple[Point, ...]

    def __str__(self) -> str:
        first = min((*self.points, *self.others), key=lambda point: point.after.predicted or 0)
        rows: list[tuple[str, ...]] = []
        time = "time, measured" if first.report.is_measured else "time by the model"
        rows.append(("", "with arguments", "XLA needs", time, "change"))
        rows += [_row(point, first, "") for point in self.points]
        rows += [_row(point, first, " (beaten)") for point in self.others]
        return "\n".join(aligned(rows))

    def __repr__(self) -> str:
        return f"<Front of {len(self.points)} programs, {len(self.others)} beaten>"

    def within(self, memory: int | str) -> Point:
        """Return the fastest point of at most so many bytes, arguments included.

        Args:
          memory: whole number of bytes, or a text such as "30 GiB".

        Raises:
          ValueError: no point fits, or `memory` is something else.
        """
        if isinstance(memory, float):
            raise ValueError(f"memory is {memory}: expected a whole number of bytes, or a text")
        memory = parse_bytes(memory) if isinstance(memory, str) else memory
        fitting = [point for point in self.points if _bytes(point) <= memory]
        if not fitting:
            least = min(map(_bytes, self.points))
            raise ValueError(f"memory is {memory}: the smallest point needs {least} bytes")
        return min(fitting, key=lambda point: point.after.predicted or 0.0)

    def plot(self) -> "Figure":
        """Return a figure of bytes against time."""
        from gopt import plots

        every = (*self.points, *self.others)
        return plots.memory_front(
            {p.after.name: (_bytes(p), p.after.predicted or 0.0) for p in every},
            [p.after.name for p in self.points],
        )


@keywords_are_options
def memory_front(
    fn: Callable[..., Any],
    *args: Any,
    points: int = 12,
    evaluations: int = 10_000,
    seed: int = 0,
    donate_argnums: int | Sequence[int] = (),
    max_trips: int = 0,
    target: str | None = None,
    cost: str | KernelTimes = "model",
    drop_effects: DropEffects = None,
    seconds: float | None = None,
    progress: Show = True,
) -> Front:
    """Return programs of `fn(*args)` from the fastest to the one that needs least memory.

    Kernels may run again, so that their results need not be held, as in `gopt.schedule(memory=)`.
    XLA's own programs are compared, and the standard policies of `jax.checkpoint` over the whole
    function, as gopt imitates them. Times are by a model of one CPU core, or on other machines by a
    roofline, both with a tenth of the bytes; or sums of measured kernels. Bytes are XLA's own
    account of compiled programs, without captured arrays.

    Args:
      fn: any function of pytrees of arrays, such as a training step.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      points: number of programs that gopt plans, at least 2: with every kernel once, with the
        least bytes, and for budgets between these; one more on TPUs and GPUs. The front may have
        fewer.
      evaluations: number of candidates of one search; a budget may need up to eight.
      seed: random seed of the searches.
      donate_argnums: positions of the arguments whose buffers may be reused. What a jitted `fn`
        donates is donated, too.
      max_trips: largest number of iterations of a `scan` that is unrolled.
      target: machine to compile for, such as "tpu v5e:2x2", see `gopt.schedule`; by default this
        one.
      cost: times of kernels: "model", or "measured" on this CPU, see `gopt.schedule`.
      drop_effects: "debug" drops `jax.debug.print` and `jax.debug.callback`.
      seconds: time from the call on after which searches end with the best so far, s; by default
        only Ctrl-C ends them early.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Raises:
      ValueError: an argument is out of range; the function cannot be traced (see `gopt.trace`), has
        no kernel, or runs on several devices; or the call is traced.

    Example:
      import gopt, jax, jax.numpy as jnp

      step = jax.grad(lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2))
      front = gopt.memory_front(step, jnp.ones((64, 64)), jnp.ones((512, 64)), evaluations=500)
      print(front)
      smallest = front.points[-1].apply()
    """
    check_whole_numbers(2, points=points)
    check_whole_numbers(1, evaluations=evaluations)
    check_whole_numbers(0, seed=seed, max_trips=max_trips)
    machine = target_of(target)
    times = times_of(cost, machine)
    work = Progress("gopt.memory_front", progress, seconds=seconds)
    fn = drop(fn, drop_effects)
    program = trace_program(fn, *args, donate_argnums=donate_argnums)
    check_alone(args, program)
    check_one_device(args, program)
    check_arrays((), program)
    program = unroll(program, max_trips=max_trips) if max_trips else program
    with work, work.interrupts_noted():
        work.phase("kernels compiled")
        kernels = kernels_of(program, merged=True, grouping=groups_for_memory, target=machine)
        if not kernels.program.equations:
            raise ValueError("the function has no kernel: nothing can run again")
        work.phase("XLA's own programs compiled")
        own = list(own_programs(fn, args, program, donate_argnums, kernels, work))
        if times is not None:
            work.phase("kernels timed")
        found = repeatable(kernels, times)
        candidates = [c._replace(predicted=found.seconds) for c in own]
        is_free = is_order_free(machine)
        plans = [*_policies(found), *_plans(found, own, points, evaluations, seed, work)]
        plans += [("segments", segments_plan(found))] if is_free else []
        work.phase("programs compiled", len(plans))
        for k, (name, plan) in enumerate(plans):
            if work.is_interrupted:
                break
            work.advance(k)
            candidates.append(compiled_plan(name, plan, args, is_free=is_free))
    report = BudgetReport(0, max_trips, machine, times is not None, cut_note=work.cut_note)
    return _front(
        [
            Result(
                program, tuple(candidates), k, "it is a point", replace(report, budget=_total(c))
            )
            for k, c in enumerate(candidates)
        ]
    )


def _policies(found: Repeatable) -> Iterator[tuple[str, Plan]]:
    """Yield the standard policies of `jax.checkpoint`, where the function has residuals."""
    for name, policy in POLICIES.items():
        choices = choices_of(found, policy)
        if choices is not None:
            yield f"policy {name}", plan_of(found, runs_of(found.problem, choices))


def _plans(
    found: Repeatable,
    own: Sequence[Candidate[KernelSchedule]],
    points: int,
    evaluations: int,
    seed: int,
    work: Progress,
) -> Iterator[tuple[str, Plan]]:
    """Yield plans for budgets between the bytes without recomputation and the least ones."""
    arguments = own[0].memory.arguments if own[0].memory else 0
    once = plan_of(found, runs_of(found.problem, None))
    yield "every kernel once", once
    # Our choice: the other order would take as long. It came lower on one of twelve steps.
    alone = found._replace(other=None)
    least = search_plan(alone, 0, found.least_bytes, evaluations, seed, work)
    plan = once
    for budget in np.geomspace(once.packed, least.packed, points)[1:-1].astype(int).tolist():
        gap = min(max(plan.packed - plan.peak, 0), budget // PARTS)  # of the plan before
        plan = search_plan(found, budget, budget - gap, evaluations, seed, work)
        yield f"for {format_bytes(budget + arguments)}", plan
    yield "for the least bytes", least


def _front(results: Sequence[Point]) -> Front:
    """Return results parted into those that no other beats, by falling bytes, and the others."""

    def is_beaten(point: Point) -> bool:
        mine = np.array([_bytes(point), point.after.predicted])
        for k, other in enumerate(results):
            its = np.array([_bytes(other), other.after.predicted])
            if (its <= mine).all() and ((its < mine).any() or k < results.index(point)):
                return True
        return False

    points = [point for point in results if not is_beaten(point)]
    others = [point for point in results if is_beaten(point)]
    return Front(tuple(sorted(points, key=_bytes, reverse=True)), tuple(others))


def _total(candidate: Candidate[KernelSchedule]) -> int:
    return candidate.memory.total if candidate.memory else 0


def _bytes(point: Point) -> int:
    return _total(point.after)


def _row(point: Point, first: Point, note: str) -> tuple[str, ...]:
    after, base = point.after, first.after.predicted
    needs = after.memory.without_arguments if after.memory else 0
    change = f"{100 * ((after.predicted or 0.0) / base - 1):+.1f} %" if base else "-"
    time = format_seconds(after.predicted or 0.0)
    return after.name + note, format_bytes(_total(after)), format_bytes(needs), time, change
