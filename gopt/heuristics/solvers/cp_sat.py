"""Schedules by constraint programming: OR-tools' CP-SAT on the whole cost model.

The model contains placement, transfers, order or clock, and memory. It is exact, given time, and
its bounds hold for every schedule under `gopt.cost.schedule.execution`. Memory is accounted along
the issue order, an approximation for asynchronous transfers. Needs the extra `solvers`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.cost.schedule.decoding import Keys, Schedule, decode
from gopt.cost.schedule.execution import simulate
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.bounds import makespan_bound, peak_bound
from gopt.heuristics.schedule.encode import keys_from_items
from gopt.host.extras import optional
from gopt.host.progress import Progress, Show

cp_model = optional("ortools.sat.python.cp_model", "solvers", "CP-SAT")


class Solution(NamedTuple):
    """Result of the solver.

    Attributes:
      keys: keys of the best candidate.
      cost: cost of that candidate: largest peak in units, or makespan in ticks.
      bound: lower bound on the cost of every schedule.
    """

    keys: Keys
    cost: int
    bound: int


def solve(
    problem: Problem,
    initial: Keys,
    *,
    objective: str,
    seconds: float,
    workers: int = 0,
    seed: int = 0,
    progress: Show = True,
) -> Solution:
    """Return the best schedule that CP-SAT finds from a given one, and a lower bound.

    Args:
      problem: one problem, as NumPy arrays.
      initial: keys of the starting candidate, such as the best heuristic's.
      objective: "peak_memory" or "makespan".
      seconds: time limit of the solver in seconds, after the model is built.
      workers: number of threads; 0 means one per core. With one thread and enough time to finish,
        equal arguments give equal schedules.
      seed: random seed of the solver.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.

    Raises:
      ValueError: the objective is unknown, or `seconds` is not positive.
      RuntimeError: CP-SAT rejects the model.
    """
    if objective not in _MODELS:
        raise ValueError(f"objective is {objective!r}: expected one of {', '.join(_MODELS)}")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds}: expected a positive number")
    build, read_cost, least = _MODELS[objective]
    known = _schedule(problem, initial)
    variables = build(problem, known)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    with Progress("CP-SAT", progress) as work:
        work.phase(f"solver, {seconds:g} s at most")
        status = solver.solve(variables.model)
    if status in (cp_model.MODEL_INVALID, cp_model.INFEASIBLE):
        reason = variables.model.validate() or "it finds no schedule, and one was given"
        raise RuntimeError(f"CP-SAT refuses the model: {reason}")
    candidates = [(read_cost(known), initial)]
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        keys = variables.keys(solver)
        candidates.append((read_cost(_schedule(problem, keys)), keys))
    cost, keys = min(candidates, key=lambda candidate: candidate[0])
    proven = solver.best_objective_bound  # -inf without time to search
    bound = max(least(problem), int(np.ceil(proven)) if np.isfinite(proven) else 0)
    return Solution(keys, cost, bound)


@jax.jit
def _simulated(problem: Problem, keys: Keys) -> Schedule:
    return simulate(problem, decode(problem, keys))


def _schedule(problem: Problem, keys: Keys) -> Schedule:
    return jax.device_get(_simulated(problem, keys))


class _Variables:
    """Model variables: devices of ops, transfers, and begins of items.

    A begin is a step of an order or a tick.

    Inputs begin at 0. Items are numbered as in `Problem`.
    """

    def __init__(self, problem: Problem, known: Schedule, begins: dict[int, int], last: int):
        self.model = cp_model.CpModel()
        self.problem = problem
        self.devices = range(problem.num_devices)
        self.maker: list[int] = problem.producer.tolist()
        first, consumer = problem.first_use.tolist(), problem.consumer.tolist()
        self.readers = [
            consumer[first[tensor] : first[tensor + 1]]
            for tensor in range(int(problem.num_tensors))
        ]
        ops = range(int(problem.num_ops))
        self.ops = [op for op in ops if not problem.is_input[op]]
        # Literals: op i is on device d; tensor t is sent to device d.
        self.on = [self._place(op, int(known.device[op])) for op in ops]
        self.sent = {
            (tensor, to): self._send(tensor, to, begins)
            for tensor, readers in enumerate(self.readers)
            for to in self.devices
            if any(problem.allowed[op, to] for op in readers)
        }
        self.begin: dict[int, Any] = {op: 0 for op in ops if problem.is_input[op]}
        items = [*self.ops, *(self.transfer(*sent) for sent in self.sent)]
        self.begin |= {item: self.number(0, last, begins.get(item, 0)) for item in items}
        self.end = dict(self.begin)  # in an order, items take no time

    def transfer(self, tensor: int, to: int) -> int:
        """Return the item number of the transfer of a tensor to a device."""
        return self.problem.shape.ops + tensor * len(self.devices) + to

    def number(self, low: int, high: int, hint: int) -> Any:
        """Return a new integer variable with a hint."""
        variable = self.model.new_int_var(low, high, "")
        self.model.add_hint(variable, hint)
        return variable

    def literal(self, hint: bool) -> Any:
        """Return a new Boolean literal with a hint."""
        variable = self.model.new_bool_var("")
        self.model.add_hint(variable, hint)
        return variable

    def after(self, later: Any, earlier: Any, *literals: Any) -> None:
        """Constrain `later >= earlier` if all literals hold."""
        self.model.add(later >= earlier).only_enforce_if(*literals)

    def _place(self, op: int, known: int) -> list[Any]:
        on = [self.literal(device == known) for device in self.devices]
        self.model.add_exactly_one(on)
        for device in self.devices:
            if not self.problem.allowed[op, device]:
                self.model.add(on[device] == 0)
        return on

    def _send(self, tensor: int, to: int, begins: dict[int, int]) -> Any:
        sent = self.literal(self.transfer(tensor, to) in begins)
        home = self.on[self.maker[tensor]][to]
        self.model.add_implication(sent, ~home)
        for op in self.readers[tensor]:
            self.model.add_bool_or(sent, home, ~self.on[op][to])
        return sent

    def keys(self, solver: Any) -> Keys:
        """Return the keys of the solution."""
        device = [[solver.value(here) for here in on].index(1) for on in self.on]
        # At equal begins, items that take no time come first, producers before readers.
        items = [
            (solver.value(self.begin[op]), solver.value(self.end[op]), op, 0, op)
            for op in range(len(self.on))
        ]
        for tensor, to in self.sent:
            maker = self.maker[tensor]
            if device[maker] != to and any(device[op] == to for op in self.readers[tensor]):
                item = self.transfer(tensor, to)
                begin, end = solver.value(self.begin[item]), solver.value(self.end[item])
                items.append((begin, end, maker, 1, item))
        return keys_from_items(self.problem, device, [item for *_, item in sorted(items)])


def _peak_model(problem: Problem, known: Schedule) -> _Variables:
    """Build the memory model: items are issued at steps, memory is in use over intervals of steps.

    Items may share a step: issued one after another, in any order, they need no more memory.
    """
    order = known.order[: int(known.num_items)].tolist()
    order = [item for item in order if item >= problem.shape.ops or not problem.is_input[item]]
    steps = {item: step for step, item in enumerate(order, 1)}
    last = int(problem.num_ops) + int(problem.num_tensors) * (problem.num_devices - 1)
    variables = _Variables(problem, known, steps, last)
    model, on, begin = variables.model, variables.on, variables.begin
    in_use: list[list[Any]] = [[] for _ in variables.devices]
    units: list[list[int]] = [[] for _ in variables.devices]

    def use(device: int, interval: Any, size: int) -> None:
        in_use[device].append(interval)
        units[device].append(size)

    def lasting(known_start: int, known_end: int) -> Any:
        """Return the end and the length of a tensor's lifetime, in steps."""
        end = variables.number(1, last + 1, known_end)
        return end, variables.number(1, last + 1, known_end - known_start)

    for op in variables.ops:
        for device in variables.devices:
            step = model.new_optional_fixed_size_interval_var(begin[op], 1, on[op][device], "")
            use(device, step, int(problem.workspace[op]))
    for tensor, readers in enumerate(variables.readers):
        maker, size = variables.maker[tensor], int(problem.size[tensor])
        made = steps.get(maker, 0)
        home = int(known.device[maker])
        leaves = [steps.get(variables.transfer(tensor, to), 0) for to in variables.devices]
        reads = [(steps[op], int(known.device[op])) for op in readers]
        pinned = bool(problem.pinned[tensor])
        gone = max([made, *leaves, *(step for step, at in reads if at == home)]) + 1
        end, length = lasting(made, last + 1 if pinned else gone)
        if pinned:
            variables.after(end, last + 1)
        for device in variables.devices:
            here = on[maker][device]
            stay = model.new_optional_interval_var(begin[maker], length, end, here, "")
            use(device, stay, size)
            for op in readers:
                variables.after(end, begin[op] + 1, here, on[op][device])
        for op in readers:
            variables.after(begin[op], begin[maker] + 1)
        for to in variables.devices:
            if (tensor, to) not in variables.sent:
                continue
            sent, item = variables.sent[tensor, to], variables.transfer(tensor, to)
            variables.after(begin[item], begin[maker] + 1, sent)
            variables.after(end, begin[item] + 1, sent)
            read = max([leaves[to], *(step for step, at in reads if at == to)])
            copy_end, copy_length = lasting(leaves[to], read + 1)
            for op in readers:
                variables.after(begin[op], begin[item] + 1, sent, on[op][to])
                variables.after(copy_end, begin[op] + 1, sent, on[op][to])
            copy = model.new_optional_interval_var(begin[item], copy_length, copy_end, sent, "")
            use(to, copy, size)

    known_peak = int(known.peak.max())
    peak = variables.number(peak_bound(problem), known_peak, known_peak)
    for device in variables.devices:
        model.add_cumulative(in_use[device], units[device], peak)
    model.minimize(peak)
    return variables


