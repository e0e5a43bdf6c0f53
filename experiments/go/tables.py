"""Define the four tables: their tasks, and the decisions known without a search."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.go.case import OBJECTIVE
from experiments.go.heuristics import OWN_ORDER, Given, decided
from experiments.go.rows import Step
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import Hardware, p100s
from gopt.cost.joint.cost import contract_kernels
from gopt.cost.joint.problem import JointProblem, prepare_joint, schedule_of
from gopt.cost.schedule import dispatch, objectives
from gopt.cost.schedule.decoding import Cost
from gopt.cost.schedule.problem import MAX_TICKS, Problem, prepare, to_seconds
from gopt.heuristics.fusion.presets import FUSIONS, within_devices
from gopt.systems import go

METIS, BY_WEIGHT = "METIS, repaired", "METIS, by weight, repaired"
AUTOMATIC = ("one device", METIS, BY_WEIGHT, "critical path", "HEFT", "ETF", "m-ETF")  # placements


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


Place = Callable[[Problem], dict[str, Given]]  # placements without a search, by method


def placement(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are placed, and dispatched first come, first served."""
    problem = prepare(step.graph, _machine(step, devices), seconds=step.seconds)
    given = place(problem)
    beyond = tuple(name for name in given if name.endswith(OWN_ORDER))
    return Table(problem, given, "expert", AUTOMATIC, beyond)


def schedule(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops are placed, and have priorities.

    Searches start from the best of all placements, with priorities by critical path.
    """
    problem, given, *_ = placement(step, devices, place)
    by_path = go.critical_path_order(problem)
    ordered = [score(problem, given[name].decision, by_path) for name in AUTOMATIC]
    starts = {
        "one device, by critical path": ordered[0],
        "best, by critical path": best_of(ordered, sum(given[name].seconds for name in AUTOMATIC)),
    }
    return Table(problem, given | starts, "expert", tuple(starts))


def scheduling(step: Step, devices: int, place: Place) -> Table:
    """Return a row where ops have priorities, on the devices where METIS places them."""
    problem, placed, *_ = placement(step, devices, place)
    start = placed[METIS]
    orders = {
        "FIFO": go.first_come_order(problem, start.decision),
        "program order": go.order_of(
            schedule_of(problem), np.arange(start.decision.placement.size)
        ),
        "critical path": go.critical_path_order(problem),
    }
    given = {
        name: score(problem, start.decision, order)._replace(seconds=start.seconds)
        for name, order in orders.items()
    }
    return Table(problem, given, "FIFO", tuple(given))


def joint(step: Step, devices: int, place: Place) -> Table:
    """Return a row with all tasks. Searches start from the best of all combinations.

    A combination is a placement, fusion within devices as by compilers or no fusion, and one of two
    orders: first come, first served, and by critical path. The default is METIS with the compilers'
    fusion and the first order.
    """
    problem = prepare_joint(step.graph, p100s(devices), rules=RULES["gpu"])
    placed = place(problem.schedule)
    by_path = go.critical_path_order(problem)
    compiled = FUSIONS["priority fusion"](problem.fusion[0])
    every: dict[tuple[str, bool, bool], Given] = {}  # placement, fused or not, by path or not
    for name in AUTOMATIC:
        device = placed[name].decision.placement
        for fused in (False, True):
            bits = within_devices(problem.fusion[0], compiled & fused, device)
            decision = decided(device, bits)
            first_come = go.first_come_order(problem, decision)
            for order in (False, True):
                found = score(problem, decision, by_path if order else first_come)
                every[name, fused, order] = found._replace(seconds=placed[name].seconds)

    def best(fused: bool, order: bool) -> Given:
        each = [every[name, fused, order] for name in AUTOMATIC]
        return best_of(each, sum(one.seconds for one in each))

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
    "joint": (joint, go.TASKS),
}


def best_of(each: Sequence[Given], seconds: float) -> Given:
    """Return the best of some decisions, which were found in some seconds."""
    return min(each, key=lambda given: given.makespan)._replace(seconds=seconds)


def score(problem: Problem | JointProblem, decision: go.OpDecisions, order: Any) -> Given:
    """Return a decision with its cost, from a full simulation."""
    ticks = float(simulated(problem, decision, order))
    seconds = seconds_of(problem, ticks) if ticks < MAX_TICKS else np.inf
    return Given(decision, order, seconds, 0.0)


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
