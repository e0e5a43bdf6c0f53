"""Define the five tables: their tasks, and the decisions known without a search."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go.case import OBJECTIVE
from experiments.go.heuristics import OWN_ORDER, Placed
from experiments.go.rows import Step
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import Hardware, p100s
from gopt.cost.joint.cost import contract_kernels
from gopt.cost.joint.problem import JointProblem, prepare_joint, schedule_of
from gopt.cost.schedule import dispatch, objectives
from gopt.cost.schedule.decoding import Cost
from gopt.cost.schedule.problem import MAX_TICKS, Problem, prepare, to_seconds
from gopt.graph.graph import Graph
from gopt.heuristics.fusion.presets import FUSIONS, within_devices
from gopt.systems import go

METIS, BY_WEIGHT = "METIS, repaired", "METIS, by weight, repaired"
AUTOMATIC = ("one device", METIS, BY_WEIGHT, "critical path", "HEFT", "ETF", "m-ETF")  # placements


class Given(NamedTuple):
    """A decision that is known without a search, and the effort of finding it.

    Attributes:
      decision: decision, [N].
      order: float32 [N], priorities to which shifts are added; None for first come, first served.
      makespan: makespan, s, in the own order if there is one; meaningless if memory does not
        suffice.
      fits: whether the memory of all devices suffices.
      tried: number of decisions of which it is the best.
      seconds: time of placing them all, s; fusions and orders take little.
    """

    decision: go.OpDecisions
    order: Any
    makespan: float
    fits: bool
    tried: int
    seconds: float


class Table(NamedTuple):
    """A row, prepared for a table.

    Attributes:
      problem: problem of the row.
      given: decisions known without a search, by name.
      default: name in `given` of the usual decision of runtimes, compilers or experts.
      starts: names in `given` of possible starts of searches.
      beyond: names in `given` of decisions that exceed the tasks of the table.
    """

    problem: Problem | JointProblem
    given: dict[str, Given]
    default: str
    starts: tuple[str, ...]
    beyond: tuple[str, ...] = ()


Place = Callable[[Problem], dict[str, Placed]]  # placements without a search, by method


def placement(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are placed, and dispatched first come, first served."""
    problem = prepare(step.graph, _machine(step, devices), seconds=step.seconds)
    given = {name: _placed(one) for name, one in place(problem).items()}
    beyond = tuple(name for name in given if name.endswith(OWN_ORDER))
    return Table(problem, given, "expert", AUTOMATIC, beyond)


