"""How much memory is in use on each device, step by step along the order of issue."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.problem import Problem

_BLOCK = 4  # steps that are summed at once


def memory(
    problem: Problem, device: jax.Array, position: jax.Array, count: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns what is on each device at each step of the order of issue, and the peaks.

    Args:
      problem: one problem.
      device: int32 `[N]`.
      position: int32 `[N + T·D]`, when items are issued, counted from 1; 0 for no item.
      count: int32 `[]`, how many items there are.

    Returns:
      int32 `[R, D]` and `[D]`, in units. Row k is the k-th item, row 0 the start; rows after the
      last item mean nothing.
    """
    d, zero = problem.num_devices, jnp.int32(0)
    change, work = changes(problem, device, position)

    def add(state: Any) -> Any:
        k, live, peak, during = state
        added, works = block(change, k), block(work, k)
        now = []
        for at in range(_BLOCK):
            live = live + added[at]
            now.append(live + works[at])
            peak = jnp.maximum(peak, now[-1])
        during = lax.dynamic_update_slice(
            during, jnp.stack(now), (k, zero), allow_negative_indices=False
        )
        return k + _BLOCK, live, peak, during

    def block(table: jax.Array, k: jax.Array) -> jax.Array:
        return lax.dynamic_slice(table, (k, zero), (_BLOCK, d), allow_negative_indices=False)

    none = jnp.zeros(d, jnp.int32)
    state = zero, none, none, jnp.zeros_like(work)
    _, _, peak, during = lax.while_loop(lambda s: s[0] <= count, add, state)
    return during, peak


def changes(
    problem: Problem, device: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns what memory is in use depends on, step by step: two tables, int32 `[R, D]`, units.

    What is on a device while an item runs is what came until then less what went before: sums
    along the order of issue, of what each step adds and what the step before it frees, the first
    table. Beside it there is the item's workspace, the second one.
    """
    n, t, e = problem.shape
    d = problem.num_devices
    devices = jnp.arange(d, dtype=jnp.int32)
    rows = n + min(e, t * d) + 2  # every transfer has a use of its own
    rows += -rows % _BLOCK
    never = rows - 1

    ops, sent = position[:n], position[n:].reshape(t, d)
    home = device[problem.producer]
    is_home = home[:, None] == devices
    made = ops[problem.producer]
    # The last reader of a tensor on a device; where it was made, transfers are readers too.
    slot = problem.tensor * d + device[problem.consumer]
    read = jnp.zeros(t * d, jnp.int32).at[slot].max(ops[problem.consumer]).reshape(t, d)
    leaves = jnp.maximum(made, jnp.max(jnp.where(is_home, 0, sent), 1))
    last = jnp.where(is_home, jnp.maximum(read, leaves[:, None]), read)
    last = jnp.where(is_home & problem.pinned[:, None], never, last)
    born = jnp.where(is_home, jnp.where(problem.is_input[problem.producer], 0, made)[:, None], sent)
    size = jnp.where(is_home | (sent > 0), problem.size[:, None], 0)

    def table(step: jax.Array, device: jax.Array, size: jax.Array) -> jax.Array:
        # Flat indices: XLA would write pairs of them out, which takes longer than to use them.
        index = (step * d + device).ravel()
        return jnp.zeros(rows * d, jnp.int32).at[index].add(size.ravel(), mode="drop")

    change = table(born, devices, size) - table(last + 1, devices, size)
    work = table(ops, device, problem.workspace)
    return change.reshape(rows, d), work.reshape(rows, d)
