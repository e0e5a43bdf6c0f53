"""Costs of schedules: decode a candidate, order its items, time them, and sum their memory.

Items are issued one after another: of the ready items, the one with the smallest rank is next. See
`gopt.cost.schedule.engine.issue`.

The loops of a candidate have data-dependent bounds. A batched loop would select its whole state at
every step. So `jax.vmap` of the public functions runs candidates one after another. Such loops are
slow on CUDA GPUs, where costs come from `gopt.cost.schedule.gpu.primitive` instead.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Int32

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
from gopt.cost.schedule.engine.issue import issue_items
from gopt.cost.schedule.engine.memory import memory_along_order
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.cost.schedule.engine.waiting import WaitingLists, build_waiting_lists
from gopt.cost.schedule.gpu.primitive import on_lanes
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Return the full schedule of one decision, for inspection.

    Memory is summed along the issue order. The result is exact for synchronous transfers, and an
    approximation for asynchronous ones.

    Args:
      problem: one problem.
      decision: device of each op, int32 `[N]`, and rank of each item, int32 `[N + T·D]`.
    """
    return _simulate(*jax.tree.map(jnp.asarray, (problem, decision)))


def evaluate(problem: Problem, keys: Keys) -> Cost:
    """Return the cost of one candidate.

    It equals the makespan and peaks of `simulate(problem, decode(problem, keys))`.

    Compose with `jax.vmap` for a population, and once more for a batch of graphs. A CPU evaluates
    one candidate at a time. Its memory is the size of the keys, plus tables for each graph. A GPU
    evaluates many candidates at once, in blocks of some GiB.

    Under `jax.shard_map` pass `check_vma=False`, because the loops start from constants;
    `gopt.search.parallel.shard_candidates` does. Memory is summed along the issue order. Peaks are
    exact for synchronous transfers, and an approximation for asynchronous ones.

    Args:
      problem: one problem.
      keys: one candidate, with the shapes of `keys_shape(problem)`.

    Returns:
      Makespan, int32 `[]`, ticks, and peak memory, int32 `[D]`, units.

    Raises:
      ValueError: the keys do not have the shapes of the problem.
    """
    check_keys(problem, keys)
    return _evaluate(*jax.tree.map(jnp.asarray, (problem, keys)))


def makespan(problem: Problem, keys: Keys) -> Int32[jax.Array, ""]:
    """Return `evaluate(problem, keys).makespan`, int32 `[]`, ticks, in less time.

    The arguments and errors are as in `evaluate`.
    """
    check_keys(problem, keys)
    return _makespan(*jax.tree.map(jnp.asarray, (problem, keys)))


def peaks(problem: Problem, keys: Keys) -> Int32[jax.Array, " D"]:
    """Return `evaluate(problem, keys).peak`, int32 `[D]`, units, in less time.

    The arguments and errors are as in `evaluate`.
    """
    check_keys(problem, keys)
    return _peaks(*jax.tree.map(jnp.asarray, (problem, keys)))


Ranks = tuple[jax.Array, jax.Array]  # items by rank, and the rank of each item


@on_lanes(Cost)
def _evaluate(problem: Problem, keys: Keys) -> Cost:
    return _evaluate_timed(problem, clock.create(problem), keys)


@on_lanes(lambda makespan, peak: makespan)
def _makespan(problem: Problem, keys: Keys) -> jax.Array:
    return _makespan_timed(problem, clock.create(problem), keys)


# Costs of one candidate. Each is a unit that returns only the needed results, because XLA cannot
# remove unused results of a unit. All candidates share one clock.


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


def _ranked(problem: Problem, keys: Keys) -> tuple[jax.Array, WaitingLists, Ranks]:
    device = devices_of(problem, keys)
    waits = uninlined(build_waiting_lists)(problem, device)
    return device, waits, uninlined(rank_by_key)(item_keys(keys), waits.items, waits.count)


@uninlined
def _order(problem: Problem, device: jax.Array, waits: WaitingLists, ranks: Ranks) -> jax.Array:
    return issue_items(problem, device, waits, *ranks, None).position


@uninlined
def _timed_order(
    problem: Problem, device: jax.Array, waits: WaitingLists, ranks: Ranks, times: Clock
) -> tuple[jax.Array, jax.Array]:
    issued = issue_items(problem, device, waits, *ranks, times)
    return issued.position, issued.makespan


@uninlined
def peak_of(
    problem: Problem,
    device: Int32[jax.Array, " N"],
    position: Int32[jax.Array, " N+T*D"],
    count: Any,
) -> Int32[jax.Array, " D"]:
    """Return the peak memory of each device, int32 `[D]`, units.

    Args:
      problem: one problem.
      device: device of each op, int32 `[N]`.
      position: place of each item in the order of issue, counted from 1; 0 for items that are not
        issued. int32 `[N + T·D]`.
      count: number of issued items, int32 `[]`.
    """
    return memory_along_order(problem, device, position, count)[1]


@jax.custom_batching.sequential_vmap
def _simulate(problem: Problem, decision: Decision) -> Schedule:
    device, rank = decision
    items = jnp.arange(rank.size, dtype=jnp.int32)
    by_rank = jnp.zeros_like(rank).at[rank].set(items)
    waits = build_waiting_lists(problem, device)
    times = clock.create(problem)
    position, end, makespan = issue_items(problem, device, waits, by_rank, rank, times)
    during, peak = memory_along_order(problem, device, position, waits.count)

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
