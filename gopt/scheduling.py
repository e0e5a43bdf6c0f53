"""From a JAX function to a schedule of its ops on the devices of a machine."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from gopt.classical import HEURISTICS
from gopt.classical.encode import keys_from_items
from gopt.cost.execution import (
    OBJECTIVES,
    Decision,
    Keys,
    Schedule,
    decode,
    simulate,
)
from gopt.eager import Execution, execute
from gopt.graph import Graph
from gopt.hardware import PRESETS, Hardware
from gopt.kinds import KINDS
from gopt.padding import pad
from gopt.problem import Problem, prepare, to_bytes, to_seconds
from gopt.sources.jaxpr import Traced, trace
from gopt.systems.evolution import evolve
from gopt.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS: tuple[str, ...] = ("best", "regal", "brkga", *HEURISTICS)


class Costs(NamedTuple):
    """What a schedule costs under the execution model, `gopt.cost.execution`."""

    makespan: float  # s
    peak: tuple[int, ...]  # bytes, for each device; approximate if transfers are asynchronous
    fits: bool  # no device holds more than its capacity


class Row(NamedTuple):
    """An op or a transfer of a schedule."""

    name: str  # of the op; of the op whose tensor is sent
    kind: str  # one of `gopt.kinds.KINDS`, or "transfer"
    device: int  # where the op runs; where the tensor goes
    start: float  # s
    end: float  # s


@dataclass(frozen=True, eq=False, repr=False)
class Scheduling:
    """A schedule of a JAX function, and what it costs. Print it for a summary.

    Attributes:
      traced: the graph of the function, its program and the names of its ops.
      problem: the padded graph on the machine, quantised.
      objective: what was minimised.
      method: what found the schedule.
      keys: the candidate that was found.
      decision: what it decodes to.
      schedule: what happens when it is carried out.
      reference: the schedule before: all ops on device 0 in the order of the program.
    """

    traced: Traced
    problem: Problem
    objective: str
    method: str
    keys: Keys
    decision: Decision
    schedule: Schedule
    reference: Schedule

    @cached_property
    def before(self) -> Costs:
        """Costs of all ops on device 0, in the order of the program."""
        return _costs(self.problem, self.reference)

    @cached_property
    def after(self) -> Costs:
        """Costs of the schedule."""
        return _costs(self.problem, self.schedule)

    def rows(self) -> list[Row]:
        """Returns ops and transfers in the order in which they are issued."""
        n, d = self.problem.shape.ops, self.problem.num_devices
        items = self.schedule.order[: int(self.schedule.num_items)]
        start = to_seconds(self.problem, self.schedule.start[items]).tolist()
        end = to_seconds(self.problem, self.schedule.end[items]).tolist()
        names, kind = self.traced.names, self.traced.graph.kind
        rows = []
        for item, begin, finish in zip(items.tolist(), start, end, strict=True):
            if item < n:
                what = names[item], KINDS[kind[item]], int(self.schedule.device[item])
            else:
                tensor, device = divmod(item - n, d)
                what = names[self.problem.producer[tensor]], "transfer", device
            rows.append(Row(*what, begin, finish))
        return rows

    def execute(self, *args: Any, devices: Sequence[jax.Device] | None = None) -> Execution:
        """Runs the function op by op as scheduled, and counts the bytes of what it keeps.

        For a look at what a schedule does, not for speed: see `gopt.eager.execute`.

        Raises:
          ValueError: the arguments are not like the traced ones, or there are fewer devices than
            the machine has.
        """
        return execute(self.traced, self.problem, self.schedule, *args, devices=devices)

    def plot(self) -> "Figure":
        """Returns a Gantt chart of the schedule above the memory in use, before and after."""
        from gopt import plots

        schedules = {"before": self.reference, "after": self.schedule}
        return plots.overview(self.problem, schedules, names=self.traced.names)

    def __str__(self) -> str:
        before, after = self.before, self.after
        count, devices = int(self.problem.num_ops), self.problem.num_devices
        lines = [
            f"{self.objective} of {count} ops on {devices} devices, by {self.method}",
            f"{'':14}{'before':>12}{'after':>12}{'change':>10}",
            _line("makespan", before.makespan, after.makespan, format_seconds),
            _line("peak memory", max(before.peak), max(after.peak), format_bytes),
        ]
        for device, peaks in enumerate(zip(before.peak, after.peak, strict=True)):
            lines.append(_line(f"  device {device}", *peaks, format_bytes))
        sent = int(self.reference.num_items) - count, int(self.schedule.num_items) - count
        lines.append(_line("transfers", *sent, str))
        for name, costs in (("before", before), ("after", after)):
            if not costs.fits:
                lines.append(f"{name}: needs more memory than the devices have")
        return "\n".join(lines)


def schedule(
    fn: Callable[..., Any],
    *args: Any,
    hardware: Hardware | str = "2xh100",
    objective: str = "peak_memory",
    method: str = "best",
    evaluations: int = 5000,
    seed: int = 0,
    donate_argnums: int | Sequence[int] = (),
    max_trips: int = 0,
    weights: str | os.PathLike[str] | None = None,
) -> Scheduling:
    """Returns a schedule of the ops of `fn(*args)` on a machine; nothing is run or allocated.

    Args:
      fn: any function of pytrees of arrays.
      *args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.
      hardware: the machine, or the name of one of `gopt.hardware.PRESETS`.
      objective: what to minimise, one of `gopt.cost.execution.OBJECTIVES`.
      method: "best", the strongest search without training (see `gopt.systems.best`); "regal", a
        genetic algorithm guided by a trained policy, which takes the devices to be alike; "brkga",
        the genetic algorithm alone; or one of `gopt.classical.HEURISTICS`, which do not search.
        The first two start from all heuristics, and are never worse than those that the budget
        allows.
      evaluations: how many candidates a search may evaluate, what it starts from included; it
        evaluates one at least.
      seed: of the search.
      donate_argnums: positions of the arguments that are freed after their last use.
      max_trips: every `scan` of at most so many iterations is unrolled.
      weights: file of `gopt.systems.regal.save_policy` with a policy for "regal"; by default the
        one that ships for the objective.

    Raises:
      ValueError: an argument is out of range, the function cannot be traced (see `gopt.trace`),
        the machine is not valid (see `gopt.prepare`), or there is no policy for "regal".
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}: expected one of {', '.join(METHODS)}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}: expected one of {', '.join(OBJECTIVES)}")
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}: expected 1 at least")
    if isinstance(hardware, str):
        if hardware not in PRESETS:
            raise ValueError(f"hardware is {hardware!r}: expected one of {', '.join(PRESETS)}")
        hardware = PRESETS[hardware]()
    traced = trace(fn, *args, donate_argnums=donate_argnums, max_trips=max_trips)
    graph = pad(traced.graph)
    problem = prepare(graph, hardware)
    key = jax.random.key(seed)
    if method in HEURISTICS:
        keys = HEURISTICS[method](problem)
    elif method == "brkga":
        keys = _brkga(key, problem, objective=objective, evaluations=evaluations)
    elif method == "regal":
        keys = _regal(key, graph, problem, objective, evaluations, weights)
    else:
        from gopt.systems import best

        result = best.search(key, problem, objective=objective, evaluations=evaluations)
        keys = result.keys
    count = int(problem.num_ops)
    program_order = keys_from_items(problem, [0] * count, range(count))
    decision, found = jax.device_get(_replay(problem, keys))
    _, reference = jax.device_get(_replay(problem, program_order))
    return Scheduling(
        traced=traced,
        problem=problem,
        objective=objective,
        method=method,
        keys=jax.device_get(keys),
        decision=decision,
        schedule=found,
        reference=reference,
    )


