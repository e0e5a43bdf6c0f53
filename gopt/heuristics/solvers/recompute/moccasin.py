"""MOCCASIN: recomputation by constraint programming, in stages of a fixed order.

Source: Bartan, Li, Teague, Lott and Dilkina, "MOCCASIN: Efficient tensor rematerialization for
neural networks" (ICML 2023). As published: each run of an op has a retention interval of a start,
an end and a literal that says whether it happens; the intervals share the memory in one cumulative
constraint. Stage j of a given order ends with the first run of its j-th op, before which each
earlier op has a place for one more run. A first phase looks for any schedule that fits, from the
one without recomputation; a second one for the least time. Our choice: an interval for each tensor,
since our ops may make several; literals that say which run a reader reads; memory that an op holds
only while it runs. Needs the extra `solvers`.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gopt.cost.recompute.problem import Problem
from gopt.heuristics.solvers.recompute.common import (
    ROUNDING,
    Program,
    Solution,
    check_arguments,
    checked_order,
    checked_runs,
    cp_model,
    run_solver,
)
from gopt.host.progress import Progress, Show


def solve(
    problem: Problem,
    budget: int,
    *,
    max_runs: int = 2,
    order: Sequence[int] | None = None,
    seconds: float,
    workers: int = 0,
    seed: int = 0,
    progress: Show = True,
) -> Solution:
    """Return the fastest sequence of runs within a budget that MOCCASIN finds.

    Its bound holds for the given order and number of runs alone.

    Args:
      problem: one problem, as NumPy arrays.
      budget: largest memory, units.
      max_runs: largest number of runs of an op; the paper's C.
      order: all ops in the order of their first runs; by default the order of the program.
      seconds: time limit of both phases together, s.
      workers: number of threads; 0 means one per core.
      seed: random seed of the solver.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Raises:
      ValueError: `budget`, `max_runs` or `seconds` is out of range, or `order` is invalid.
      RuntimeError: CP-SAT rejects the model.
    """
    check_arguments(budget, seconds, max_runs)
    program = Program(problem)
    chosen = checked_order(program, order)
    if (known := program.without_runs(budget)) is not None:
        return known
    ends = time.monotonic() + seconds
    with Progress("MOCCASIN", progress) as work:
        work.phase("any schedule that fits")
        model = _Intervals(program, chosen, budget, max_runs)
        model.model.minimize(model.peak)
        solver, status = run_solver(model.model, seconds, workers, seed)
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        if not found or solver.value(model.peak) > budget:
            return Solution(None, 0, program.once, status == cp_model.OPTIMAL)
        best, most = checked_runs(problem, model.runs(solver), budget)
        work.phase("least time")
        model.hint(solver)
        model.model.add(model.peak == budget)
        model.model.minimize(model.ticks)
        left = max(ends - time.monotonic(), 1e-3)
        solver, status = run_solver(model.model, left, workers, seed)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        best, most = checked_runs(problem, model.runs(solver), budget)
    proven, bound = solver.best_objective_bound, program.once
    if np.isfinite(proven):
        bound = min(most, max(bound, math.ceil(proven - ROUNDING)))
    return Solution(best, most, bound, status == cp_model.OPTIMAL)


class _Run:
    """One run of an op: where it starts, whether it happens, and the end of each of its tensors."""

    def __init__(self, start: Any, happens: Any, ends: dict[int, Any]):
        self.start, self.happens, self.ends = start, happens, ends


class _Intervals:
    """Model of retention intervals over the events of all stages.

    Attributes:
      model: CP-SAT's model.
      peak: peak memory, units, at least the budget.
      ticks: time of all runs, ticks.
    """

    def __init__(self, program: Program, order: list[int], budget: int, max_runs: int):
        """Build the model for an order of ops without inputs."""
        self.model = cp_model.CpModel()
        self.program, self.order = program, order
        self.horizon = _event(len(order), len(order)) + 1
        self.place = {op: k for k, op in enumerate(order, 1)}
        most = program.start + sum(map(program.run_memory, order)) * max_runs
        self.peak = self.model.new_int_var(budget, max(budget, most), "")
        self.intervals: list[Any] = []
        self.units: list[int] = []
        self.all_runs: dict[int, list[_Run]] = {op: self._runs(op, max_runs) for op in order}
        self.given = {tensor: self._given(tensor) for tensor in program.given}
        for op in order:
            for k, run in enumerate(self.all_runs[op]):
                for tensor in program.reads[op]:
                    self._read(run, k == 0, tensor)
        self.model.add_cumulative(self.intervals, self.units, self.peak)
        self.ticks = sum(program.ticks[op] * run.happens for op, run in self._each())

    def runs(self, solver: Any) -> list[int]:
        """Return the ops of the solution in the order in which they run, inputs first."""
        happen = [
            (solver.value(run.start), op) for op, run in self._each() if solver.value(run.happens)
        ]
        return self.program.starting_runs() + [op for _, op in sorted(happen)]

    def hint(self, solver: Any) -> None:
        """Start the next search from the solution of the last one."""
        self.model.clear_hints()
        for index in range(len(self.model.proto.variables)):
            variable = self.model.get_int_var_from_proto_index(index)
            self.model.add_hint(variable, solver.value(variable))

    def _each(self) -> list[tuple[int, _Run]]:
        return [(op, run) for op in self.order for run in self.all_runs[op]]

    def _literal(self, hint: bool) -> Any:
        variable = self.model.new_bool_var("")
        self.model.add_hint(variable, hint)
        return variable

    def _hold(self, start: Any, length: Any, end: Any, happens: Any, units: int) -> None:
        interval = self.model.new_optional_interval_var(start, length, end, happens, "")
        self.intervals.append(interval)
        self.units.append(units)

    def _end(self, tensor: int, start: Any, first: int, happens: Any, known: bool) -> Any:
        """Return the end of a tensor's retention interval, one event after its last reader."""
        if tensor in self.program.pinned:
            end = self.model.new_constant(self.horizon)
        else:
            end = self.model.new_int_var(first + 1, self.horizon, "")
            readers = self.program.readers[tensor]
            last = max(_event(self.place[op], self.place[op]) for op in readers)
            self.model.add_hint(end, last + 1 if known else first + 1)
        length = self.model.new_int_var(1, self.horizon, "")  # a run holds what it makes
        self._hold(start, length, end, happens, self.program.size[tensor])
        return end

    def _given(self, tensor: int) -> _Run:
        end = self._end(tensor, 0, 0, True, True)
        return _Run(0, True, {tensor: end})

    def _runs(self, op: int, max_runs: int) -> list[_Run]:
        """Return the runs of an op; the first one has a fixed start."""
        model, program, place = self.model, self.program, self.place[op]
        runs: list[_Run] = []
        again = [_event(stage, place) for stage in range(place + 1, len(self.order) + 1)]
        for k in range(max_runs if program.repeats[op] and again else 1):
            if k == 0:
                first = _event(place, place)
                start, happens = model.new_constant(first), model.new_constant(1)
            else:
                first = again[0]
                start = model.new_int_var_from_domain(cp_model.Domain.from_values(again), "")
                model.add_hint(start, first)
                happens = self._literal(False)
            ends = {t: self._end(t, start, first, happens, k == 0) for t in program.makes[op]}
            if program.transient[op]:
                self._hold(start, 1, start + 1, happens, program.transient[op])
            if runs:
                model.add_implication(happens, runs[-1].happens)
                model.add(start > runs[-1].start).only_enforce_if(happens)
                for end in runs[-1].ends.values():
                    model.add(end <= start).only_enforce_if(happens)
            runs.append(_Run(start, happens, ends))
        return runs

    def _read(self, run: _Run, is_first: bool, tensor: int) -> None:
        """Constrain a run to be within a retention interval of a tensor that it reads."""
        is_given = tensor in self.given
        made = [self.given[tensor]] if is_given else self.all_runs[self.program.maker[tensor]]
        chosen = [self._literal(is_first and k == 0) for k in range(len(made))]
        self.model.add_bool_or(*chosen, ~run.happens)
        for maker, literal in zip(made, chosen, strict=True):
            if not is_given:
                self.model.add_implication(literal, maker.happens)
                self.model.add(run.start > maker.start).only_enforce_if(literal)
            self.model.add(run.start < maker.ends[tensor]).only_enforce_if(literal)


def _event(stage: int, place: int) -> int:
    """Return the time of an op's run in a stage; both count from 1."""
    return stage * (stage - 1) // 2 + place
