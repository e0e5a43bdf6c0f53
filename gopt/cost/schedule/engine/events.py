"""Simulate dispatch: issue the item whose time comes first, until none is left.

Written for one candidate, as a loop over scalars (see `gopt.cost.schedule.engine.cells`). XLA
compiles a loop to native code if it estimates that a step accesses less than 1 KiB, carried values
included; otherwise the loop takes ten times as long. So a step visits one item, and arrays are few:
one of constants, one of missing tensors, one of devices and issued items, and one of trees. A step
looks at all devices, so with more than eight the code is not native.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.engine import arrivals, clock
from gopt.cost.schedule.engine.cells import if_negative, load, store
from gopt.cost.schedule.engine.clock import Clock
from gopt.cost.schedule.engine.waiting import build_waiting_lists
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined

_NONE = -1  # no item, or the end of a list


class DispatchConstants(NamedTuple):
    """Values of a problem that all candidates share.

    Attributes:
      times: clock of the problem.
      inputs: int32 `[N]`; input ops by index, then N.
      count: int32 `[]`; number of inputs.
      position: int32 `[N + T·D + 1]`; places of inputs in the issue order, from 1; else 0.
      missing: int32 `[2 · N]`; two entries per op: latest arrival so far of a tensor it reads,
        ticks, and number of tensors that have not arrived.
      arrived: int32 `[N]`; 0 for non-input ops that read nothing, else `NEVER`; ticks.
    """

    times: Clock
    inputs: Any
    count: Any
    position: Any
    missing: Any
    arrived: Any


class Dispatched(NamedTuple):
    """Result of `dispatch`.

    Attributes:
      position: int32 `[N + T·D]`; place of each item in the issue order, from 1; 0 if not issued.
      count: int32 `[]`; number of issued items.
      makespan: int32 `[]`; ticks.
    """

    position: Any
    count: Any
    makespan: Any


def dispatch_constants(problem: Problem) -> DispatchConstants:
    """Return the values of a problem that all candidates share."""
    n, t, _ = problem.shape
    is_real = jnp.arange(n, dtype=jnp.int32) < problem.num_ops
    is_input = problem.is_input & is_real
    reads = problem.first_read[1:] - problem.first_read[:-1]
    (inputs,) = jnp.nonzero(is_input, size=n, fill_value=n)
    places = jnp.arange(1, n + 1, dtype=jnp.int32)
    none = jnp.zeros(n, jnp.int32)
    position = none.at[inputs].set(places, mode="drop")
    return DispatchConstants(
        times=clock.create(problem),
        inputs=inputs.astype(jnp.int32),
        count=jnp.sum(is_input, dtype=jnp.int32),
        position=jnp.pad(position, (0, t * problem.num_devices + 1)),
        missing=jnp.stack([none, reads], 1).ravel(),
        arrived=jnp.where((reads == 0) & is_real & ~is_input, 0, jnp.int32(arrivals.NEVER)),
    )


def dispatch(
    problem: Problem,
    device: Int32[jax.Array, " N"],
    by_rank: Int32[jax.Array, " N"],
    rank: Int32[jax.Array, " N"],
    table: DispatchConstants,
    *,
    first_come: bool,
) -> Dispatched:
    """Return the order in which items are issued, and the makespan.

    The next event of a busy device is the end of its op. The next event of a free device is the
    start of the best op that has arrived. When an op ends, its transfers are issued and its
    consumers are notified. A consumer with no missing tensor may start at its latest arrival.

    Args:
      problem: one problem.
      device: int32 `[N]`; device of each op.
      by_rank: int32 `[N]`; ops from the best to the worst, then padding.
      rank: int32 `[N]`; place of each op in `by_rank`; not read for padding.
      table: shared values of the problem.
      first_come: whether the earliest arrival is the best, and ranks break ties; else the
        smallest rank is the best.
    """
    n, t, e = problem.shape
    d = problem.num_devices
    nothing = n + t * d
    waits = uninlined(build_waiting_lists)(problem, device)
    tree = arrivals.layout(n, d)
    leaf = tree.place(tree.leaves + rank, device)

    fixed, (after, head, consumer, place_of, op_of, demand_of) = _joined(
        waits.next,
        waits.head,
        problem.consumer,
        leaf,
        by_rank,
        clock.all_item_resources(table.times, device),
    )
    until = jnp.full(d, arrivals.NEVER, jnp.int32)  # end of the running op of each device
    runs = jnp.zeros(d, jnp.int32)  # running op of each device
    log, (_, until_at, runs_at, position_at) = _joined(clock.idle(d), until, runs, table.position)

    def next_item(element: jax.Array) -> jax.Array:
        """Return the transfer of a list element, or `nothing` if it is a use."""
        return jnp.where(element >= e, n + element - e, nothing)

    def visit(now: jax.Array, item: jax.Array, element: jax.Array, state: Any) -> Any:
        """Issue an item and notify its consumers, or an ending op's consumers on its own device.

        Args:
          now: current time, ticks.
          item: starting op, transfer of an ending op, or `nothing` after its last transfer.
          element: current element of the ending op's waiting list; -1 for a starting op.
          state: number of the next item, trees, missing tensors, and log.

        Returns:
          End of the item, next item and element to visit, and the state.
        """
        k, trees, missing, log = state
        is_transfer = (item - n).astype(jnp.uint32) < t * d
        occupied, ticks = load(fixed, demand_of + 2 * item), load(fixed, demand_of + 2 * item + 1)
        finish = clock.wait(log, occupied, now, d) + ticks
        log = clock.occupy(log, occupied, finish, d)
        log = store(log, position_at + item, k)

        def tell(state: Any) -> Any:
            use, trees, missing = state
            reader = load(fixed, consumer + use)
            time = jnp.maximum(load(missing, 2 * reader), finish)
            left = load(missing, 2 * reader + 1) - 1
            place = if_negative(left - 1, load(fixed, place_of + reader))
            trees, time = arrivals.add(tree, trees, place, time)
            missing = store(missing, 2 * reader, time)
            left = load(missing, 2 * reader + 1) - 1  # read again, from the written array
            return load(fixed, after + use), trees, store(missing, 2 * reader + 1, left)

        use = jnp.where(is_transfer, load(fixed, head + item), element)
        state = use, trees, missing
        _, trees, missing = lax.while_loop(lambda s: s[0] >= 0, tell, state)
        k = k + (item < nothing).astype(jnp.int32)
        element = load(fixed, after + jnp.maximum(element, 0))
        item = jnp.where(is_transfer, next_item(element), _NONE)
        return finish, item, element, (k, trees, missing, log)

    def end_input(state: Any) -> Any:
        i, item, element, state = state
        element = jnp.where(item < 0, load(fixed, head + load(table.inputs, i)), element)
        item = jnp.where(item < 0, next_item(element), item)
        _, item, element, state = visit(jnp.int32(0), item, element, state)
        return i + (item < 0).astype(jnp.int32), item, element, state

    def next_event(trees: jax.Array, log: jax.Array) -> Any:
        """Return the next event as 2 · time, plus 1 for a start, and its device."""
        start = jnp.maximum(arrivals.earliest(tree, trees, d), clock.free_devices(log, d))
        end = log[until_at : until_at + d]

        def is_first(a: Any, b: Any) -> jax.Array:
            return (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))

        event = jnp.minimum(2 * end.astype(jnp.uint32), 2 * start.astype(jnp.uint32) + 1)
        return lax.reduce(
            (event, jnp.arange(d, dtype=jnp.int32)),
            (jnp.uint32(2 * arrivals.NEVER), jnp.int32(0)),
            lambda a, b: jax.tree.map(partial(jnp.where, is_first(a, b)), a, b),
            [0],
        )

    @uninlined  # else XLA would compute it again at every use
    def begin(starts: Any, place: Any, on: Any, item: Any, element: Any, log: Any) -> Any:
        """Return the op that starts or ends, and the first item and element to visit."""
        op = jnp.where(starts, load(fixed, op_of + tree.rank(place)), load(log, runs_at + on))
        first = jnp.where(starts, _NONE, load(fixed, head + op))
        begun = jnp.where(starts, op, next_item(first))
        return op, jnp.where(item < 0, begun, item), jnp.where(item < 0, first, element)

    def step(state: Any) -> Any:
        event, on, item, element, (k, trees, missing, log) = state
        now, starts = (event >> 1).astype(jnp.int32), (event & 1).astype(jnp.int32)
        root = tree.place(starts, on)
        place = arrivals.best(tree, trees, root, load(trees, root) if first_come else now)
        op, item, element = begin(starts, place, on, item, element, log)
        trees = arrivals.remove(tree, trees, place)
        state = k, trees, missing, log
        finish, item, element, (k, trees, missing, log) = visit(now, item, element, state)
        # An ending op stays the next event until its last transfer is issued.
        end = jnp.where(item < 0, arrivals.NEVER, now)
        log = store(log, until_at + on, jnp.where(starts, finish, end))
        log = store(log, runs_at + on, op)
        return *next_event(trees, log), item, element, (k, trees, missing, log)

    trees = uninlined(partial(arrivals.create, tree))(leaf, table.arrived)
    none, state = jnp.int32(_NONE), (table.count + 1, trees, table.missing, log)
    *_, state = lax.while_loop(
        lambda s: s[0] < table.count, end_input, (jnp.int32(0), none, none, state)
    )
    state = *next_event(state[1], state[3]), none, none, state
    *_, (k, _, _, log) = lax.while_loop(
        lambda s: s[0] < jnp.uint32(2 * arrivals.NEVER), step, state
    )
    return Dispatched(log[position_at:-1], k - 1, jnp.max(clock.free_devices(log, d)))


def _joined(*parts: jax.Array) -> tuple[jax.Array, list[int]]:
    """Return the concatenation of arrays, and the offset of each."""
    starts = [sum(part.size for part in parts[:k]) for k in range(len(parts))]
    return jnp.concatenate(parts), starts
