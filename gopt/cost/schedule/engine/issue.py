"""Issue items by rank, and compute when they end.

Written for one candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`), with max,
+ and - on int32 only.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.engine import clock, ready_queue
from gopt.cost.schedule.engine.cells import if_negative, load, store
from gopt.cost.schedule.engine.clock import Clock
from gopt.cost.schedule.engine.waiting import WaitingLists
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


class IssuedItems(NamedTuple):
    """Result of `issue_items`.

    Attributes:
      position: int32 `[N + T·D]`; place of each item in the issue order, from 1; 0 if not issued.
      end: int32 `[N + T·D]`; ticks.
      makespan: int32 `[]`; ticks.
    """

    position: Any
    end: Any
    makespan: Any


def issue_items(
    problem: Problem,
    device: Int32[jax.Array, " N"],
    waits: WaitingLists,
    by_rank: Int32[jax.Array, " N+T*D"],
    rank: Int32[jax.Array, " N+T*D"],
    times: Clock | None,
) -> IssuedItems:
    """Return the order in which items are issued, their ends, and the makespan.

    List scheduling: of all ready items the one with the smallest rank is issued next. An issued
    item walks the list of items that wait for it. Each of them then waits for one item less, and
    starts no earlier than its end.

    Args:
      problem: one problem.
      device: int32 `[N]`; device of each op.
      waits: waiting lists under this placement.
      by_rank: int32 `[N + T·D]`; items by rising rank.
      rank: int32 `[N + T·D]`; rank of each item.
      times: clock of the problem; None skips the times, and all ends are 0.
    """
    n = problem.shape.ops
    d = problem.num_devices
    size = rank.size
    reads = problem.first_read[1:] - problem.first_read[:-1]
    missing = jnp.concatenate([reads, jnp.ones(size - n, jnp.int32)])
    target = jnp.concatenate([problem.consumer, jnp.arange(n, size, dtype=jnp.int32)])

    def step(state: Any) -> Any:
        queue, next_rank, missing, position, k, arrived, free, end, last = state
        item = load(by_rank, next_rank)
        queue = ready_queue.remove(queue, next_rank)
        position = store(position, item, k)
        finish = jnp.int32(0)
        if times is not None:
            free, end = write(free, end, last)
            occupied, ticks = clock.item_resources(times, device, item)
            finish = clock.wait(free, occupied, load(arrived, item), d) + ticks
            last = item, occupied, finish

        def notify(state: Any) -> Any:
            element, next_rank, queue, missing, arrived = state
            item = load(target, element)
            if times is not None:
                arrived = store(arrived, item, jnp.maximum(load(arrived, item), finish))
            missing = store(missing, item, load(missing, item) - 1)
            is_ready = if_negative(load(missing, item) - 1, jnp.int32(1))
            own = load(rank, item)
            queue = ready_queue.add(queue, own, is_ready)
            # The minimum of two ranks, neither above `EMPTY` + 2³⁰.
            less = (own | (1 - is_ready) * ready_queue.EMPTY) - next_rank
            next_rank = next_rank + if_negative(less, less)
            return load(waits.next, element), next_rank, queue, missing, arrived

        # Compute the first rank before the walk, so that the two run in parallel.
        state = load(waits.head, item), ready_queue.first(queue), queue, missing, arrived
        _, next_rank, queue, missing, arrived = lax.while_loop(lambda s: s[0] >= 0, notify, state)
        return queue, next_rank, missing, position, k + 1, arrived, free, end, last

    def write(free: jax.Array, end: jax.Array, last: Any) -> tuple[jax.Array, jax.Array]:
        item, occupied, finish = last
        return clock.occupy(free, occupied, finish, d), store(end, item, finish)

    is_source = (reads == 0) & (jnp.arange(n, dtype=jnp.int32) < problem.num_ops)
    queue = uninlined(partial(ready_queue.create, size))(
        jnp.where(is_source, rank[:n], ready_queue.EMPTY)
    )
    none, zero = jnp.zeros(size, jnp.int32), jnp.int32(0)
    last = zero, zero, zero
    free, first = clock.idle(d), ready_queue.first(queue)
    state = queue, first, missing, none, jnp.int32(1), none, free, none, last
    state = lax.while_loop(lambda s: s[1] < ready_queue.EMPTY, step, state)
    *_, free, end, last = state
    free, end = write(free, end, last)
    # The last item to end is an op: every transfer has a consumer that waits for it.
    return IssuedItems(state[3], end, jnp.max(clock.free_devices(free, d)))
