"""A priority queue of ready items: a bitset over their ranks, in levels of 32-bit words.

A bit of a level is 1 if the word it stands for in the level below is not zero. So the smallest
rank is found in log₃₂ steps. Functions take one queue; nothing here is batched.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32

from gopt.cost.schedule.engine.cells import load, store

Queue = tuple[jax.Array, ...]  # levels of uint32 words, finest first; the last is one word

EMPTY = 2**30  # first rank of an empty queue; above every rank


def create(size: int, ready: jax.Array) -> Queue:
    """Return a queue of ready items.

    Args:
      size: number of ranks; all are below it.
      ready: int32; ranks to add. `EMPTY` entries are ignored.
    """
    bits = jnp.zeros(size, jnp.uint32).at[ready].set(1, mode="drop", wrap_negative_indices=False)
    levels: list[jax.Array] = []
    while not levels or levels[-1].size > 1:
        bits = jnp.pad(bits, (0, -bits.size % 32)).reshape(-1, 32)
        words = (bits << jnp.arange(32, dtype=jnp.uint32)[None]).sum(1, dtype=jnp.uint32)
        levels.append(words)
        bits = (words != 0).astype(jnp.uint32)
    return tuple(levels)


def first(queue: Queue) -> jax.Array:
    """Return the smallest rank in the queue, or `EMPTY`."""
    rank = jnp.int32(0)
    for words in reversed(queue):
        word = load(words, rank)
        rank = rank * 32 + lax.population_count((word & -word) - 1).astype(jnp.int32)
    return jnp.where(queue[-1][0] == 0, EMPTY, rank)


def add(queue: Queue, rank: Int32[jax.Array, ""], wanted: jax.Array) -> Queue:
    """Return the queue with a rank added, or unchanged. Adding a rank twice adds it once.

    Args:
      queue: queue as returned by `create`.
      rank: int32 `[]`; rank to add.
      wanted: 1 to add the rank, 0 to leave the queue unchanged.
    """
    levels = []
    for words in queue:
        bit = wanted.astype(jnp.uint32) << (rank & 31).astype(jnp.uint32)
        rank = rank >> 5
        levels.append(store(words, rank, load(words, rank) | bit))
    return tuple(levels)


def remove(queue: Queue, rank: Int32[jax.Array, ""]) -> Queue:
    """Return the queue without a rank.

    Args:
      queue: queue as returned by `create`.
      rank: int32 `[]`; rank to remove, which must be in the queue.
    """
    levels, emptied = [], jnp.bool_(True)
    for words in queue:
        bit = emptied.astype(jnp.uint32) << (rank & 31).astype(jnp.uint32)
        rank = rank >> 5
        words = store(words, rank, load(words, rank) & ~bit)
        emptied = load(words, rank) == 0
        levels.append(words)
    return tuple(levels)
