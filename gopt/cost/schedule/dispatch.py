"""The cost of a schedule in which every device starts its best ready op as soon as it is free.

In `gopt.cost.schedule.execution` a candidate fixes the issue order. Here time does: of all ready
items the earliest is issued next. The time of a transfer is when its tensor exists. The time of an
op is when its device is free and its inputs have arrived. If several ops may start at once on a
device, the one with the smallest rank starts: a device has a priority queue. Without ranks it is
first in, first out (lowest index on ties), the default of runtimes. Transfer keys are ignored.

All else is as in `execution`: durations, dependencies, occupied resources, and memory accounted
along the issue order. So a link serves transfers in the order in which their tensors come to
exist. A synchronous transfer whose tensor exists blocks both its devices, even while it waits for
one of them.

At equal times, inputs are issued first, then their transfers, both by index. Other transfers
follow, by source device and index, and then ops, by device.

To cost a population of placements, as in `execution`:

    cost = dispatch.population_cost(problem, "makespan")
    found = jax.jit(cost)(Keys(device, None, None))  # [P]
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from gopt.cost.schedule import decoding, execution, objectives
from gopt.cost.schedule.decoding import Cost, Decision, Keys, Schedule, devices_of
from gopt.cost.schedule.engine.events import (
    DispatchConstants,
    Dispatched,
    dispatch,
    dispatch_constants,
)
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.cost.schedule.execution import Ranks, peak_of
from gopt.cost.schedule.op_times import OpTimes, compute_op_times
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


def legalize_placement(problem: Problem, device: Int32[jax.Array, " N"]) -> Int32[jax.Array, " N"]:
    """Return a placement in which every op is on an allowed device. int32 `[N]`.

    An op that may not run on its wanted device goes to the first allowed one. An input goes to
    the device of its first consumer, by index, if allowed there.

    Args:
      problem: one problem.
      device: int32 `[N]`; wanted device of each op.
    """
    problem, device = jax.tree.map(jnp.asarray, (problem, device))

    def allowed(device: jax.Array) -> jax.Array:
        may = jnp.take_along_axis(problem.allowed, device[:, None], 1)[:, 0]
        return jnp.where(may, device, jnp.argmax(problem.allowed, 1).astype(jnp.int32))

    ops = problem.shape.ops
    first = jax.ops.segment_min(problem.consumer, problem.producer[problem.tensor], ops)
    first = jnp.minimum(first, ops - 1)  # inputs without a consumer
    device = allowed(device)
    return allowed(jnp.where(problem.is_input, device[first], device))


def placement(problem: Problem, device: Int32[jax.Array, " N"]) -> Keys:
    """Return the keys of a placement whose ops run first come, first served.

    Args:
      problem: one problem.
      device: int32 `[N]`; device of each op, as returned by `legalize_placement`.
    """
    devices = jnp.arange(problem.num_devices, dtype=jnp.int32)
    there = jnp.asarray(device)[:, None] == devices[None]
    return Keys(there.astype(jnp.float32), None, None)


def decode(problem: Problem, keys: Keys) -> Decision:
    """Return the devices and ranks encoded by the keys of one candidate.

    As in `execution.decode`; the ranks are None if the priorities are None.

    Args:
      problem: one problem.
      keys: keys of one candidate, as in `evaluate`.
    """
    if keys.priority is None:
        return Decision(devices_of(problem, _completed(problem, keys)), None)
    return decoding.decode(problem, _completed(problem, keys))


def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Return the full schedule of one decision, for inspection.

    Args:
      problem: one problem.
      decision: devices and ranks. Only ranks of ops matter; without ranks, ops run first come,
        first served.
    """
    return _simulate(*jax.tree.map(jnp.asarray, (problem, decision)))


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Return the cost of one candidate, equal to `simulate(problem, decode(problem, keys))`.

    Compose with `jax.vmap` for a population, and once more for a batch of graphs. Candidates are
    costed one at a time: fast on CPUs for up to eight devices, slow on GPUs. Under a
    `jax.shard_map` pass `check_vma=False`, see `execution.evaluate`.

    Args:
      problem: one problem.
      keys: keys of one candidate. Transfer keys may be None. If the priorities are None, ops run
        first come, first served.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    return _run(problem, keys, with_peak=True)


def makespan(problem: Problem, keys: Keys) -> Int32[jax.Array, ""]:
    """Return `evaluate(problem, keys).makespan`, int32 `[]`, ticks, in less time.

    The arguments and errors are as in `evaluate`.
    """
    found: jax.Array = _run(problem, keys, with_peak=False).makespan
    return found


