"""What GO decides of each op, and what comes of a decision.

    simulator = simulator_of(problem, "makespan")
    start = begin(problem, device, simulator)

What is not decided remains as it is at the start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gopt.cost.fusion.levels import ends_by_level
from gopt.cost.joint.cost import contracted
from gopt.cost.joint.problem import JointProblem, schedule_of
from gopt.cost.schedule import decoding, dispatch, objectives
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from gopt.cost.schedule.timing import Timing
from gopt.heuristics.schedule.placement.list_scheduling import levels, mean_transfer_ticks

# How much earlier or later an op is in the queue of its device than in a given order, in shares of
# all ops; and levels of priority to be fused, of which the first is not to be. Both our choice.
SHIFTS = (-0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3)
FUSIONS = 4
IN_ORDER = SHIFTS.index(0)


class Decision(NamedTuple):
    """What is decided of `N` ops. A task is one of the three."""

    placement: Any  # int32 [N], the device of each
    scheduling: Any  # int32 [N], its shift, an index of `SHIFTS`
    fusion: Any  # int32 [N], its level, see `gopt.cost.fusion.levels`


TASKS: tuple[str, ...] = Decision._fields


@dataclass(frozen=True)
class Simulator:
    """What comes of decisions about one graph.

    Attributes:
      cost: what is minimised, of a population of decisions `[P, N]`, float32 `[P]`.
      timing: when ops run, of one decision `[N]`.
    """

    cost: Callable[[Decision], jax.Array]
    timing: Callable[[Decision], Timing]


class State(NamedTuple):
    """The best decision so far."""

    decision: Decision
    cost: Any  # float32 []


def begin(
    problem: Problem | JointProblem,
    device: jax.Array,
    simulator: Simulator,
    fused: jax.Array | None = None,
) -> State:
    """Returns a decision to start from, in order, and its cost.

    Args:
      problem: one problem.
      device: int32 `[N]`, where ops are wanted; they run there if they may.
      simulator: as of `simulator_of`.
      fused: bool `[N]`, ops that are fused into their readers; by default none.
    """
    device = dispatch.settled(schedule_of(problem), jnp.asarray(device, jnp.int32))
    level = jnp.zeros_like(device) if fused is None else jnp.asarray(fused, jnp.int32)
    decision = Decision(device, jnp.full_like(device, IN_ORDER), level)
    return State(decision, simulator.cost(jax.tree.map(lambda x: x[None], decision))[0])


def simulator_of(
    problem: Problem | JointProblem, objective: str, order: jax.Array | None = None
) -> Simulator:
    """Returns what comes of decisions. Ops that are fused have the times of their kernel.

    Args:
      problem: one problem; with a `Problem` fusions mean nothing.
      objective: of `gopt.cost.schedule.objectives.OBJECTIVES`.
      order: that shifts are of, float32 `[N]`, as of `order_of`; if it is None, shifts mean
        nothing, and ops, or kernels, are served first come, first served.

    Raises:
      ValueError: there is no objective of that name.
    """
    objectives.check_objective(objective)
    if isinstance(problem, Problem):
        keys, cost = partial(keys_of, problem, order), dispatch.population_cost(problem, objective)
        return Simulator(
            cost=lambda decision: cost(jax.vmap(keys)(decision)),
            timing=lambda decision: dispatch.timed(problem, keys(decision)),
        )

    def joint_cost(decision: Decision) -> jax.Array:
        kernels = contracted(problem, decision.fusion)
        found = dispatch.evaluate(kernels, keys_of(kernels, order, decision))
        return objectives.objective(kernels, found, objective)

    def joint_timing(decision: Decision) -> Timing:
        kernels = contracted(problem, decision.fusion)
        found = dispatch.timed(kernels, keys_of(kernels, order, decision))
        end = ends_by_level(problem.fusion[0], decision.fusion)
        of_kernels = found._asdict()
        kept = {name: of_kernels.pop(name) for name in ("received", "makespan")}
        return Timing(**{name: value[end] for name, value in of_kernels.items()}, **kept)

    return Simulator(jax.vmap(joint_cost), joint_timing)


def keys_of(problem: Problem, order: jax.Array | None, decision: Decision) -> Keys:
    """Returns the keys of one decision about devices and priorities.

    Args:
      problem: one problem, of ops or of kernels.
      order: as in `simulator_of`.
      decision: `[N]`.
    """
    keys = dispatch.placement(problem, decision.placement)
    if order is None:
        return keys
    shifts = jnp.asarray(SHIFTS, jnp.float32) - SHIFTS[0]  # keys are not negative
    return keys._replace(priority=jnp.asarray(order) + shifts[decision.scheduling])


def order_of(problem: Problem, values: np.ndarray) -> np.ndarray:
    """Returns places of ops in 0..1 by rising values, float32 `[N]`; on the host."""
    n = int(problem.num_ops)
    order = np.ones(problem.shape.ops, np.float32)
    order[np.argsort(np.asarray(values)[:n], kind="stable")] = np.arange(n) / n
    return order


def critical_path_order(problem: Problem | JointProblem) -> np.ndarray:
    """Returns the order of ops by falling time from their start to the end, float32 `[N]`.

    That is the longest path of ops and transfers of average times, on the host; ops are as they are
    by themselves. Unlike the order in which ops start it means something wherever they are placed.
    """
    problem = schedule_of(problem)
    return order_of(problem, -np.array(levels(problem, mean_transfer_ticks(problem))))


def first_come_order(problem: Problem | JointProblem, decision: Decision) -> np.ndarray:
    """Returns the order in which ops start first come, first served, float32 `[N]`; on the host.

    As long as nothing is moved, what is in this order is first come, first served. Ops that are
    fused have the place of their kernel.
    """
    items, count, end = jax.device_get(_first_come(problem, decision))
    rank = np.full(items.size, items.size)
    rank[items[:count]] = np.arange(count)
    return order_of(schedule_of(problem), rank)[end]


@jax.jit
def _first_come(problem: Problem | JointProblem, decision: Decision) -> tuple[jax.Array, ...]:
    """Returns items as issued, first come, first served, how many, and where kernels end, `[N]`."""
    decision = jax.tree.map(jnp.asarray, decision)
    end = jnp.arange(len(decision.placement))
    if isinstance(problem, JointProblem):
        end = ends_by_level(problem.fusion[0], decision.fusion)
        problem = contracted(problem, decision.fusion)
    schedule = dispatch.simulate(problem, decoding.Decision(decision.placement, None))
    return schedule.order, schedule.num_items, end
