"""Memory traffic of ops before fusion, with broadcasts taken over by their consumers."""

from typing import NamedTuple

import numpy as np

from gopt.cost.fusion.kernel_reach import MAX_REPETITIONS
from gopt.graph.graph import Graph
from gopt.graph.kinds import kind_index
from gopt.program.primitives import ROLES


class Uses(NamedTuple):
    """Uses of tensors.

    Attributes:
      tensor: `[E]`; tensor that is read.
      consumer: `[E]`; op that reads it.
      read: `[E]`; bytes read.
      repetitions: `[E]`; number of times the consumer uses each element.
    """

    tensor: np.ndarray
    consumer: np.ndarray
    read: np.ndarray = np.zeros(0)
    repetitions: np.ndarray = np.zeros(0, np.int64)


class Traffic(NamedTuple):
    """Memory traffic, in bytes.

    Attributes:
      read: bytes of each use.
      written: bytes of each op.
    """

    read: np.ndarray
    written: np.ndarray


def count_traffic(
    graph: Graph, uses: Uses, n: int, size: np.ndarray, producer: np.ndarray
) -> Traffic:
    """Return the bytes that uses read and that ops write.

    If an op moves fewer bytes than its operands and results have, the difference is subtracted from
    its largest operand, and then from its results. Additional bytes count as written.

    Args:
      graph: graph of n real ops; its `bytes` are what ops move.
      uses: tensor and consumer of each use.
      n: number of real ops.
      size: float64 `[T]`; bytes of each tensor.
      producer: `[T]`; op that makes each tensor.
    """
    read = size[uses.tensor]
    written = np.bincount(producer, size, minlength=n)
    total = np.bincount(uses.consumer, read, minlength=n) + written
    spare = total - np.asarray(graph.bytes)[:n]
    by_size = np.lexsort((read, uses.consumer))
    largest = by_size[np.diff(uses.consumer[by_size], append=n) > 0]  # last row of each op
    op = uses.consumer[largest]
    less = np.clip(spare[op], 0, read[largest])
    read[largest] -= less
    spare[op] -= less
    return Traffic(read, np.maximum(written - spare, 0))


def count_elements(graph: Graph, t: int) -> np.ndarray:
    """Return the elements of each tensor, float64 `[T]`; its bytes if the shape is unknown."""
    shape, rank = np.asarray(graph.shape)[:t], np.asarray(graph.rank)[:t]
    known = np.where(shape < 0, 1, shape).astype(np.float64).prod(1)
    return np.where((rank > 0) | (shape >= 0).any(1), known, np.asarray(graph.size)[:t])


_REPEATING = ("broadcast_in_dim", "gather", "tile")


def count_repetitions(
    kind: np.ndarray, role: np.ndarray, uses: Uses, made: np.ndarray, elements: np.ndarray
) -> np.ndarray:
    """Return how often each use reads an element on average, 1 to `MAX_REPETITIONS`. int64 `[E]`.

    Element-wise ops repeat operands along axes of length 1.
    """
    repeating = np.isin(kind, [kind_index(name) for name in _REPEATING])
    repeating |= role == ROLES.index("element-wise")
    repetitions = np.rint(made[uses.consumer] / np.maximum(elements[uses.tensor], 1))
    return np.where(repeating[uses.consumer], np.clip(repetitions, 1, MAX_REPETITIONS), 1).astype(
        np.int64
    )


def take_over_broadcasts(
    kind: np.ndarray,
    role: np.ndarray,
    fuses_into: np.ndarray,
    producer: np.ndarray,
    uses: Uses,
    pinned: np.ndarray,
    n: int,
) -> tuple[Uses, np.ndarray]:
    """Return the uses after consumers take over broadcasts, and a mask of the ops removed.

    A consumer takes a broadcast over if a kernel that ends with it may contain a broadcast. A
    broadcast without other consumers is removed, unless it is pinned.
    """
    gone = np.zeros(n, bool)
    source = {}  # broadcast tensor -> use of its operand
    op_of = uses.consumer.tolist()
    broadcast = kind == kind_index("broadcast_in_dim")
    broadcast &= np.bincount(producer, minlength=n) == 1
    made = {int(i): t for t, i in enumerate(producer)}
    for index, op in enumerate(op_of):
        if broadcast[op]:
            source[made[op]] = index
    allowed = (fuses_into[producer[uses.tensor]] >> role[uses.consumer]) & 1
    tensor, repetitions, read = uses.tensor.copy(), uses.repetitions.copy(), uses.read.copy()
    # In graph order, so that a broadcast of a broadcast reads the first operand.
    for index in range(len(op_of)):
        if allowed[index] and int(uses.tensor[index]) in source:
            behind = source[int(uses.tensor[index])]
            tensor[index] = tensor[behind]
            repetitions[index] = min(repetitions[index] * repetitions[behind], MAX_REPETITIONS)
            read[index] = read[behind]
    left = np.bincount(tensor, minlength=len(pinned))
    for t in sorted(source, reverse=True):
        op = producer[t]
        if not pinned[t] and not left[t]:
            gone[op] = True
            left[tensor[source[t]]] -= 1
    kept = ~gone[uses.consumer]
    # An op may now have two uses of a tensor: merge them, with the larger bytes and repetitions.
    found: dict[tuple[int, int], int] = {}
    for index in np.flatnonzero(kept).tolist():
        first = found.setdefault((int(tensor[index]), op_of[index]), index)
        repetitions[first], read[first] = (
            max(repetitions[first], repetitions[index]),
            max(read[first], read[index]),
        )
    rows = np.fromiter(found.values(), np.int64, len(found))
    return Uses(tensor[rows], uses.consumer[rows], read[rows], repetitions[rows]), gone
