"""Find the best op that has arrived on a device: binary trees of earliest arrivals.

Each device has one tree. Its leaves are ops by rank, with their arrival times; a node holds the
earliest time below it. A descent finds the smallest rank that has arrived. Written for one
candidate, as loops over scalars (see `gopt.cost.schedule.engine.cells`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.problem import MAX_TICKS

NEVER = MAX_TICKS  # arrival time of ops not known yet; larger than any time


class Layout(NamedTuple):
    """Positions of nodes in the array of trees: node k of device d is at k · 2^`bits` + d.

    The root is node 1, and the children of k are 2 k and 2 k + 1. The op of rank r is node
    `leaves` + r.

    Attributes:
      leaves: number of leaves per tree, a power of two.
      bits: bits that hold a device number.
    """

    leaves: int
    bits: int

    def place(self, node: Any, device: Any) -> Any:
        """Return the position of a device's node."""
        return node << self.bits | device

    def above(self, place: jax.Array) -> jax.Array:
        """Return the position of the parent node."""
        mask = (1 << self.bits) - 1
        return (place >> 1) & ~mask | place & mask

    def rank(self, place: jax.Array) -> jax.Array:
        """Return the rank of the op at a leaf."""
        return (place >> self.bits) - self.leaves


def layout(ops: int, devices: int) -> Layout:
    """Return the layout of the trees.

    Args:
      ops: number of ops.
      devices: number of devices.
    """
    return Layout(1 << (ops - 1).bit_length(), (devices - 1).bit_length())


def create(of: Layout, place: Int32[jax.Array, " N"], arrived: Int32[jax.Array, " N"]) -> jax.Array:
    """Return the trees of ops, int32 `[2 · leaves · 2^bits]`.

    Args:
      of: layout of the trees.
      place: int32 `[N]`; position of each op's leaf.
      arrived: int32 `[N]`; arrival time of each op, ticks; `NEVER` if not known yet.
    """
    width = 1 << of.bits
    level = jnp.full(of.leaves * width, NEVER, jnp.int32)
    level = level.at[place - of.leaves * width].min(arrived).reshape(of.leaves, width)
    levels = [level]
    while len(level) > 1:
        level = level.reshape(-1, 2, width).min(1)
        levels.append(level)
    return jnp.concatenate([level, *reversed(levels)]).ravel()  # node 0 is unused


def earliest(of: Layout, trees: jax.Array, devices: int) -> Int32[jax.Array, " D"]:
    """Return the first arrival on each device, int32 `[D]`, ticks; `NEVER` if there is none.

    Args:
      of: layout of the trees.
      trees: trees as returned by `create`.
      devices: number of devices, `D`.
    """
    root = of.place(1, 0)
    return trees[root : root + devices]


def add(
    of: Layout, trees: jax.Array, place: Int32[jax.Array, ""], time: Int32[jax.Array, ""]
) -> tuple[jax.Array, jax.Array]:
    """Return the trees with one more op, and its arrival time, read after the write.

    Args:
      of: layout of the trees.
      trees: trees as returned by `create`.
      place: int32 `[]`; position of the op's leaf, which is not in the tree yet; 0 for no op.
      time: int32 `[]`; arrival time, ticks.
    """

    def is_earlier(state: Any) -> Any:
        place, time, trees = state
        return (place >> of.bits > 0) & (load(trees, place) > time)

    def ascend(state: Any) -> Any:
        place, time, trees = state
        # Equals `time`, unknown to XLA, which would read the time again instead of carrying it.
        return of.above(place), time | (place >> 31), store(trees, place, time)

    _, time, trees = lax.while_loop(is_earlier, ascend, (place, time, trees))
    return trees, time


def best(
    of: Layout, trees: jax.Array, place: Int32[jax.Array, ""], time: Int32[jax.Array, ""]
) -> jax.Array:
    """Return the leaf of the smallest rank that has arrived.

    Args:
      of: layout of the trees.
      trees: trees as returned by `create`.
      place: int32 `[]`; root of a device where an op has arrived, or the device's node 0, which
        is returned as it is.
      time: int32 `[]`; latest arrival time that counts, ticks.
    """

    def descend(place: jax.Array) -> jax.Array:
        left = place + (place >> of.bits << of.bits)
        is_right = load(trees, left) > time
        return left + (is_right.astype(jnp.int32) << of.bits)

    def is_above(place: jax.Array) -> jax.Array:
        return ((place >> of.bits) - 1).astype(jnp.uint32) < of.leaves - 1

    return lax.while_loop(is_above, descend, place)


def remove(of: Layout, trees: jax.Array, place: Int32[jax.Array, ""]) -> jax.Array:
    """Return the trees without one op.

    Args:
      of: layout of the trees.
      trees: trees as returned by `create`.
      place: int32 `[]`; position of the op's leaf, or of a device's node 0 for no op.
    """

    def ascend(state: Any) -> Any:
        place, time, trees = state
        trees = store(trees, place, time)
        time = jnp.minimum(time, load(trees, place ^ (1 << of.bits)))
        return of.above(place), time, trees

    state = place, jnp.int32(NEVER), trees
    return lax.while_loop(lambda s: s[0] >> of.bits > 0, ascend, state)[2]
