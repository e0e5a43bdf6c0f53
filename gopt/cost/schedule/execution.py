"""The cost of a schedule: decode a candidate, order its items, time them, and sum their memory.

Items are issued one after another, the smallest rank among the ready ones first, see
`gopt.cost.schedule.engine.issue`. The loops of a candidate have data-dependent bounds: batched,
they would select whole states at every step, so `jax.vmap` of the public functions maps over
candidates instead. On CUDA GPUs, where such loops are slow, costs come from
`gopt.cost.schedule.gpu.primitive`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gopt.cost.schedule.decoding import (
    Cost,
    Decision,
    Keys,
    Schedule,
    check_keys,
    devices_of,
    item_keys,
)
from gopt.cost.schedule.engine import clock
from gopt.cost.schedule.engine.clock import Clock
from gopt.cost.schedule.engine.issue import issue
from gopt.cost.schedule.engine.memory import memory
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.cost.schedule.engine.waiting import Waiting, waiting
from gopt.cost.schedule.gpu.primitive import on_lanes
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Returns the schedule of one decision, to look at.

    Memory is accounted along the issue order: exact for synchronous transfers, an approximation
    for asynchronous ones.
    """
    return _simulate(*jax.tree.map(jnp.asarray, (problem, decision)))


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Returns the cost of one candidate: the same as `simulate(problem, decode(problem, keys))`.

    Compose with `jax.vmap` for a population, and once more for a batch of graphs. A CPU costs one
    candidate at a time, which takes no more memory than its keys, and tables for each graph; a GPU
    costs many, in blocks of some GiB. Under a `jax.shard_map` pass `check_vma=False`, because loops
    start from constants; `gopt.search.parallel.shard_candidates` does. Memory is accounted along
    the issue order: exact for synchronous transfers, an approximation for asynchronous ones.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    return _evaluate(*jax.tree.map(jnp.asarray, (problem, keys)))


def makespan(problem: Problem, keys: Keys) -> jax.Array:
    """Returns `evaluate(problem, keys).makespan`, int32 `[]`, ticks, in less time.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    return _makespan(*jax.tree.map(jnp.asarray, (problem, keys)))


def peaks(problem: Problem, keys: Keys) -> jax.Array:
    """Returns `evaluate(problem, keys).peak`, int32 `[D]`, units, in less time.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    return _peaks(*jax.tree.map(jnp.asarray, (problem, keys)))


Ranks = tuple[jax.Array, jax.Array]  # the items by rank, and the rank of each item


@on_lanes(Cost)
def _evaluate(problem: Problem, keys: Keys) -> Cost:
    return _evaluate_timed(problem, clock.create(problem), keys)


@on_lanes(lambda makespan, peak: makespan)
def _makespan(problem: Problem, keys: Keys) -> jax.Array:
    return _makespan_timed(problem, clock.create(problem), keys)


# The costs of one candidate, in units that return no more than what is needed: XLA does not look
# into a unit to see what its caller leaves out. The clock is that of all candidates.


@jax.custom_batching.sequential_vmap
@uninlined
def _evaluate_timed(problem: Problem, times: Clock, keys: Keys) -> Cost:
    device, waits, ranks = _ranked(problem, keys)
    position, makespan = _timed_order(problem, device, waits, ranks, times)
    return Cost(makespan, peak_of(problem, device, position, waits.count))


@jax.custom_batching.sequential_vmap
@uninlined
def _makespan_timed(problem: Problem, times: Clock, keys: Keys) -> jax.Array:
    return _timed_order(problem, *_ranked(problem, keys), times)[1]


@on_lanes(lambda makespan, peak: peak)
@jax.custom_batching.sequential_vmap
@uninlined
def _peaks(problem: Problem, keys: Keys) -> jax.Array:
    device, waits, ranks = _ranked(problem, keys)
    return peak_of(problem, device, _order(problem, device, waits, ranks), waits.count)


def _ranked(problem: Problem, keys: Keys) -> tuple[jax.Array, Waiting, Ranks]:
    device = devices_of(problem, keys)
    waits = uninlined(waiting)(problem, device)
    return device, waits, uninlined(rank_by_key)(item_keys(keys), waits.items, waits.count)


@uninlined
def _order(problem: Problem, device: jax.Array, waits: Waiting, ranks: Ranks) -> jax.Array:
    return issue(problem, device, waits, *ranks, None).position


@uninlined
def _timed_order(
    problem: Problem, device: jax.Array, waits: Waiting, ranks: Ranks, times: Clock
) -> tuple[jax.Array, jax.Array]:
    issued = issue(problem, device, waits, *ranks, times)
    return issued.position, issued.makespan


@uninlined
def peak_of(problem: Problem, device: jax.Array, position: jax.Array, count: Any) -> jax.Array:
    """Returns the peaks of `count` items by their places in the order of issue, from 1: `[D]`."""
    return memory(problem, device, position, count)[1]


@jax.custom_batching.sequential_vmap
def _simulate(problem: Problem, decision: Decision) -> Schedule:
    device, rank = decision
    items = jnp.arange(rank.size, dtype=jnp.int32)
    by_rank = jnp.zeros_like(rank).at[rank].set(items)
    waits = waiting(problem, device)
    times = clock.create(problem)
    position, end, makespan = issue(problem, device, waits, by_rank, rank, times)
    during, peak = memory(problem, device, position, waits.count)

    step = jnp.where(position > 0, position - 1, rank.size)
    transfers = jnp.tile(jnp.arange(problem.num_devices, dtype=jnp.int32), problem.shape.tensors)
    there = jnp.concatenate([device, transfers])
    return Schedule(
        device=device,
        order=jnp.full(rank.size, -1, jnp.int32).at[step].set(items, mode="drop"),
        num_items=waits.count,
        start=jnp.where(position > 0, end - clock.durations(times, device), 0),
        end=end,
        usage=jnp.zeros_like(rank).at[step].set(during[position, there], mode="drop"),
        makespan=makespan,
        peak=peak,
    )
