"""Which op of a device is the best of those that have arrived: trees of the earliest arrivals.

Each device has a binary tree. Its leaves are ops by rank, with the time from which they may start;
a node has the earliest one below it. So the smallest rank that has arrived is found on the way
down. Written for one candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.problem import MAX_TICKS

NEVER = MAX_TICKS  # when ops arrive of which nothing is known yet; no time is as large


class Layout(NamedTuple):
    """Where nodes are: node k of device d at k · 2^`bits` + d.

    The root is node 1, the nodes below k are 2 k and 2 k + 1, and the op of rank r is node
    `leaves` + r.
    """

    leaves: int
    bits: int

    def place(self, node: Any, device: Any) -> Any:
        """Returns where a node of a device is."""
        return node << self.bits | device

    def above(self, place: jax.Array) -> jax.Array:
        """Returns where the node above one is."""
        mask = (1 << self.bits) - 1
        return (place >> 1) & ~mask | place & mask

    def rank(self, place: jax.Array) -> jax.Array:
        """Returns the rank of the op at a leaf."""
        return (place >> self.bits) - self.leaves


def layout(ops: int, devices: int) -> Layout:
    """Returns the layout for so many ops and devices."""
    return Layout(1 << (ops - 1).bit_length(), (devices - 1).bit_length())


def create(of: Layout, place: jax.Array, arrived: jax.Array) -> jax.Array:
    """Returns the trees of ops, int32 `[2 · leaves · 2^bits]`.

    Args:
      of: their layout.
      place: int32 `[N]`, the leaf of each op.
      arrived: int32 `[N]`, when each may start, ticks; `NEVER` if that is not known yet.
    """
    width = 1 << of.bits
    level = jnp.full(of.leaves * width, NEVER, jnp.int32)
    level = level.at[place - of.leaves * width].min(arrived).reshape(of.leaves, width)
    levels = [level]
    while len(level) > 1:
        level = level.reshape(-1, 2, width).min(1)
        levels.append(level)
    return jnp.concatenate([level, *reversed(levels)]).ravel()  # node 0 is nobody's


def earliest(of: Layout, trees: jax.Array, devices: int) -> jax.Array:
    """Returns when the first op arrives on each device, int32 `[D]`, or `NEVER`."""
    root = of.place(1, 0)
    return trees[root : root + devices]


def add(
    of: Layout, trees: jax.Array, place: jax.Array, time: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the trees with the time when an op arrives, and that time, once they are written.

    Args:
      of: the layout.
      trees: the trees.
      place: int32 `[]`, the leaf of the op, which is not in the tree; or 0 for none.
      time: int32 `[]`, when it arrives, ticks.
    """

    def is_earlier(state: Any) -> Any:
        place, time, trees = state
        return (place >> of.bits > 0) & (load(trees, place) > time)

    def ascend(state: Any) -> Any:
        place, time, trees = state
        # The time as it is, which XLA does not see: else it would not be carried, but read again.
        return of.above(place), time | (place >> 31), store(trees, place, time)

    _, time, trees = lax.while_loop(is_earlier, ascend, (place, time, trees))
    return trees, time


def best(of: Layout, trees: jax.Array, place: jax.Array, time: jax.Array) -> jax.Array:
    """Returns the leaf of the smallest rank that has arrived.

    Args:
      of: the layout.
      trees: the trees.
      place: int32 `[]`, the root of a device where something has arrived, or its node 0, which is
        returned.
      time: int32 `[]`, by when, ticks.
    """

    def descend(place: jax.Array) -> jax.Array:
        left = place + (place >> of.bits << of.bits)
        is_right = load(trees, left) > time
        return left + (is_right.astype(jnp.int32) << of.bits)

    def is_above(place: jax.Array) -> jax.Array:
        return ((place >> of.bits) - 1).astype(jnp.uint32) < of.leaves - 1

    return lax.while_loop(is_above, descend, place)


def remove(of: Layout, trees: jax.Array, place: jax.Array) -> jax.Array:
    """Returns the trees without an op; `place` is its leaf, or node 0 for none."""

    def ascend(state: Any) -> Any:
        place, time, trees = state
        trees = store(trees, place, time)
        time = jnp.minimum(time, load(trees, place ^ (1 << of.bits)))
        return of.above(place), time, trees

    state = place, jnp.int32(NEVER), trees
    return lax.while_loop(lambda s: s[0] >> of.bits > 0, ascend, state)[2]
