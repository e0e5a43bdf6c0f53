"""Rank items by their keys: a radix sort of the exact bits."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float32, Int32

from gopt.cost.schedule.engine.cells import load, store

_SHIFTS, _WIDTH = (0, 10, 20), 11  # a non-negative float32 has 31 bits
_BUCKETS = 1 << _WIDTH
_LANES = 4  # one per digit, padded to four, so that all buckets are summed as one vector


def key_bits(key: jax.Array) -> jax.Array:
    """Return int32 in the same order as non-negative keys; -0.0 equals 0.0.

    Integers compare exactly everywhere; some machines compare subnormal floats as zero.
    """
    return jnp.maximum(lax.bitcast_convert_type(jnp.asarray(key, jnp.float32), jnp.int32), 0)


def rank_by_key(
    key: Float32[jax.Array, " I"], items: Int32[jax.Array, " I"], count: Int32[jax.Array, ""]
) -> tuple[jax.Array, jax.Array]:
    """Return the first `count` of `items` sorted by (key, position), and the rank of each item.

    A radix sort in three passes: unlike a bucket sort it does not slow down for keys that are
    close together. On CPUs, loops over scalars beat XLA's comparison sort.

    Args:
      key: float32 `[I]`, not negative.
      items: int32 `[I]`; indices into `key`.
      count: int32 `[]`; number of items to sort.
    """

    def bucket(item: jax.Array, lane: int) -> jax.Array:
        shift, width = _SHIFTS[lane], _WIDTH if lane == 2 else _WIDTH - 1
        digit = (key_bits(load(key, item)) >> shift) & ((1 << width) - 1)
        return digit * _LANES + lane

    def tally(state: Any) -> Any:
        k, tallies = state
        item = load(items, k)
        for lane in range(len(_SHIFTS)):
            at = bucket(item, lane)
            tallies = store(tallies, at, load(tallies, at) + 1)
        return k + 1, tallies

    def accumulate(state: Any) -> Any:
        k, total, ends = state
        total = total + lax.dynamic_slice(ends, (k,), (_LANES,))
        return k + _LANES, total, lax.dynamic_update_slice(ends, total, (k,))

    def place(lane: int, state: Any) -> Any:
        k, ends, items, placed, rank = state  # last to first, so that the sort is stable
        item = load(items, k)
        at = bucket(item, lane)
        ends = store(ends, at, load(ends, at) - 1)
        to = load(ends, at)
        if rank is not None:
            rank = store(rank, item, to)
        return k - 1, ends, items, store(placed, to, item), rank

    def sort(lane: int, ends: jax.Array, items: jax.Array, rank: Any) -> Any:
        state = count - 1, ends, items, jnp.zeros_like(items), rank
        _, ends, _, placed, rank = lax.while_loop(lambda s: s[0] >= 0, partial(place, lane), state)
        return ends, placed, rank

    tallies = jnp.zeros(_BUCKETS * _LANES, jnp.int32)
    _, tallies = lax.while_loop(lambda s: s[0] < count, tally, (jnp.int32(0), tallies))
    state = jnp.uint32(0), jnp.zeros(_LANES, jnp.int32), tallies
    _, _, ends = lax.while_loop(lambda s: s[0] < tallies.size, accumulate, state)
    ends, items, _ = sort(0, ends, items, None)
    ends, items, _ = sort(1, ends, items, None)
    _, items, rank = sort(2, ends, items, jnp.zeros_like(items))
    return items, rank
