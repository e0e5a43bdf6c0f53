"""Who waits for whom under a placement: for each item, a linked list of the items it lets go on.

The uses of a tensor are sorted by its consumers, which run on any device. With lists, what is
issued on a device visits the readers there, and nobody else's.

Written for one candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`): an element
is put at the head of its list one step after the head was read, so that no array is read beside a
write.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.engine.cells import if_negative, load, store
from gopt.cost.schedule.problem import Problem

_NONE = -1  # the end of a list; negative, see `waiting`


class Waiting(NamedTuple):
    """Who waits for whom under a placement: for each item a linked list of what it lets go on.

    An element of a list is `E` + t · D + d, the transfer of a tensor that the item makes, or a use,
    whose consumer reads what the item makes on the item's device. Transfers come first, by index.
    """

    head: Any  # int32 [N + T·D], first element of the list of an item, or -1
    next: Any  # int32 [E + T·D], the element after it, or -1
    items: Any  # int32 [N + T·D], the items that there are, by index: ops, then transfers
    count: Any  # int32 [], how many items there are


def waiting(problem: Problem, device: jax.Array) -> Waiting:
    """Returns who waits for whom if ops run on these devices."""
    n, t, e = problem.shape
    d = problem.num_devices
    maker = problem.producer[problem.tensor]
    copy = n + problem.tensor * d

    def join_use(state: Any) -> Any:
        use, count, owner, element, head, next_, items = state
        head = store(head, owner, element)  # of the use before
        to = load(device, load(problem.consumer, use))
        by = load(maker, use)
        is_away = to ^ load(device, by)  # 0 if not
        owner = by + if_negative(-is_away, load(copy, use) + to - by)
        behind = load(head, owner)
        items = store(items, count, owner)  # kept if it is a transfer that was not met before
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
    if d > 2:  # on two devices a tensor has one transfer at most
        items = _sort_transfers(items, problem.num_ops, count)
    # From the last to the first, which is then at the head.
    _, owner, element, head, next_ = lax.while_loop(
        lambda s: s[0] > problem.num_ops, join_transfer, (count, *written)
    )
    return Waiting(store(head, owner, element)[:size], next_, items, count)


def _sort_transfers(items: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
    """Returns the items with those from `start` sorted; only those of one tensor are mixed up."""

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
