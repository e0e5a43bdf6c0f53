"""What a schedule costs where each device starts the best op at hand as soon as it is free.

In `gopt.cost.schedule.execution` a candidate says in which order everything is issued. Here time
does: of all ready items the one whose time comes first goes next. The time of a transfer is when
its tensor exists, that of an op when its device is free and its inputs have arrived. Of several ops
on one device that may start at the same time the one with the smallest rank does; so a device keeps
a priority queue. Without ranks it is the one that arrived first, the lowest index on ties: then the
queue is first in, first out, which is the default of runtimes. Keys of transfers mean nothing.

All else is as in `execution`: how long items take, what they wait for and occupy, and that memory
is accounted along the order of issue. So a link serves transfers in the order in which their
tensors exist, and a synchronous transfer, once its tensor exists, keeps both of its devices from
starting anything else, even while it waits for one of them.

At the same time inputs are issued first, then their transfers, both by index; then other transfers,
by the device that they leave and by index; then ops, by device.

A population of placements alone, costed as in `execution`:

    cost = dispatch.population_cost(problem, "makespan")
    found = jax.jit(cost)(Keys(device, None, None))  # [P]
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from gopt.cost.schedule import decoding, execution, objectives
from gopt.cost.schedule.decoding import (
    Cost,
    Decision,
    Keys,
    Schedule,
    check_keys,
    devices_of,
    keys_shape,
)
from gopt.cost.schedule.engine.events import Dispatched, Table, dispatch, tabulate
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.cost.schedule.execution import Ranks, peak_of
from gopt.cost.schedule.problem import Problem
from gopt.cost.schedule.timing import Timing, timing
from gopt.xla.calls import uninlined


def settled(problem: Problem, device: jax.Array) -> jax.Array:
    """Returns where ops run that are wanted on some devices, int32 `[N]`.

    An op that is not allowed on its device goes to the first one where it is. Inputs are wanted
    where the first of their readers runs, by index.

    Args:
      problem: one problem.
      device: int32 `[N]`.
    """
    problem, device = jax.tree.map(jnp.asarray, (problem, device))

    def allowed(device: jax.Array) -> jax.Array:
        may = jnp.take_along_axis(problem.allowed, device[:, None], 1)[:, 0]
        return jnp.where(may, device, jnp.argmax(problem.allowed, 1).astype(jnp.int32))

    ops = problem.shape.ops
    first = jax.ops.segment_min(problem.consumer, problem.producer[problem.tensor], ops)
    first = jnp.minimum(first, ops - 1)  # nobody reads it
    device = allowed(device)
    return allowed(jnp.where(problem.is_input, device[first], device))


def placement(problem: Problem, device: jax.Array) -> Keys:
    """Returns the keys of one candidate that places ops and is served first come, first served.

    Args:
      problem: one problem.
      device: int32 `[N]`, where ops run, as of `settled`.
    """
    there = jnp.asarray(device)[:, None] == jnp.arange(problem.num_devices)
    return Keys(there.astype(jnp.float32), None, None)


def decode(problem: Problem, keys: Keys) -> Decision:
    """Returns the devices and ranks that the keys of one candidate stand for.

    As in `execution.decode`; the ranks are None if the priorities are.
    """
    if keys.priority is None:
        return Decision(devices_of(problem, _completed(problem, keys)), None)
    return decoding.decode(problem, _completed(problem, keys))


def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Returns the schedule of one decision, to look at.

    Only the ranks of ops matter; without ranks ops are served first come, first served.
    """
    return _simulate(*jax.tree.map(jnp.asarray, (problem, decision)))


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Returns the cost of one candidate: the same as `simulate(problem, decode(problem, keys))`.

    Compose with `jax.vmap` for a population, and once more for a batch of graphs. Candidates are
    costed one at a time, on GPUs, too, where that is slow; on CPUs it is fast on up to eight
    devices. Under a `jax.shard_map` pass `check_vma=False`, see `execution.evaluate`.

    Args:
      problem: one problem.
      keys: of one candidate. Those of transfers may be None; if the priorities are None, ops are
        served first come, first served.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    return _run(problem, keys, with_peak=True)


def makespan(problem: Problem, keys: Keys) -> jax.Array:
    """Returns `evaluate(problem, keys).makespan`, int32 `[]`, ticks, in less time.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    found: jax.Array = _run(problem, keys, with_peak=False).makespan
    return found


def timed(problem: Problem, keys: Keys) -> Timing:
    """Returns when the ops of one candidate run, and how urgent they are.

    In up to one and a half times the time of `evaluate`; on GPUs, too, one candidate at a time.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    problem, keys = jax.tree.map(jnp.asarray, (problem, keys))
    table = tabulate(problem)
    device, found = _ISSUED[keys.priority is None](problem, table, _completed(problem, keys))
    return timing(problem, table.times, device, found.position, found.count)


def population_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array]:
    """Returns what a search minimises, as `execution.population_cost` does.

    Raises:
      ValueError: there is no objective of that name.
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
    """Returns keys with zeros for priorities and transfers that are None."""
    given = (
        jnp.zeros(shape.shape, shape.dtype) if leaf is None else leaf
        for shape, leaf in zip(keys_shape(problem)[1:], keys[1:], strict=True)
    )
    keys = Keys(keys.device, *given)
    check_keys(problem, keys)
    return keys


def _run(problem: Problem, keys: Keys, *, with_peak: bool) -> Cost:
    run = _COSTS[keys.priority is None, with_peak]
    problem, keys = jax.tree.map(jnp.asarray, (problem, keys))
    return run(problem, tabulate(problem), _completed(problem, keys))


def _cost_of(*, first_come: bool, with_peak: bool) -> Callable[[Problem, Table, Keys], Cost]:
    """Returns the cost of one candidate, in a unit that returns no more than what is needed."""

    @jax.custom_batching.sequential_vmap
    @uninlined
    def cost(problem: Problem, table: Table, keys: Keys) -> Cost:
        device, found = _issued(problem, table, keys, first_come=first_come)
        if not with_peak:
            return Cost(found.makespan, None)
        return Cost(found.makespan, peak_of(problem, device, found.position, found.count))

    return cost


def _issued(
    problem: Problem, table: Table, keys: Keys, *, first_come: bool
) -> tuple[jax.Array, Dispatched]:
    """Returns the devices of one candidate, and in which order items are issued."""
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
    table = tabulate(problem)
    position = dispatch(problem, device, *ranks, table, first_come=rank is None).position
    # The same order of issue, decided beforehand; items that there are not come last.
    order = jnp.argsort(jnp.where(position > 0, position, position.size + 1)).astype(jnp.int32)
    items = jnp.arange(order.size, dtype=jnp.int32)
    rank = jnp.zeros_like(order).at[order].set(items)
    return execution.simulate(problem, Decision(device, rank))


def _by_index(problem: Problem) -> Ranks:
    ops = jnp.arange(problem.shape.ops, dtype=jnp.int32)
    return ops, ops
