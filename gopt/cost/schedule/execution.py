"""What a schedule costs: candidates are decoded, ordered, timed, and their memory summed.

Items are issued one after another, the smallest rank among the ready ones first, see
`gopt.cost.schedule.engine.issue`. The loops of a candidate have data-dependent bounds: batched,
they would select whole states at every step, so `jax.vmap` of the public functions maps over
candidates instead. On CUDA GPUs, where such loops are slow, costs come from
`gopt.cost.schedule.gpu.primitive`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.schedule.engine import clock
from gopt.cost.schedule.engine.cells import unit
from gopt.cost.schedule.engine.clock import Clock
from gopt.cost.schedule.engine.issue import issue
from gopt.cost.schedule.engine.memory import memory
from gopt.cost.schedule.engine.ranking import key_bits, rank_by_key
from gopt.cost.schedule.engine.waiting import Waiting, waiting
from gopt.cost.schedule.gpu.primitive import on_lanes
from gopt.cost.schedule.problem import MAX_TICKS, Problem


class Keys(NamedTuple):
    """A candidate: random keys in [0, 1], or their pytree for a population `[P, ...]`."""

    device: Any  # float32 [N, D], an op runs where its key is largest
    priority: Any  # float32 [N], smaller is issued earlier
    transfer: Any  # float32 [T, D], priority of the transfer of a tensor to a device


class Decision(NamedTuple):
    """A decoded candidate. Items are numbered as in `Problem`."""

    device: Any  # int32 [N]
    rank: Any  # int32 [N + T·D], a permutation


class Schedule(NamedTuple):
    """What happens when a decision is carried out. Items are numbered as in `Problem`."""

    device: Any  # int32 [N]
    order: Any  # int32 [N + T·D], items as issued; -1 after the last
    num_items: Any  # int32 []
    start: Any  # int32 [N + T·D], ticks; 0 for items that are not issued
    end: Any  # int32 [N + T·D], ticks
    usage: Any  # int32 [N + T·D], units on the device of the k-th item while it runs
    makespan: Any  # int32 [], ticks
    peak: Any  # int32 [D], units


class Cost(NamedTuple):
    """What a candidate costs."""

    makespan: Any  # int32 [], ticks
    peak: Any  # int32 [D], units


def keys_shape(problem: Problem) -> Keys:
    """Returns the shapes of the keys of one candidate."""
    (n, t, _), d = problem.shape, problem.num_devices
    shapes = Keys((n, d), (n,), (t, d))
    return Keys(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


def check_keys(problem: Problem, keys: Keys) -> None:
    """Raises `ValueError` if the keys of one candidate do not have the shapes of the problem."""
    for field, expected, leaf in zip(Keys._fields, keys_shape(problem), keys, strict=True):
        if jnp.shape(leaf) != expected.shape:
            raise ValueError(
                f"keys.{field} has shape {jnp.shape(leaf)}: expected {expected.shape}; "
                "use jax.vmap for a population"
            )


def decode(problem: Problem, keys: Keys) -> Decision:
    """Returns the devices and ranks that the keys of one candidate stand for.

    An op goes to the largest of its device keys among the allowed devices, the lowest index on
    ties; items are ranked by (key, index). -0.0 equals 0.0.
    """
    check_keys(problem, keys)
    key = _item_keys(keys)
    order = jnp.argsort(key_bits(key), stable=True)
    rank = jnp.zeros(key.shape, jnp.int32).at[order].set(jnp.arange(key.size, dtype=jnp.int32))
    return Decision(devices_of(problem, keys), rank)


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
    start from constants; `gopt.search.parallel.spread` does. Memory is accounted along the issue
    order: exact for synchronous transfers, an approximation for asynchronous ones.

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


OBJECTIVES: tuple[str, ...] = ("peak_memory", "makespan", "capped_makespan")


def check_objective(name: str) -> None:
    """Raises `ValueError` if there is no objective of that name."""
    if name not in OBJECTIVES:
        raise ValueError(f"objective is {name!r}: expected one of {', '.join(OBJECTIVES)}")


def objective(problem: Problem, cost: Cost, name: str) -> jax.Array:
    """Returns a cost as one number to be minimised, float32: exact below 2²⁴, else rounded.

    "peak_memory" is the largest over devices, in units; "makespan" is in ticks;
    "capped_makespan" too, but a schedule that does not fit the capacities costs
    U (1 + max over devices of excess / capacity) with U = 2³⁰ ticks, longer than any schedule.

    Raises:
      ValueError: there is no objective of that name.
    """
    check_objective(name)
    if name == "peak_memory":
        return jnp.max(cost.peak, axis=-1).astype(jnp.float32)
    if name == "makespan":
        return cost.makespan.astype(jnp.float32)
    capacity = jnp.asarray(problem.capacity)
    excess = jnp.maximum(cost.peak - capacity, 0) / jnp.maximum(capacity, 1).astype(jnp.float32)
    worst = jnp.max(excess, axis=-1)
    return jnp.where(worst > 0, MAX_TICKS * (1 + worst), cost.makespan.astype(jnp.float32))


def population_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array]:
    """Returns what a search minimises: a map from keys `[P, ...]` to an `objective`, `[P]`.

    Raises:
      ValueError: there is no objective of that name.
    """
    check_objective(name)

    def cost(keys: Keys) -> jax.Array:
        if name == "peak_memory":
            found = Cost(None, jax.vmap(peaks, (None, 0))(problem, keys))
        elif name == "makespan":
            found = Cost(jax.vmap(makespan, (None, 0))(problem, keys), None)
        else:
            found = jax.vmap(evaluate, (None, 0))(problem, keys)
        return objective(problem, found, name)

    return cost


def relaxed_cost(problem: Problem, name: str) -> Callable[[Keys], jax.Array] | None:
    """Returns what a search may minimise first, instead of `population_cost`; None: nothing else.

    For "capped_makespan" it is the makespan times the fourth power of peak / capacity where that
    is more than one. It is there for searches from heuristics: slow schedules that fit can push
    all fast ones that nearly fit out of a population. On 14 validation graphs of
    `experiments.regal` REGAL from heuristics, without the spectral cut, gained 3.5 % by it on
    average, between -14 and +38 %; a power of 16 was no better. The fourth is our choice.
    """
    if name != "capped_makespan":
        return None

    def cost(keys: Keys) -> jax.Array:
        found = jax.vmap(evaluate, (None, 0))(problem, keys)
        capacity = jnp.maximum(jnp.asarray(problem.capacity), 1).astype(jnp.float32)
        excess = jnp.max(found.peak / capacity, -1, initial=1.0)
        return found.makespan * jnp.minimum(excess, 2.0**20) ** 4  # finite

    return cost


Ranks = tuple[jax.Array, jax.Array]  # the items by rank, and the rank of each item


def devices_of(problem: Problem, keys: Keys) -> jax.Array:
    """Returns where ops run, int32 `[N]`."""
    device = jnp.where(problem.allowed, key_bits(keys.device), -1)
    return jnp.argmax(device, axis=-1).astype(jnp.int32)


def _item_keys(keys: Keys) -> jax.Array:
    return jnp.concatenate([jnp.ravel(keys.priority), jnp.ravel(keys.transfer)])


@on_lanes(Cost)
def _evaluate(problem: Problem, keys: Keys) -> Cost:
    return _evaluate_timed(problem, clock.create(problem), keys)


@on_lanes(lambda makespan, peak: makespan)
def _makespan(problem: Problem, keys: Keys) -> jax.Array:
    return _makespan_timed(problem, clock.create(problem), keys)


# The costs of one candidate, in units that return no more than what is needed: XLA does not look
# into a unit to see what its caller leaves out. The clock is that of all candidates.


@jax.custom_batching.sequential_vmap
@unit
def _evaluate_timed(problem: Problem, times: Clock, keys: Keys) -> Cost:
    device, waits, ranks = _ranked(problem, keys)
    position, makespan = _timed_order(problem, device, waits, ranks, times)
    return Cost(makespan, peak_of(problem, device, position, waits.count))


@jax.custom_batching.sequential_vmap
@unit
def _makespan_timed(problem: Problem, times: Clock, keys: Keys) -> jax.Array:
    return _timed_order(problem, *_ranked(problem, keys), times)[1]


@on_lanes(lambda makespan, peak: peak)
@jax.custom_batching.sequential_vmap
@unit
def _peaks(problem: Problem, keys: Keys) -> jax.Array:
    device, waits, ranks = _ranked(problem, keys)
    return peak_of(problem, device, _order(problem, device, waits, ranks), waits.count)


def _ranked(problem: Problem, keys: Keys) -> tuple[jax.Array, Waiting, Ranks]:
    device = devices_of(problem, keys)
    waits = unit(waiting)(problem, device)
    return device, waits, unit(rank_by_key)(_item_keys(keys), waits.items, waits.count)


@unit
def _order(problem: Problem, device: jax.Array, waits: Waiting, ranks: Ranks) -> jax.Array:
    return issue(problem, device, waits, *ranks, None).position


@unit
def _timed_order(
    problem: Problem, device: jax.Array, waits: Waiting, ranks: Ranks, times: Clock
) -> tuple[jax.Array, jax.Array]:
    issued = issue(problem, device, waits, *ranks, times)
    return issued.position, issued.makespan


@unit
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
