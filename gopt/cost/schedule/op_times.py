"""Start, end and slack of ops in a schedule.

The slack of an op is the longest delay of its end that leaves the makespan unchanged. Items keep
their devices and links, and their order on them. An op without slack is critical. The makespan
is the length of a chain of critical ops and of transfers they wait for.

Written for one candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`). Items are
visited in issue order, then in reverse, each with the items that wait for it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.engine import clock
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.engine.clock import Clock
from gopt.cost.schedule.engine.waiting import build_waiting_lists
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


class OpTimes(NamedTuple):
    """Devices, times and slack of ops, in ticks. Padding rows are 0.

    Attributes:
      device: int32 `[N]`; device of the op.
      arrived: int32 `[N]`; time when all inputs of the op are on its device.
      start: int32 `[N]`; start of the op.
      end: int32 `[N]`; end of the op.
      slack: int32 `[N]`; longest delay of the end that leaves the makespan unchanged.
      local_slack: int32 `[N]`; slack if the next item on the device did not wait for the op, and
        all other items waited as before; at least `slack`.
      transfer_arrival: int32 `[T, D]`; arrival of a tensor that is sent to the device; else 0.
      makespan: int32 `[]`; last end.
    """

    device: Any
    arrived: Any
    start: Any
    end: Any
    slack: Any
    local_slack: Any
    transfer_arrival: Any
    makespan: Any


@jax.custom_batching.sequential_vmap
@uninlined
def compute_op_times(
    problem: Problem,
    times: Clock,
    device: Int32[jax.Array, " N"],
    position: Int32[jax.Array, " N+T*D"],
    count: Int32[jax.Array, ""],
) -> OpTimes:
    """Return times and slack of ops, given the issue order.

    Args:
      problem: one problem.
      times: clock of the problem.
      device: int32 `[N]`; device of each op.
      position: int32 `[N + T·D]`; place of each item in the issue order, from 1; 0 if not issued.
      count: int32 `[]`; number of issued items.
    """
    (n, t, e), d = problem.shape, problem.num_devices
    size = n + t * d
    items = jnp.arange(size, dtype=jnp.int32)
    order = jnp.zeros(size + 1, jnp.int32).at[position].set(items)  # from 1; row 0 is unused
    waits = uninlined(build_waiting_lists)(problem, device)
    demands = clock.all_item_resources(times, device)

    def item_of(element: jax.Array) -> jax.Array:
        """Return the item that waits, for an element of a waiting list."""
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
        k, free, last, behind = state  # ticks after an item's end: all, and through consumers only
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
    is_real = jnp.arange(n, dtype=jnp.int32) < problem.num_ops
    makespan = jnp.max(end)
    left = jnp.where(is_real, makespan - end[:n], 0)
    ticks = demands[1 : 2 * n : 2]
    return OpTimes(
        device=jnp.where(is_real, device, 0),
        arrived=arrived[:n],
        start=end[:n] - ticks,
        end=end[:n],
        slack=left - jnp.where(is_real, last[:n], 0),
        local_slack=left - jnp.where(is_real, behind[:n], 0),
        transfer_arrival=end[n:].reshape(t, d),
        makespan=makespan,
    )
