"""The five tables: what is decided in each, and what is known of it without a search."""

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
from gopt.cost.joint.cost import contracted
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
    """A decision that is known without a search, and what it took to find it."""

    decision: go.Decision  # [N]
    order: Any  # float32 [N], that priorities are shifts of; None: first come, first served
    makespan: float  # s; of an "own order" by that; means nothing where memory does not suffice
    fits: bool  # the memory of all devices
    tried: int  # how many decisions it is the best of
    seconds: float  # to place them all; fusions and orders take little


class Table(NamedTuple):
    """A row as a table has it."""

    problem: Problem | JointProblem
    given: dict[str, Given]
    default: str  # of `given`, what runtimes, compilers, or experts do
    starts: tuple[str, ...]  # of `given`, what searches may begin with
    beyond: tuple[str, ...] = ()  # of `given`, what takes more than is decided in the table


Place = Callable[[Problem], dict[str, Placed]]  # ops without a search, by several methods


def placement(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are placed, and served first come, first served."""
    problem = prepare(step.graph, _machine(step, devices), seconds=step.seconds)
    given = {name: _placed(one) for name, one in place(problem).items()}
    beyond = tuple(name for name in given if name.endswith(OWN_ORDER))
    return Table(problem, given, "expert", AUTOMATIC, beyond)


def schedule(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are placed, and have priorities.

    Searches begin with the best of all placements, with priorities by critical path.
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
    """Return a row where all is decided. Searches begin with the best of all combinations.

    Those are of placements, of what compilers fuse within a device or nothing, and of two orders:
    first come, first served, and by critical path. The default is METIS, what compilers fuse, and
    the first order.
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
    """Return what the best decision has the least of."""
    return not given.fits, given.makespan


def decided(device: np.ndarray, fused: np.ndarray | None = None) -> go.Decision:
    """Return a decision without shifts, `[N]`."""
    device = np.asarray(device, np.int32)
    level = np.zeros_like(device) if fused is None else fused.astype(np.int32)
    return go.Decision(device, np.full_like(device, go.IN_ORDER), level)


def score(problem: Problem | JointProblem, decision: go.Decision, order: Any) -> Given:
    """Return a decision with what it costs, by the schedule that is made to look at."""
    ticks = float(simulated(problem, decision, order))
    fits = ticks < MAX_TICKS
    return Given(decision, order, seconds_of(problem, ticks) if fits else np.inf, fits, 1, 0.0)


@jax.jit
def simulated(problem: Problem | JointProblem, decision: go.Decision, order: Any) -> jax.Array:
    """Return the cost of a decision, by the schedule that is made to look at, float32 `[]`."""
    decision = jax.tree.map(jnp.asarray, decision)
    if isinstance(problem, JointProblem):
        problem = contracted(problem, decision.fusion)
    keys = go.keys_of(problem, order, decision)
    schedule = dispatch.simulate(problem, dispatch.decode(problem, keys))
    cost = Cost(schedule.makespan, schedule.peak)
    return objectives.objective(problem, cost, OBJECTIVE)


def seconds_of(problem: Problem | JointProblem, ticks: Any) -> Any:
    """Return s for ticks."""
    return to_seconds(schedule_of(problem), ticks)


def _machine(step: Step, devices: int) -> Hardware:
    """Return P100s, without limits of memory if layers were profiled.

    What such a step takes is not known: it is not told which layers work in place.
    """
    machine = p100s(devices)
    if step.seconds is None:
        return machine
    return machine._replace(capacity=np.full(devices, np.inf))


def _fusible(step: Step) -> Graph:
    """Return the graph of a step.

    Raises:
      ValueError: its times were measured: what ops take that are fused is not known.
    """
    if step.seconds is not None:
        raise ValueError("the times of ops were measured: expected a table without fusion")
    return step.graph


def _placed(one: Placed) -> Given:
    return Given(decided(one.device), None, *one[1:])
