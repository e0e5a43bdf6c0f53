"""A priority queue of ready items: a bitset over their ranks, in levels of 32-bit words.

A bit of one level says whether a word of the level below is not zero, so that the smallest rank
is found in log₃₂ steps. Functions take one queue; nothing here is batched.
"""

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.schedule.engine.cells import load, store

Queue = tuple[jax.Array, ...]  # levels of words, finest first; the last is one word

EMPTY = 2**30  # the first rank of an empty queue, and no rank at all


def create(size: int, ready: jax.Array) -> Queue:
    """Returns a queue for ranks below `size` that holds those of `ready` that are not `EMPTY`."""
    bits = jnp.zeros(size, jnp.uint32).at[ready].set(1, mode="drop", wrap_negative_indices=False)
    levels: list[jax.Array] = []
    while not levels or levels[-1].size > 1:
        bits = jnp.pad(bits, (0, -bits.size % 32)).reshape(-1, 32)
        words = (bits << jnp.arange(32, dtype=jnp.uint32)).sum(1, dtype=jnp.uint32)
        levels.append(words)
        bits = (words != 0).astype(jnp.uint32)
    return tuple(levels)


def first(queue: Queue) -> jax.Array:
    """Returns the smallest rank in the queue, or `EMPTY`."""
    rank = jnp.int32(0)
    for words in reversed(queue):
        word = load(words, rank)
        rank = rank * 32 + lax.population_count((word & -word) - 1).astype(jnp.int32)
    return jnp.where(queue[-1][0] == 0, EMPTY, rank)


def add(queue: Queue, rank: jax.Array, wanted: jax.Array) -> Queue:
    """Returns the queue with `rank` in it if `wanted` is 1, not 0; adding it twice adds it once."""
    levels = []
    for words in queue:
        bit = wanted.astype(jnp.uint32) << (rank & 31).astype(jnp.uint32)
        rank = rank >> 5
        levels.append(store(words, rank, load(words, rank) | bit))
    return tuple(levels)


def remove(queue: Queue, rank: jax.Array) -> Queue:
    """Returns the queue without `rank`, which must be in it."""
    levels, emptied = [], jnp.bool_(True)
    for words in queue:
        bit = emptied.astype(jnp.uint32) << (rank & 31).astype(jnp.uint32)
        rank = rank >> 5
        words = store(words, rank, load(words, rank) & ~bit)
        emptied = load(words, rank) == 0
        levels.append(words)
    return tuple(levels)
