"""Queues of ready items for the compiled decoder, smallest (key, index) first.

`create(items)` returns the storage. One more word is the state of a queue, 0 when it is empty:
`push` and `pop` take it and return the next.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_BUCKETS = 64 * 64  # two levels of 64-bit words, a cache line or two of them in use
_ONE, _SIX, _LOW = np.uint64(1), np.uint64(6), np.uint64(63)
_SHIFT, _ITEM = np.uint64(32), np.uint64(2**32 - 1)
_END = np.uint64(2**64 - 1)


def _trailing_zeros(_: Any, word: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), build


lowest: Any = intrinsic(_trailing_zeros)  # index of the lowest set bit


@njit
def _entry(bits: Any, item: Any) -> Any:
    """Return (key, index) as one number. Negative bits come from -0.0, which equals 0.0."""
    return (np.uint64(max(bits, np.int32(0))) << _SHIFT) | np.uint64(item)


@njit
def _create_heap(items: int) -> Any:
    return np.empty(items, np.uint64)


@njit
def _push_heap(heap: Any, size: Any, bits: Any, item: Any) -> Any:
    entry = _entry(bits, item)
    at = np.int64(size)
    while at > 0:
        parent = (at - 1) >> 1  # type: ignore[operator]
        if heap[parent] <= entry:
            break
        heap[at] = heap[parent]
        at = parent  # type: ignore[assignment]
    heap[at] = entry
    return size + _ONE


@njit
def _pop_heap(heap: Any, size: Any) -> Any:
    first = heap[0]
    last = np.int64(size) - 1
    entry = heap[last]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        if child + 1 < last:  # without an unpredictable branch
            child += int(heap[child + 1] < heap[child])
        if entry <= heap[child]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry
    return np.int64(first & _ITEM), np.uint64(last)


@njit
def _create_buckets(items: int) -> Any:
    """Return words of occupied buckets, the first entry of each, and the entry after each item."""
    return (
        np.zeros(_BUCKETS // 64, np.uint64),
        np.empty(_BUCKETS, np.uint64),
        np.empty(items, np.uint64),
    )


@njit
def _push_buckets(queue: Any, top: Any, bits: Any, item: Any) -> Any:
    """Insert into buckets of equal key intervals; lists stay short unless keys are crowded."""
    words, heads, after = queue
    entry = _entry(bits, item)
    key = np.int32(max(bits, np.int32(0))).view(np.float32)
    bucket = np.uint64(min(np.int32(key * np.float32(_BUCKETS)), np.int32(_BUCKETS - 1)))
    word, bit = bucket >> _SIX, _ONE << (bucket & _LOW)
    if words[word] & bit == 0:
        words[word] |= bit
        heads[bucket] = entry
        after[item] = _END
        return top | (_ONE << word)
    at = heads[bucket]
    if entry < at:
        heads[bucket] = entry
        after[item] = at
        return top
    while after[at & _ITEM] < entry:
        at = after[at & _ITEM]
    after[item] = after[at & _ITEM]
    after[at & _ITEM] = entry
    return top


@njit
def _pop_buckets(queue: Any, top: Any) -> Any:
    words, heads, after = queue
    word = lowest(top)
    bucket = (word << _SIX) + lowest(words[word])
    item = heads[bucket] & _ITEM
    following = after[item]
    if following != _END:
        heads[bucket] = following
    else:
        words[word] &= words[word] - _ONE
        if words[word] == 0:
            top &= top - _ONE
    return np.int64(item), top


FUNCTIONS = {
    "heap": (_create_heap, _push_heap, _pop_heap),
    "buckets": (_create_buckets, _push_buckets, _pop_buckets),
}
