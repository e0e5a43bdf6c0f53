"""Waiting lists under a placement: for each item, a linked list of the items that wait for it.

The consumers of a tensor run on any device. With lists, an issued item visits its consumers on its
own device only.

Written for one candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`). An element
becomes the head of its list one step after the old head was read: no array is read and written at
once.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.engine.cells import if_negative, load, store
from gopt.cost.schedule.problem import Problem

_NONE = -1  # end of a list; `build_waiting_lists` needs it negative


class WaitingLists(NamedTuple):
    """For each item, a linked list of the items that wait for it.

    An element below `E` is a use: its consumer reads the item's tensor on the item's device.
    Element `E` + t · D + d is the transfer to device d of a tensor t that the item makes. Transfers
    come first, by index.

    Attributes:
      head: int32 `[N + T·D]`; first element of each item's list, or -1.
      next: int32 `[E + T·D]`; next element of the list, or -1.
      items: int32 `[N + T·D]`; items to issue, by index: ops, then transfers.
      count: int32 `[]`; number of items to issue.
    """

    head: Any
    next: Any
    items: Any
    count: Any


def build_waiting_lists(problem: Problem, device: Int32[jax.Array, " N"]) -> WaitingLists:
    """Return the waiting lists under a placement.

    Args:
      problem: one problem.
      device: int32 `[N]`; device of each op.
    """
    n, t, e = problem.shape
    d = problem.num_devices
    maker = problem.producer[problem.tensor]
    copy = n + problem.tensor * d

    def join_use(state: Any) -> Any:
        use, count, owner, element, head, next_, items = state
        head = store(head, owner, element)  # of the previous use
        to = load(device, load(problem.consumer, use))
        by = load(maker, use)
        is_away = to ^ load(device, by)  # 0 if on the same device
        owner = by + if_negative(-is_away, load(copy, use) + to - by)
        behind = load(head, owner)
        items = store(items, count, owner)  # kept only if it is a new transfer
        count = count + if_negative(-is_away, if_negative(behind, jnp.int32(1)))
        return use + 1, count, owner, use, head, store(next_, use, behind), items

    def join_transfer(state: Any) -> Any:
        k, owner, element, head, next_ = state
        head = store(head, owner, element)
        slot = load(items, k - 1) - n
        owner, element = load(problem.producer, lax.div(slot, jnp.int32(d))), e + slot
        return k - 1, owner, element, head, store(next_, element, load(head, owner))

    size = n + t * d
    head, next_ = jnp.full(size + 1, _NONE, jnp.int32), jnp.full(e + t * d, _NONE, jnp.int32)
    zero = jnp.int32(0)
    state = (
        zero,
        problem.num_ops,
        jnp.int32(size),
        zero,
        head,
        next_,
        jnp.arange(size, dtype=jnp.int32),
    )
    _, count, *written, items = lax.while_loop(lambda s: s[0] < problem.num_uses, join_use, state)
    if d > 2:  # on two devices a tensor has at most one transfer
        items = _sort_transfers(items, problem.num_ops, count)
    # Last to first, so that the first is at the head.
    _, owner, element, head, next_ = lax.while_loop(
        lambda s: s[0] > problem.num_ops, join_transfer, (count, *written)
    )
    return WaitingLists(store(head, owner, element)[:size], next_, items, count)


def _sort_transfers(items: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
    """Return the items with those from `start` on sorted. Only transfers of one tensor move."""

    def insert(state: Any) -> Any:
        k, items = state
        item = load(items, k)

        def move(state: Any) -> Any:
            at, items = state
            return at - 1, store(items, at, load(items, at - 1))

        at, items = lax.while_loop(
            lambda s: (s[0] > start) & (load(s[1], jnp.maximum(s[0] - 1, 0)) > item),
            move,
            (k, items),
        )
        return k + 1, store(items, at, item)

    return lax.while_loop(lambda s: s[0] < count, insert, (start, items))[1]
