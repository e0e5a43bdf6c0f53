"""Ops that are ready on each of several devices, smallest (key, index) first.

Heaps of keys are small where few ops are ready. Sets of ranks take a sort of all keys before, and
then compare nothing: they are trees of 64-bit words, in which a bit says that a rank is in the set,
or that a word of the level below is not 0.

Both have `create()`, which returns what the others take first, all uint64; `add(..., key, op)`,
`take(...)`, an op, and `is_some(...)`, whether there is one, for a device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from experiments.throughput.peers.queues import ITEM, entry_of, lowest, pop_entry, push_entry

_BITS, _DIGITS, _WIDTH = 31, 3, 11  # of keys that are not negative
_NONE, _ONE, _SIX, _LOW = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)


class Ready(NamedTuple):
    """Functions of one kind."""

    create: Callable[..., Any]
    add: Callable[..., None]
    take: Callable[..., Any]
    is_some: Callable[..., Any]


@njit
def create_sorter(count: int) -> Any:
    """Returns what `rank_by_key` works on for so many keys: tallies and entries."""
    return np.empty((_DIGITS, 1 << _WIDTH), np.int32), np.empty((2, count), np.uint64)


@njit
def rank_by_key(bits: Any, tallies: Any, entries: Any, by_rank: Any, rank: Any) -> None:
    """Sorts the first `N` keys by (key, index), by a radix sort of their bits.

    Args:
      bits: int32, the keys; negative ones are those of -0.0, which equals 0.0.
      tallies: see `create_sorter`.
      entries: see `create_sorter`.
      by_rank: uint32 `[N]`, becomes the indices in order.
      rank: int32 `[N]`, becomes the place of each index.
    """
    count, mask = rank.size, np.uint64((1 << _WIDTH) - 1)
    tallies[:] = 0
    for index in range(count):
        entry = entry_of(bits[index], index)
        entries[0, index] = entry
        for level in range(_DIGITS):
            tallies[level, entry >> np.uint64(32 + level * _WIDTH) & mask] += 1
    for level in range(_DIGITS):
        total = np.int32(0)
        for digit in range(1 << min(_WIDTH, _BITS - level * _WIDTH)):
            tally = tallies[level, digit]
            tallies[level, digit] = total
            total += tally
    for level in range(_DIGITS):
        for k in range(count):
            entry = entries[level & 1, k]
            digit = entry >> np.uint64(32 + level * _WIDTH) & mask
            place = np.uint32(tallies[level, digit])
            tallies[level, digit] += 1
            entries[1 - (level & 1), place] = entry
    for k in range(count):
        item = np.uint32(entries[_DIGITS & 1, k])
        by_rank[k] = item
        rank[item] = k


def heaps_of_keys(num_ops: int, num_devices: int) -> Ready:
    """Returns the functions for heaps: keys are int32 bits."""
    rows = np.uint64(num_ops)