def _makespan_model(problem: Problem, known: Schedule) -> _Variables:
    """Build the time model: items begin at ticks and occupy devices and links."""
    longest = int(known.makespan)
    items = known.order[: int(known.num_items)].tolist()
    starts = {item: int(known.start[item]) for item in items}
    variables = _Variables(problem, known, starts, longest)
    model, on, begin, end = variables.model, variables.on, variables.begin, variables.end
    occupied: dict[tuple[str, int], list[Any]] = {}

    def occupy(resource: tuple[str, int], interval: Any) -> None:
        occupied.setdefault(resource, []).append(interval)

    def span(item: int, ticks: int, literal: Any) -> Any:
        return model.new_optional_fixed_size_interval_var(begin[item], ticks, literal, "")

    makespan = variables.number(makespan_bound(problem), longest, longest)
    for op in variables.ops:
        ticks = problem.op_ticks[op].tolist()
        end[op] = begin[op] + sum(t * here for t, here in zip(ticks, on[op], strict=True))
        variables.after(makespan, end[op])
        for device in variables.devices:
            occupy(("device", device), span(op, ticks[device], on[op][device]))
    for tensor, readers in enumerate(variables.readers):
        for op in readers:
            variables.after(begin[op], end[variables.maker[tensor]])
    for (tensor, to), sent in variables.sent.items():
        maker, item = variables.maker[tensor], variables.transfer(tensor, to)
        for source in variables.devices:
            if source == to:
                continue
            # True if the tensor is sent from this device.
            leg = variables.literal(item in starts and int(known.device[maker]) == source)
            model.add_implication(leg, sent)
            model.add_implication(leg, on[maker][source])
            model.add_bool_or(leg, ~sent, ~on[maker][source])
            ticks = int(problem.transfer_ticks[tensor, source, to])
            end[item] = end[item] + ticks * leg
            taken = span(item, ticks, leg)
            if problem.channel[source, to] >= 0:
                occupy(("link", int(problem.channel[source, to])), taken)
            if problem.synchronous:
                occupy(("device", source), taken)
                occupy(("device", to), taken)
        variables.after(begin[item], end[maker], sent)
        for op in variables.readers[tensor]:
            variables.after(begin[op], end[item], sent, on[op][to])
    for intervals in occupied.values():
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    return variables


class _Model(NamedTuple):
    """Functions of one objective.

    Attributes:
      build: builder of the model.
      read: function from a schedule to its cost.
      least: lower bound that needs no solver.
    """

    build: Callable[[Problem, Schedule], _Variables]
    read: Callable[[Schedule], int]
    least: Callable[[Problem], int]


_MODELS = {
    "peak_memory": _Model(_peak_model, lambda known: int(known.peak.max()), peak_bound),
    "makespan": _Model(_makespan_model, lambda known: int(known.makespan), makespan_bound),
}
OBJECTIVES = tuple(_MODELS)  # objectives with a model
