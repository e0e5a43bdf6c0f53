"""Memory in use on each device at each step of the issue order."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.problem import Problem

_BLOCK = 4  # steps summed per iteration


def memory_along_order(
    problem: Problem,
    device: Int32[jax.Array, " N"],
    position: Int32[jax.Array, " N+T*D"],
    count: Int32[jax.Array, ""],
) -> tuple[jax.Array, jax.Array]:
    """Return the memory in use on each device at each step of the issue order, and the peaks.

    Args:
      problem: one problem.
      device: int32 `[N]`; device of each op.
      position: int32 `[N + T·D]`; place of each item in the issue order, from 1; 0 if not issued.
      count: int32 `[]`; number of issued items.

    Returns:
      Usage, int32 `[R, D]`, and peak, int32 `[D]`, in units. Row k is the k-th item and row 0 the
      start; rows after the last item are undefined.
    """
    d, zero = problem.num_devices, jnp.int32(0)
    change, work = memory_changes(problem, device, position)

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


def memory_changes(
    problem: Problem, device: Int32[jax.Array, " N"], position: Int32[jax.Array, " N+T*D"]
) -> tuple[jax.Array, jax.Array]:
    """Return the changes in memory, and the workspace, at each step: two int32 `[R, D]`, units.

    The sum of the first table up to a step is the memory of the tensors held during that step. A
    row is the memory that the step allocates, less the memory that the step before freed. The
    second table is the workspace of the step's item.

    Args:
      problem: one problem.
      device: int32 `[N]`; device of each op.
      position: int32 `[N + T·D]`; place of each item in the issue order, as in
      `memory_along_order`.
    """
    n, t, e = problem.shape
    d = problem.num_devices
    devices = jnp.arange(d, dtype=jnp.int32)[None]
    rows = n + min(e, t * d) + 2  # at most one transfer per use
    rows += -rows % _BLOCK
    never = rows - 1

    ops, sent = position[:n], position[n:].reshape(t, d)
    home = device[problem.producer]
    is_home = home[:, None] == devices
    made = ops[problem.producer]
    # Last consumer of a tensor on a device. On its producer's device, transfers are consumers too.
    slot = problem.tensor * d + device[problem.consumer]
    read = jnp.zeros(t * d, jnp.int32).at[slot].max(ops[problem.consumer]).reshape(t, d)
    leaves = jnp.maximum(made, jnp.max(jnp.where(is_home, 0, sent), 1))
    last = jnp.where(is_home, jnp.maximum(read, leaves[:, None]), read)
    last = jnp.where(is_home & problem.pinned[:, None], never, last)
    born = jnp.where(is_home, jnp.where(problem.is_input[problem.producer], 0, made)[:, None], sent)
    size = jnp.where(is_home | (sent > 0), problem.size[:, None], 0)

    def table(step: jax.Array, device: jax.Array, size: jax.Array) -> jax.Array:
        # Flat indices: XLA would materialise index pairs, which takes longer than the scatter.
        index = (step * d + device).ravel()
        return jnp.zeros(rows * d, jnp.int32).at[index].add(size.ravel(), mode="drop")

    change = table(born, devices, size) - table(last + 1, devices, size)
    work = table(ops, device, problem.workspace)
    return change.reshape(rows, d), work.reshape(rows, d)