def schedule(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are placed, and have priorities.

    Searches start from the best of all placements, with priorities by critical path.
    """
    problem = prepare(step.graph, _machine(step, devices), seconds=step.seconds)
    given = {name: _placed(one) for name, one in place(problem).items()}
    by_path = go.critical_path_order(problem)
    ordered = [score(problem, given[name].decision, by_path) for name in AUTOMATIC]
    spent = sum(given[name].seconds for name in AUTOMATIC)
    best = min(ordered, key=rank)._replace(tried=len(ordered), seconds=spent)
    given["best, by critical path"] = best
    given["one device, by critical path"] = ordered[0]
    starts = ("one device, by critical path", "best, by critical path")
    return Table(problem, given, "expert", starts)


def scheduling(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops have priorities, on the devices where METIS places them."""
    problem = prepare(step.graph, _machine(step, devices), seconds=step.seconds)
    start = _placed(place(problem)[METIS])
    orders = {
        "FIFO": go.first_come_order(problem, start.decision),
        "program order": go.order_of(problem, np.arange(problem.shape.ops)),
        "critical path": go.critical_path_order(problem),
    }
    given = {
        name: score(problem, start.decision, order)._replace(seconds=start.seconds)
        for name, order in orders.items()
    }
    return Table(problem, given, "FIFO", tuple(given))


def fusion(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are fused, on one device."""
    problem = prepare_joint(_fusible(step), p100s(1), rules=RULES["gpu"])
    at = np.zeros(problem.schedule.shape.ops, np.int32)
    fused = {name: fuse(problem.fusion[0]) for name, fuse in FUSIONS.items()}
    given = {name: score(problem, decided(at, bits), None) for name, bits in fused.items()}
    return Table(problem, given, "priority fusion", tuple(given))


def joint(step: Step, devices: int, place: Place) -> Table:
    """Return a row with all tasks. Searches start from the best of all combinations.

    A combination is a placement, fusion within devices as by compilers or no fusion, and one of two
    orders: first come, first served, and by critical path. The default is METIS with the compilers'
    fusion and the first order.
    """
    problem = prepare_joint(_fusible(step), p100s(devices), rules=RULES["gpu"])
    placed = place(problem.schedule)
    by_path = go.critical_path_order(problem)
    compiled = FUSIONS["priority fusion"](problem.fusion[0])
    every: dict[tuple[str, bool, bool], Given] = {}  # placement, fused or not, by path or not
    for name in AUTOMATIC:
        device = placed[name].device
        for fused in (False, True):
            bits = within_devices(problem.fusion[0], compiled & fused, device)
            decision = decided(device, bits)
            first_come = go.first_come_order(problem, decision)
            for order in (False, True):
                found = score(problem, decision, by_path if order else first_come)
                every[name, fused, order] = found._replace(seconds=placed[name].seconds)

    def best(fused: bool, order: bool) -> Given:
        each = [every[name, fused, order] for name in AUTOMATIC]
        spent = sum(one.seconds for one in each)
        return min(each, key=rank)._replace(tried=len(each), seconds=spent)

    given = {
        "one device, fused": every["one device", True, True],
        "METIS": every[METIS, False, False],
        "METIS, fused": every[METIS, True, False],
        "best placement": best(False, False),
        "best placement, fused": best(True, False),
        "best placement, fused, by critical path": best(True, True),
        "best placement, by critical path": best(False, True),
    }
    return Table(problem, given, "METIS, fused", tuple(given))


TABLES: dict[str, tuple[Callable[[Step, int, Place], Table], tuple[str, ...]]] = {
    "placement": (placement, ("placement",)),
    "scheduling": (scheduling, ("scheduling",)),
    "schedule": (schedule, ("placement", "scheduling")),
    "fusion": (fusion, ("fusion",)),
    "joint": (joint, go.TASKS),
}


def rank(given: Given) -> tuple[bool, float]:
    """Return the sort key of a decision, least for the best one."""
    return not given.fits, given.makespan


def decided(device: np.ndarray, fused: np.ndarray | None = None) -> go.OpDecisions:
    """Return a decision without shifts, `[N]`."""
    device = np.asarray(device, np.int32)
    level = np.zeros_like(device) if fused is None else fused.astype(np.int32)
    return go.OpDecisions(device, np.full_like(device, go.IN_ORDER), level)


def score(problem: Problem | JointProblem, decision: go.OpDecisions, order: Any) -> Given:
    """Return a decision with its cost, from a full simulation."""
    ticks = float(simulated(problem, decision, order))
    fits = ticks < MAX_TICKS
    return Given(decision, order, seconds_of(problem, ticks) if fits else np.inf, fits, 1, 0.0)


@jax.jit
def simulated(problem: Problem | JointProblem, decision: go.OpDecisions, order: Any) -> jax.Array:
    """Return the cost of a decision, from a full simulation, float32 `[]`."""
    decision = jax.tree.map(jnp.asarray, decision)
    if isinstance(problem, JointProblem):
        problem = contract_kernels(problem, decision.fusion)
    keys = go.keys_of(problem, order, decision)
    schedule = dispatch.simulate(problem, dispatch.decode(problem, keys))
    cost = Cost(schedule.makespan, schedule.peak)
    return objectives.objective(problem, cost, OBJECTIVE)


def seconds_of(problem: Problem | JointProblem, ticks: Any) -> Any:
    """Return ticks in seconds."""
    return to_seconds(schedule_of(problem), ticks)


def _machine(step: Step, devices: int) -> Hardware:
    """Return P100s, without memory limits if layers were profiled.

    The memory of a profiled step is unknown, because it does not say which layers work in place.
    """
    machine = p100s(devices)
    if step.seconds is None:
        return machine
    return machine._replace(capacity=np.full(devices, np.inf))


def _fusible(step: Step) -> Graph:
    """Return the graph of a step.

    Raises:
      ValueError: the step was profiled, so the times of fused ops are unknown.
    """
    if step.seconds is not None:
        raise ValueError("the times of ops were measured: expected a table without fusion")
    return step.graph


def _placed(one: Placed) -> Given:
    return Given(decided(one.device), None, *one[1:])