@jax.jit
def _replay(problem: Problem, keys: Keys) -> tuple[Decision, Schedule]:
    decision = decode(problem, keys)
    return decision, simulate(problem, decision)


@partial(jax.jit, static_argnames=("objective", "evaluations"))
def _brkga(key: jax.Array, problem: Problem, *, objective: str, evaluations: int) -> Keys:
    return evolve(key, problem, objective=objective, evaluations=evaluations).keys


def _regal(
    key: jax.Array,
    graph: Graph,
    problem: Problem,
    objective: str,
    evaluations: int,
    weights: str | os.PathLike[str] | None,
) -> Keys:
    from gopt.systems import best, regal

    devices = problem.num_devices
    params, settings = regal.load_policy(weights, objective=objective, devices=devices)
    read = regal.features(graph, problem, objective=objective)
    action = _action(params, read, devices=devices, settings=settings)
    return best.search(
        key,
        problem,
        objective=objective,
        evaluations=evaluations,
        given=best.Starts(best.heuristic_keys(problem), action),
        settings=settings,
    ).keys


@partial(jax.jit, static_argnames=("devices", "settings"))
def _action(params: Any, graphs: Any, *, devices: int, settings: Any) -> Any:
    from gopt.systems import regal

    return regal.action(params, graphs, devices=devices, settings=settings)


def _costs(problem: Problem, schedule: Schedule) -> Costs:
    return Costs(
        makespan=float(to_seconds(problem, schedule.makespan)),
        peak=tuple(to_bytes(problem, schedule.peak).tolist()),
        fits=bool((schedule.peak <= problem.capacity).all()),
    )


def _line(name: str, before: Any, after: Any, text: Callable[[Any], str]) -> str:
    change = f"{100 * (after / before - 1):+.1f} %" if before else ""
    return f"{name:14}{text(before):>12}{text(after):>12}{change:>10}"
