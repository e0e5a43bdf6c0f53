"""A problem of recomputation as Python lists, checks of arguments, and the result of a solver."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from gopt.cost.recompute.cost import cost_of_runs
from gopt.cost.recompute.problem import Problem
from gopt.host.extras import optional

cp_model = optional("ortools.sat.python.cp_model", "solvers", "CP-SAT")

ROUNDING = 1e-6  # of a solver's bound, a float


class Solution(NamedTuple):
    """Result of a solver.

    Attributes:
      runs: ops in the order in which they run, some more than once; `None` if none was found that
        fits into the budget.
      ticks: time of those runs, ticks; 0 without runs.
      bound: lower bound on the time of every sequence of the solver's model, ticks.
      is_optimal: whether the solver proved that no sequence of its model takes less time or,
        without runs, that none fits.
    """

    runs: list[int] | None
    ticks: int
    bound: int
    is_optimal: bool


class Program:
    """Ops and tensors of a problem, without padding.

    Inputs run first: they are in memory from the start, so a later run saves nothing. A tensor that
    nobody reads and that is not pinned is memory of its op's run alone.

    Attributes:
      inputs: input ops.
      ops: other ops, in the order of the program.
      ticks: time of a run of each op, ticks.
      repeats: whether each op may run again; false for ops that nobody reads.
      makes: tensors that each op makes, read or pinned ones.
      reads: tensors that each op reads.
      readers: ops that read each tensor.
      maker: op that makes each tensor.
      pinned: tensors held to the end.
      given: tensors of inputs that are read or pinned.
      size: memory of each tensor, units.
      transient: memory of each op that is held only while it runs, units.
      once: time of one run of each op, ticks.
      start: memory of all inputs, units.
    """

    def __init__(self, problem: Problem):
        """Convert a problem, as NumPy arrays."""
        n, uses = int(problem.num_ops), int(problem.num_uses)
        every = range(n)
        is_input = problem.is_input[:n].tolist()
        self.inputs = [op for op in every if is_input[op]]
        self.ops = [op for op in every if not is_input[op]]
        self.ticks: list[int] = problem.ticks[:n].tolist()
        self.transient: list[int] = problem.workspace[:n].tolist()
        self.size: list[int] = problem.size.tolist()
        self.maker: list[int] = problem.producer.tolist()
        pairs = zip(problem.tensor[:uses].tolist(), problem.consumer[:uses].tolist(), strict=True)
        self.readers: list[list[int]] = [[] for _ in self.size]
        self.reads: list[list[int]] = [[] for _ in every]
        for tensor, op in sorted(set(pairs)):
            self.readers[tensor].append(op)
            self.reads[op].append(tensor)
        self.makes: list[list[int]] = [[] for _ in every]
        self.pinned: set[int] = set()
        self.start = 0
        for tensor, op in enumerate(self.maker):
            if op >= n:
                continue  # padding
            self.start += self.size[tensor] * is_input[op]
            if problem.pinned[tensor]:
                self.pinned.add(tensor)
            if problem.pinned[tensor] or self.readers[tensor]:
                self.makes[op].append(tensor)
            elif not is_input[op]:
                self.transient[op] += self.size[tensor]
        self.repeats = [bool(problem.may_repeat[op] and self.makes[op]) for op in every]
        self.given = [tensor for op in self.inputs for tensor in self.makes[op]]
        self.once = sum(self.ticks)

    @property
    def tensors(self) -> list[int]:
        """Tensors that are read or pinned."""
        return [*self.given, *(tensor for op in self.ops for tensor in self.makes[op])]

    def without_runs(self, budget: int) -> Solution | None:
        """Return the solution if there are only inputs, or if they do not fit; else `None`."""
        if self.start > budget:
            return Solution(None, 0, self.once, True)
        return None if self.ops else Solution(self.starting_runs(), 0, 0, True)

    def read_from(self, op: int) -> set[int]:
        """Return the ops, without inputs, that make what an op reads."""
        return {self.maker[tensor] for tensor in self.reads[op]} - set(self.inputs)

    def run_memory(self, op: int) -> int:
        """Return the memory that a run needs besides tensors made before, units."""
        return self.transient[op] + sum(self.size[tensor] for tensor in self.makes[op])

    def starting_runs(self) -> list[int]:
        """Return the inputs in an order in which unread ones leave memory first."""
        return sorted(self.inputs, key=lambda op: bool(self.makes[op]))


def check_arguments(budget: Any, seconds: float, max_runs: Any = 1) -> None:
    """Raise `ValueError` if a budget, a time limit or a number of runs is invalid."""
    if not _is_whole(budget) or budget < 0:
        raise ValueError(f"budget is {budget!r}: expected a whole number of units, 0 at least")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds}: expected a positive number")
    if not _is_whole(max_runs) or max_runs < 1:
        raise ValueError(f"max_runs is {max_runs!r}: expected a whole number, 1 at least")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool)


def checked_order(program: Program, order: Sequence[int] | None) -> list[int]:
    """Return a given order of all ops without its inputs, or the order of the program.

    Raises:
      ValueError: `order` does not have each op once, or an op comes before one that it reads.
    """
    if order is None:
        return program.ops
    given = [int(op) for op in order]
    if sorted(given) != sorted(program.inputs + program.ops):
        raise ValueError(f"order has {len(given)} entries: expected each op once")
    chosen = [op for op in given if op not in set(program.inputs)]
    place = {op: k for k, op in enumerate(chosen)}
    for op in chosen:
        for maker in program.read_from(op):
            if place[maker] > place[op]:
                raise ValueError(f"order has op {op} before op {maker}, which it reads")
    return chosen


def checked_runs(problem: Problem, runs: Sequence[int], budget: int) -> tuple[list[int], int]:
    """Return the runs of a solver's solution and their ticks.

    Raises:
      RuntimeError: they do not fit into the budget: the solver's model is wrong.
    """
    ticks, peak = cost_of_runs(problem, runs)
    if peak > budget:
        raise RuntimeError(f"the solver's runs need {peak} units: the budget is {budget}")
    return list(runs), ticks


def run_solver(model: Any, seconds: float, workers: int, seed: int) -> tuple[Any, Any]:
    """Return CP-SAT's solver after it ran, and its status.

    Raises:
      RuntimeError: CP-SAT rejects the model.
    """
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refuses the model: {model.validate()}")
    return solver, status