def timed(problem: Problem, keys: Keys) -> OpTimes:
    """Return times and slack of the ops of one candidate.

    Takes up to 1.5 times as long as `evaluate`, and costs one candidate at a time on GPUs too. The
    arguments and errors are as in `evaluate`.
    """
    problem, keys = jax.tree.map(jnp.asarray, (problem, keys))
    table = dispatch_constants(problem)
    device, found = _ISSUED[keys.priority is None](problem, table, _completed(problem, keys))
    return compute_op_times(problem, table.times, device, found.position, found.count)


def population_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array]:
    """Return the function a search minimises, as `execution.population_cost` does.

    Args:
      problem: one problem.
      name: an objective in `execution.OBJECTIVES`.

    Raises:
      ValueError: no objective has that name.
    """
    objectives.check_objective(name)

    def cost(keys: Keys) -> jax.Array:
        if name == "makespan":
            found = Cost(jax.vmap(makespan, (None, 0))(problem, keys), None)
        else:
            found = jax.vmap(evaluate, (None, 0))(problem, keys)
        return objectives.objective(problem, found, name)

    return cost


def _completed(problem: Problem, keys: Keys) -> Keys:
    """Return keys with zeros for priorities and transfers that are None."""
    given = (
        jnp.zeros(shape.shape, shape.dtype) if leaf is None else leaf
        for shape, leaf in zip(decoding.keys_shape(problem)[1:], keys[1:], strict=True)
    )
    keys = Keys(keys.device, *given)
    decoding.check_keys(problem, keys)
    return keys


def _run(problem: Problem, keys: Keys, *, with_peak: bool) -> Cost:
    run = _COSTS[keys.priority is None, with_peak]
    problem, keys = jax.tree.map(jnp.asarray, (problem, keys))
    return run(problem, dispatch_constants(problem), _completed(problem, keys))


def _cost_of(
    *, first_come: bool, with_peak: bool
) -> Callable[[Problem, DispatchConstants, Keys], Cost]:
    """Return a cost function of one candidate, as a unit that returns only what is needed."""

    @jax.custom_batching.sequential_vmap
    @uninlined
    def cost(problem: Problem, table: DispatchConstants, keys: Keys) -> Cost:
        device, found = _issued(problem, table, keys, first_come=first_come)
        if not with_peak:
            return Cost(found.makespan, None)
        return Cost(found.makespan, peak_of(problem, device, found.position, found.count))

    return cost


def _issued(
    problem: Problem, table: DispatchConstants, keys: Keys, *, first_come: bool
) -> tuple[jax.Array, Dispatched]:
    """Return the devices of one candidate, and the order in which its items are issued."""
    device, ranks = devices_of(problem, keys), _by_index(problem)
    if not first_come:
        ranks = uninlined(rank_by_key)(keys.priority, ranks[0], problem.num_ops)
    return device, uninlined(partial(dispatch, first_come=first_come))(
        problem, device, *ranks, table
    )


_COSTS = {
    (first_come, with_peak): _cost_of(first_come=first_come, with_peak=with_peak)
    for first_come in (False, True)
    for with_peak in (False, True)
}
_ISSUED = {
    first_come: jax.custom_batching.sequential_vmap(
        uninlined(partial(_issued, first_come=first_come))
    )
    for first_come in (False, True)
}


@jax.custom_batching.sequential_vmap
def _simulate(problem: Problem, decision: Decision) -> Schedule:
    device, rank = decision
    count, (ops, _) = problem.shape.ops, _by_index(problem)
    by_rank = ops if rank is None else jnp.argsort(rank[:count]).astype(jnp.int32)
    ranks = by_rank, jnp.zeros_like(ops).at[by_rank].set(ops)
    table = dispatch_constants(problem)
    position = dispatch(problem, device, *ranks, table, first_come=rank is None).position
    # The same issue order as fixed ranks; items that are not issued come last.
    order = jnp.argsort(jnp.where(position > 0, position, position.size + 1)).astype(jnp.int32)
    items = jnp.arange(order.size, dtype=jnp.int32)
    rank = jnp.zeros_like(order).at[order].set(items)
    return execution.simulate(problem, Decision(device, rank))


def _by_index(problem: Problem) -> Ranks:
    ops = jnp.arange(problem.shape.ops, dtype=jnp.int32)
    return ops, ops
