"""When ops run in a schedule, and which of them decide when it ends.

The slack of an op is how much later it could end, with all items on their devices and links in the
same order, without a longer makespan. Ops without slack are critical. The makespan is the length of
a chain of critical ops, and of transfers that they wait for.

Written for one candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`): items are
visited in order of issue, then from the last to the first, each with those that wait for it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.engine import clock
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.engine.clock import Clock
from gopt.cost.schedule.engine.waiting import waiting
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


class Timing(NamedTuple):
    """Where and when ops run, and how urgent they are. Times are in ticks; padding has zeros."""

    device: Any  # int32 [N], where they run
    arrived: Any  # int32 [N], when all that an op reads is there
    start: Any  # int32 [N]
    end: Any  # int32 [N]
    slack: Any  # int32 [N], how much later it could end without a longer makespan
    yielding: Any  # int32 [N], the same if what comes next on its device did not wait for it, while
    # all else waits as it does; the slack at least
    received: Any  # int32 [T, D], when a tensor that is sent to a device is there; else 0
    makespan: Any  # int32 []


@jax.custom_batching.sequential_vmap
@uninlined
def timing(
    problem: Problem, times: Clock, device: jax.Array, position: jax.Array, count: jax.Array
) -> Timing:
    """Returns when ops run, and how urgent they are, in a schedule whose order of issue is known.

    Args:
      problem: one problem.
      times: its clock.
      device: int32 `[N]`, where ops run.
      position: int32 `[N + T·D]`, of each item in the order of issue, from 1; 0 for no item.
      count: int32 `[]`, how many items there are.
    """
    (n, t, e), d = problem.shape, problem.num_devices
    size = n + t * d
    items = jnp.arange(size, dtype=jnp.int32)
    order = jnp.zeros(size + 1, jnp.int32).at[position].set(items)  # from 1; the first is no item
    waits = uninlined(waiting)(problem, device)
    demands = clock.demands(times, device)

    def item_of(element: jax.Array) -> jax.Array:
        """Returns the item that an element of a list lets go on."""
        use = jnp.minimum(element, e - 1)
        return jnp.where(element >= e, n + element - e, load(problem.consumer, use))

    def run(state: Any) -> Any:
        k, free, arrived, end = state
        item = load(order, k)
        occupied, ticks = load(demands, 2 * item), load(demands, 2 * item + 1)
        finish = clock.wait(free, occupied, load(arrived, item), d) + ticks
        free, end = clock.occupy(free, occupied, finish, d), store(end, item, finish)

        def tell(state: Any) -> Any:
            element, arrived = state
            other = item_of(element)
            arrived = store(arrived, other, jnp.maximum(load(arrived, other), finish))
            return load(waits.next, element), arrived

        _, arrived = lax.while_loop(lambda s: s[0] >= 0, tell, (load(waits.head, item), arrived))
        return k + 1, free, arrived, end

    zeros = jnp.zeros(size, jnp.int32)
    state = jnp.int32(1), clock.idle(d), zeros, zeros
    _, _, arrived, end = lax.while_loop(lambda s: s[0] <= count, run, state)

    def look_back(state: Any) -> Any:
        k, free, last, behind = state  # what comes after an item, and that without its device
        item = load(order, k)
        occupied, ticks = load(demands, 2 * item), load(demands, 2 * item + 1)

        def ask(state: Any) -> Any:
            element, longest = state
            other = item_of(element)
            path = load(last, other) + load(demands, 2 * other + 1)
            return load(waits.next, element), jnp.maximum(longest, path)

        none = jnp.int32(0)
        _, longest = lax.while_loop(lambda s: s[0] >= 0, ask, (load(waits.head, item), none))
        after = clock.wait(free, occupied, longest, d)
        free = clock.occupy(free, occupied, after + ticks, d)
        return k - 1, free, store(last, item, after), store(behind, item, longest)

    state = count, clock.idle(d), zeros, zeros
    _, _, last, behind = lax.while_loop(lambda s: s[0] > 0, look_back, state)
    is_real = jnp.arange(n) < problem.num_ops
    makespan = jnp.max(end)
    left = jnp.where(is_real, makespan - end[:n], 0)
    ticks = demands[1 : 2 * n : 2]
    return Timing(
        device=jnp.where(is_real, device, 0),
        arrived=arrived[:n],
        start=end[:n] - ticks,
        end=end[:n],
        slack=left - jnp.where(is_real, last[:n], 0),
        yielding=left - jnp.where(is_real, behind[:n], 0),
        received=end[n:].reshape(t, d),
        makespan=makespan,
    )
