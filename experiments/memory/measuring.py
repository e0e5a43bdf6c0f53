"""One training step: bytes, flop and time of programs within budgets, and of their rivals."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from experiments.memory.cases import Step, checkpointed
from experiments.memory.subject import DONATED, subject
from gopt.cost.recompute.problem import Problem
from gopt.heuristics.recompute import RULES
from gopt.host.progress import Progress
from gopt.measure.equality import largest_difference, random_arguments
from gopt.measure.timing import Memory, median_ratio, memory, time_interleaved
from gopt.result import Candidate
from gopt.scheduling.budget import BudgetReport, recomputed
from gopt.scheduling.candidate import KernelSchedule
from gopt.scheduling.recompute.compiled import is_order_free, jit_schedule
from gopt.scheduling.recompute.plans import Plan, plan_of
from gopt.scheduling.recompute.program import Repeatable
from gopt.scheduling.target import Target

BUDGETS = (0.9, 0.7, 0.5, 0.35, 0.25)  # of XLA's bytes without arguments
WITH_RULES = "50 %"  # budget at which published rules stand beside gopt
OF_POLICY = 0.8  # share of a policy's bytes that gopt is given beside it
TOLERANCE = 1e-3  # of values, as a share of the largest


class Built(NamedTuple):
    """A compiled program.

    Attributes:
      run: the program.
      flop: its floating-point operations, by XLA's count.
    """

    run: jax.stages.Compiled
    flop: float

    @property
    def memory(self) -> Memory:
        """Its memory, by XLA's own account."""
        return memory(self.run)


class Method(NamedTuple):
    """A program of a step, and how it was found.

    Attributes:
      name: name in tables.
      budget: share of XLA's bytes without arguments; `None` for programs without a budget.
      built: the program.
      predicted: time by the model, s; `None` if it is not known.
      planned: bytes by the model, without arguments; `None` if they are not known.
      search: time of the search, s; of gopt with compilation.
    """

    name: str
    budget: float | None
    built: Built
    predicted: float | None = None
    planned: int | None = None
    search: float = 0.0


