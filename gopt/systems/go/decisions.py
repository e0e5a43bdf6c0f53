"""Decisions of GO about each op, and their simulation.

    simulator = simulator_of(problem, "makespan")
    start = begin(problem, device, simulator)

Parts that no task decides stay as they are at the start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int32

from gopt.cost.fusion.levels import kernel_ends_by_level
from gopt.cost.joint.cost import contract_kernels
from gopt.cost.joint.problem import JointProblem, schedule_of
from gopt.cost.schedule import decoding, dispatch, objectives
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.op_times import OpTimes
from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.list_scheduling import levels, mean_transfer_ticks

# Shifts of an op in the queue of its device against a given order, in shares of all ops. Levels of
# priority to be fused; the first level is not fused. Both are our choice.
SHIFTS = (-0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3)
FUSIONS = 4
IN_ORDER = SHIFTS.index(0)


class OpDecisions(NamedTuple):
    """The decision about `N` ops. Each of the three fields is a task.

    Attributes:
      placement: int32 `[N]`, device of each op.
      scheduling: int32 `[N]`, shift of each op, an index of `SHIFTS`.
      fusion: int32 `[N]`, level of each op, see `gopt.cost.fusion.levels`.
    """

    placement: Any
    scheduling: Any
    fusion: Any


TASKS: tuple[str, ...] = OpDecisions._fields


@dataclass(frozen=True)
class Simulator:
    """Functions that simulate decisions about one graph.

    Attributes:
      cost: maps a population of decisions `[P, N]` to the costs to minimise, float32 `[P]`.
      timing: maps one decision `[N]` to the times when ops run.
    """

    cost: Callable[[OpDecisions], jax.Array]
    timing: Callable[[OpDecisions], OpTimes]


class State(NamedTuple):
    """The best decision so far.

    Attributes:
      decision: `[N]`, the decision.
      cost: float32 `[]`, its cost.
    """

    decision: OpDecisions
    cost: Any


def begin(
    problem: Problem | JointProblem,
    device: Int32[jax.Array, " N"],
    simulator: Simulator,
    fused: jax.Array | None = None,
) -> State:
    """Return a decision to start from, without shifts, and its cost.

    Args:
      problem: one problem.
      device: int32 `[N]`, wanted device of each op; used where the op may run there.
      simulator: simulator, see `simulator_of`.
      fused: bool `[N]`, ops that are fused into their readers; by default none.
    """
    device = dispatch.legalize_placement(schedule_of(problem), jnp.asarray(device, jnp.int32))
    level = jnp.zeros_like(device) if fused is None else jnp.asarray(fused, jnp.int32)
    decision = OpDecisions(device, jnp.full_like(device, IN_ORDER), level)
    return State(decision, simulator.cost(jax.tree.map(lambda x: x[None], decision))[0])


def simulator_of(
    problem: Problem | JointProblem, objective: str, order: jax.Array | None = None
) -> Simulator:
    """Return the simulator of a problem. Fused ops have the times of their kernel.

    Args:
      problem: one problem. A `Problem` ignores fusions.
      objective: one of `gopt.cost.schedule.objectives.OBJECTIVES`.
      order: float32 `[N]`, order that shifts refer to, see `order_of`. If None, shifts are ignored,
        and ops or kernels are served first come, first served.

    Raises:
      ValueError: the objective is unknown.
    """
    objectives.check_objective(objective)
    if isinstance(problem, Problem):
        keys, cost = partial(keys_of, problem, order), dispatch.population_cost(problem, objective)
        return Simulator(
            cost=lambda decision: cost(jax.vmap(keys)(decision)),
            timing=lambda decision: dispatch.timed(problem, keys(decision)),
        )

    def joint_cost(decision: OpDecisions) -> jax.Array:
        kernels = contract_kernels(problem, decision.fusion)
        found = dispatch.evaluate(kernels, keys_of(kernels, order, decision))
        return objectives.objective(kernels, found, objective)

    def joint_timing(decision: OpDecisions) -> OpTimes:
        kernels = contract_kernels(problem, decision.fusion)
        found = dispatch.timed(kernels, keys_of(kernels, order, decision))
        end = kernel_ends_by_level(problem.fusion[0], decision.fusion)
        of_kernels = found._asdict()
        kept = {name: of_kernels.pop(name) for name in ("transfer_arrival", "makespan")}
        return OpTimes(**{name: value[end] for name, value in of_kernels.items()}, **kept)

    return Simulator(jax.vmap(joint_cost), joint_timing)


def keys_of(problem: Problem, order: jax.Array | None, decision: OpDecisions) -> Keys:
    """Return the keys of one decision about devices and priorities.

    Args:
      problem: one problem, of ops or of kernels.
      order: as in `simulator_of`.
      decision: decision, `[N]`.
    """
    keys = dispatch.placement(problem, decision.placement)
    if order is None:
        return keys
    shifts = jnp.asarray(SHIFTS, jnp.float32) - SHIFTS[0]  # keys are not negative
    return keys._replace(priority=jnp.asarray(order) + shifts[decision.scheduling])


def order_of(problem: Problem, values: np.ndarray) -> Float32[np.ndarray, " N"]:
    """Return places of ops in 0..1 by rising values, float32 `[N]`; on the host."""
    n = int(problem.num_ops)
    order = np.ones(problem.shape.ops, np.float32)
    order[np.argsort(np.asarray(values)[:n], kind="stable")] = np.arange(n) / n
    return order


def critical_path_order(problem: Problem | JointProblem) -> Float32[np.ndarray, " N"]:
    """Return the order of ops by falling time from their start to the end, float32 `[N]`.

    That time is the longest path of ops and transfers of mean times, computed on the host, without
    fusion. Unlike the order in which ops start, it does not depend on the placement.
    """
    problem = schedule_of(problem)
    return order_of(problem, -np.array(levels(problem, mean_transfer_ticks(problem))))


def first_come_order(
    problem: Problem | JointProblem, decision: OpDecisions
) -> Float32[np.ndarray, " N"]:
    """Return the order in which ops start first come, first served, float32 `[N]`; on the host.

    Until something is moved, this order reproduces first come, first served. Fused ops have the
    place of their kernel.
    """
    items, count, end = jax.device_get(_first_come(problem, decision))
    rank = np.full(items.size, items.size)
    rank[items[:count]] = np.arange(count)
    return order_of(schedule_of(problem), rank)[end]


@jax.jit
def _first_come(problem: Problem | JointProblem, decision: OpDecisions) -> tuple[jax.Array, ...]:
    """Return items in first-come order, their number, and the kernel end of each op, `[N]`."""
    decision = jax.tree.map(jnp.asarray, decision)
    end = jnp.arange(len(decision.placement), dtype=jnp.int32)
    if isinstance(problem, JointProblem):
        end = kernel_ends_by_level(problem.fusion[0], decision.fusion)
        problem = contract_kernels(problem, decision.fusion)
    schedule = dispatch.simulate(problem, decoding.Decision(decision.placement, None))
    return schedule.order, schedule.num_items, end