def measure(
    name: str,
    budgets: tuple[float, ...],
    evaluations: int,
    repeats: int,
    seed: int,
    target: str | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each program of a step.

    Args:
      name: name of the step.
      budgets: shares of the bytes without arguments of the better of XLA's two programs.
      evaluations: budget of each search.
      repeats: rounds of timing; 0 times nothing, and runs nothing.
      seed: random seed of the searches.
      target: machine to compile for, see `gopt.schedule`; on another machine nothing runs.

    Raises:
      RuntimeError: a program has other values than the step.
    """
    _, step, found, candidates, limit = subject(name, target)
    machine, least = found.kernels.target, found.least_bytes
    own = [_method(step, found, c, None, found.seconds) for c in candidates]
    policies = [Method(key, None, c) for key, c in policies_of(name, machine).items()]
    goals = {f"{100 * budget:.0f} %": budget for budget in budgets}
    needs = {p.name: p.built.memory.without_arguments for p in policies}
    for policy in unbeaten({p.name: (needs[p.name], p.built.flop) for p in policies}):
        if needs[policy] < limit:
            share = OF_POLICY * needs[policy] / limit
            goals[f"{100 * OF_POLICY:.0f} % of {policy}"] = share
    methods = [*own, *policies]
    for goal, budget in goals.items():
        bytes = int(budget * limit)
        if bytes >= least:
            every = _within(step, found, candidates[0], goal, budget, bytes, evaluations, seed)
            methods += every if goal == WITH_RULES else itertools.islice(every, 1)
    times = _times(step, methods, repeats) if machine.device is None else {}
    rows = []
    for method in methods:
        row: dict[str, Any] = {"step": name, "method": method.name, "budget": method.budget}
        used = method.built.memory
        row |= {"limit": None if method.budget is None else int(method.budget * limit)}
        row |= {"bytes": used.without_arguments, "arguments": used.arguments}
        row |= {"planned": method.planned, "flop": method.built.flop}
        row |= {"predicted": method.predicted, "search s": method.search, "least": least}
        if method.name in times:
            for clock in ("process", "wall"):
                base = getattr(times["XLA"], clock)
                row[f"{clock} ratio"] = median_ratio(getattr(times[method.name], clock), base)
        rows.append(row)
    return rows


def _method(
    step: Step,
    found: Repeatable,
    candidate: Candidate[KernelSchedule],
    budget: float | None,
    predicted: float | None,
    name: str = "",
    search: float = 0.0,
) -> Method:
    """Return a candidate of gopt as a method, compiled."""
    decision, run = candidate.decision, candidate.executable
    function = run.function if run and decision.options is not None else jit_schedule(decision)
    built = build(found.kernels.target, function, step.args)
    arguments = candidate.memory.arguments if candidate.memory else 0
    planned = int(decision.peak[0]) - arguments
    return Method(name or candidate.name, budget, built, predicted, planned, search)


def policies_of(name: str, target: Target, **sizes: int) -> dict[str, Built]:
    """Return the programs of a step with standard policies of `jax.checkpoint`, compiled.

    Args:
      name: name of the step.
      target: machine to compile for.
      **sizes: sizes other than the step's own, such as `batch`.
    """
    return {
        policy: build(target, jax.jit(step.fn, donate_argnums=DONATED), step.args)
        for policy, step in checkpointed(name, **sizes).items()
    }


def unbeaten(costs: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of what nothing else beats, given bytes and flop by name."""
    return [
        name
        for name, mine in costs.items()
        if not any(
            its != mine and its[0] <= mine[0] and its[1] <= mine[1] for its in costs.values()
        )
    ]


def build(target: Target, function: Any, args: Any) -> Built:
    """Return a jitted function of arguments, compiled for a machine.

    Flop are XLA's count of the compiled program. For a GPU XLA has no such count. There, flop are
    counted before its optimizations, which merge or split some operations.

    Args:
      target: the machine.
      function: the jitted function.
      args: its arguments, or shapes.
    """
    run = target.compile(function, args)
    counts: Any = run
    if target.platform == "gpu":
        with jax.default_device(jax.devices("cpu")[0]):
            counts = function.lower(*jax.tree.map(jax.typeof, args))
    return Built(run, float(counts.cost_analysis()["flops"]))


def _within(
    step: Step,
    found: Repeatable,
    own: Candidate[KernelSchedule],
    goal: str,
    budget: float,
    bytes: int,
    evaluations: int,
    seed: int,
) -> Iterator[Method]:
    """Yield programs for one budget: of gopt, and of published rules."""
    began = time.perf_counter()
    arguments = own.memory.arguments if own.memory else 0
    report = BudgetReport(bytes + arguments, 0, found.kernels.target)
    every = list(recomputed(step.args, found, report, own, evaluations, seed, Progress()))
    best, seconds = every[report.choose(every)], time.perf_counter() - began
    yield _method(step, found, best, budget, best.predicted, f"gopt, {goal}", seconds)
    units = found.units(bytes)
    for rule, runs_for in RULES.items():
        began = time.perf_counter()
        plan = _plan(found, runs_for, units)
        if plan is not None:
            seconds, target = time.perf_counter() - began, found.kernels.target
            schedule = plan.schedule._replace(is_free=is_order_free(target))
            built = build(target, jit_schedule(schedule), step.args)
            yield Method(f"{rule}, {goal}", budget, built, plan.seconds, plan.packed, seconds)


def _plan(
    found: Repeatable, runs_for: Callable[[Problem, int], list[int] | None], units: int
) -> Plan | None:
    runs = runs_for(found.problem, units)
    return None if runs is None else plan_of(found, runs)


def _times(step: Step, methods: list[Method], repeats: int) -> dict[str, Any]:
    """Return times of XLA's programs, policies and gopt, in interleaved rounds; checks values."""
    if not repeats:
        return {}
    args = random_arguments(step.args)
    timed = [m for m in methods if m.budget is None or m.name.startswith("gopt")]

    def given() -> tuple[Any, ...]:
        return tuple(
            jax.tree.map(jax.numpy.copy, arg) if k in DONATED else arg for k, arg in enumerate(args)
        )

    expected = jax.tree.leaves(methods[0].built.run(*given()))
    for method in timed:
        values = jax.tree.leaves(method.built.run(*given()))
        difference = largest_difference(values, expected)
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{method.name}: values differ by {difference:.0e}")
    return time_interleaved({m.name: m.built.run for m in timed}, given, repeats=repeats)
