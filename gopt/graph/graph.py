"""Computation graphs as arrays: build and check.

A graph has ops, the tensors they produce, and the uses of tensors by ops. Arrays are NumPy, on
the host. Byte and flop counts are float64 whole numbers, exact below 2**53: JAX has no 64-bit
integers by default, and int32 would overflow.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gopt.graph.kinds import INPUT, KINDS, UNKNOWN, kind_index

MAX_RANK = 6  # columns of `Graph.shape`; a tensor of higher rank has its leading dimensions merged
DTYPES: tuple[str, ...] = (
    *("unknown", "float32", "bfloat16", "float16", "float64", "bool", "int32", "uint32"),
    *("int8", "uint8", "int16", "uint16", "int64", "uint64", "complex64", "float8"),
)


class Graph(NamedTuple):
    """A computation graph, padded or not. `N` ops, `T` tensors, `E` uses.

    Rows form a compressed sparse row layout: ops are in topological order, tensors are sorted by
    producer, and uses by (tensor, consumer), each pair once. Padding rows come last and point at
    the last padding row of the array they index.

    Attributes:
      kind: int32 `[N]`; index into `gopt.graph.kinds.KINDS`.
      flops: float64 `[N]`; floating-point operations.
      bytes: float64 `[N]`; bytes read and written.
      workspace: float64 `[N]`; bytes held only while the op runs.
      producer: int32 `[T]`; op that makes the tensor.
      size: float64 `[T]`; bytes.
      shape: int32 `[T, RANK]`; dimensions, leading ones merged above `MAX_RANK`, then -1.
      rank: int32 `[T]`; number of dimensions.
      dtype: int32 `[T]`; index into `DTYPES`.
      pinned: bool `[T]`; true for tensors that are never freed (outputs, non-donated arguments).
      tensor: int32 `[E]`; tensor that is read.
      consumer: int32 `[E]`; op that reads it.
      num_ops: int32 `[]`; ops without padding.
      num_tensors: int32 `[]`; tensors without padding.
      num_uses: int32 `[]`; uses without padding.
    """

    kind: Any
    flops: Any
    bytes: Any
    workspace: Any
    producer: Any
    size: Any
    shape: Any
    rank: Any
    dtype: Any
    pinned: Any
    tensor: Any
    consumer: Any
    num_ops: Any
    num_tensors: Any
    num_uses: Any


class Shape(NamedTuple):
    """Numbers of rows of a graph, padding included.

    Attributes:
      ops: rows of ops, `N`.
      tensors: rows of tensors, `T`.
      uses: rows of uses, `E`.
    """

    ops: int
    tensors: int
    uses: int


@dataclass(frozen=True)
class Output:
    """One output tensor of an `Op`.

    Attributes:
      size: bytes.
      shape: dimensions.
      dtype: name in `DTYPES`; any other name counts as "unknown".
      pinned: true if the tensor is never freed.
    """

    size: float
    shape: tuple[int, ...] = ()
    dtype: str = "unknown"
    pinned: bool = False


@dataclass(frozen=True)
class Op:
    """One op in a list of ops. An op of kind "input" runs nowhere and takes no time.

    Attributes:
      kind: name in `gopt.graph.kinds.KINDS`; any other name counts as "unknown".
      inputs: (index of the producing op, index of its output) pairs.
      outputs: output tensors.
      flops: floating-point operations.
      bytes: bytes read and written; `None` means the sizes of all distinct inputs and all outputs.
      workspace: bytes held only while the op runs.
    """

    kind: str = "unknown"
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[Output, ...] = ()
    flops: float = 0.0
    bytes: float | None = None
    workspace: float = 0.0


def from_arrays(
    producer: Any,
    size: Any,
    tensor: Any,
    consumer: Any,
    *,
    num_ops: int,
    kind: Any = UNKNOWN,
    flops: Any = 0.0,
    bytes: Any = 0.0,
    workspace: Any = 0.0,
    shape: Any = -1,
    rank: Any = 0,
    dtype: Any = 0,
    pinned: Any = False,
) -> Graph:
    """Return the graph with these arrays. A scalar is repeated for all rows.

    Args:
      producer: int `[T]`; producing ops, ascending.
      size: bytes of tensors, `[T]`, whole numbers.
      tensor: int `[E]`; tensors that are read. Uses may come in any order.
      consumer: int `[E]`; ops that read them.
      num_ops: number of ops `N`, numbered in topological order.
      kind: int `[N]`; indices into `gopt.graph.kinds.KINDS`.
      flops: floating-point operations of ops, `[N]`.
      bytes: bytes read and written by ops, `[N]`.
      workspace: bytes held only while ops run, `[N]`, whole numbers.
      shape: int `[T, RANK]`; dimensions of tensors, then -1.
      rank: int `[T]`; numbers of dimensions.
      dtype: int `[T]`; indices into `DTYPES`.
      pinned: bool `[T]`; true for tensors that are never freed.

    Raises:
      ValueError: a row is invalid. The message names the field and the index (see `check`).
    """
    if not num_ops >= 1:
        raise ValueError(f"num_ops is {num_ops}: a graph needs at least one op")
    tensor = _array("tensor", tensor, np.int64).ravel()
    consumer = _array("consumer", consumer, np.int64).ravel()
    if tensor.shape != consumer.shape:
        raise ValueError(
            f"tensor has {tensor.size} rows and consumer {consumer.size}: expected one for each use"
        )
    order = np.lexsort((consumer, tensor))
    producer = _array("producer", producer, np.int64).ravel()

    def rows(field: str, value: Any, count: int, dtype: Any, *tail: int) -> np.ndarray:
        value = _array(field, value, dtype)
        if value.ndim > 0 and value.shape != (count, *tail):
            raise ValueError(f"{field} has shape {value.shape}: expected {(count, *tail)}")
        return np.array(np.broadcast_to(value, (count, *tail)))

    graph = Graph(
        kind=rows("kind", kind, num_ops, np.int32),
        flops=rows("flops", flops, num_ops, np.float64),
        bytes=rows("bytes", bytes, num_ops, np.float64),
        workspace=rows("workspace", workspace, num_ops, np.float64),
        producer=producer.astype(np.int32),
        size=rows("size", size, producer.size, np.float64),
        shape=rows("shape", shape, producer.size, np.int32, MAX_RANK),
        rank=rows("rank", rank, producer.size, np.int32),
        dtype=rows("dtype", dtype, producer.size, np.int32),
        pinned=rows("pinned", pinned, producer.size, bool),
        tensor=tensor[order].astype(np.int32),
        consumer=consumer[order].astype(np.int32),
        num_ops=np.int32(num_ops),
        num_tensors=np.int32(producer.size),
        num_uses=np.int32(tensor.size),
    )
    check(graph)
    return graph


def _array(field: str, value: Any, dtype: Any) -> np.ndarray:
    try:
        return np.asarray(value, dtype)
    except OverflowError as error:
        raise ValueError(f"{field} has a number that is too large: {error}") from error


def topological_order(ops: Sequence[Op]) -> list[int]:
    """Return the indices of `ops` in topological order; of all ready ops the lowest index is next.

    Raises:
      ValueError: an input names a missing op or output, or the ops form a cycle.
    """
    waits = [0] * len(ops)
    readers: list[list[int]] = [[] for _ in ops]
    for i, op in enumerate(ops):
        for j, k in op.inputs:
            if not 0 <= j < len(ops):
                raise ValueError(f"ops[{i}].inputs: there is no op {j}, there are {len(ops)}")
            if not 0 <= k < len(ops[j].outputs):
                raise ValueError(
                    f"ops[{i}].inputs: op {j} has no output {k}, it has {len(ops[j].outputs)}"
                )
            waits[i] += 1
            readers[j].append(i)
    ready = [i for i, count in enumerate(waits) if count == 0]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for r in readers[i]:
            waits[r] -= 1
            if waits[r] == 0:
                heapq.heappush(ready, r)
    if len(order) < len(ops):
        stuck = next(i for i, count in enumerate(waits) if count > 0)
        raise ValueError(f"ops[{stuck}] is on a cycle, or reads from one: a graph must be acyclic")
    return order


def from_ops(ops: Sequence[Op]) -> Graph:
    """Return the graph of a list of ops, renumbered by `topological_order`.

    An op that reads a tensor twice has one use of it.

    Raises:
      ValueError: the list is empty, or an op is invalid. The message names it.
    """
    if not ops:
        raise ValueError("ops is empty: a graph needs at least one op")
    order = topological_order(ops)
    number = {old: new for new, old in enumerate(order)}
    ordered = [ops[i] for i in order]
    outputs = [output for op in ordered for output in op.outputs]
    first = np.cumsum([0] + [len(op.outputs) for op in ordered])
    uses = sorted(
        {(int(first[number[j]]) + k, i) for i, op in enumerate(ordered) for j, k in op.inputs}
    )
    read = np.zeros(len(ordered))
    for t, i in uses:
        read[i] += outputs[t].size
    written = [sum(output.size for output in op.outputs) for op in ordered]
    return from_arrays(
        producer=np.repeat(np.arange(len(ordered)), np.diff(first)),
        size=[output.size for output in outputs],
        tensor=[t for t, _ in uses],
        consumer=[i for _, i in uses],
        num_ops=len(ordered),
        kind=[kind_index(op.kind) for op in ordered],
        flops=[op.flops for op in ordered],
        bytes=[
            r + w if op.bytes is None else op.bytes
            for op, r, w in zip(ordered, read, written, strict=True)
        ],
        workspace=[op.workspace for op in ordered],
        shape=np.array([_columns(output.shape) for output in outputs], np.int32).reshape(
            -1, MAX_RANK
        ),
        rank=[len(output.shape) for output in outputs],
        dtype=[DTYPES.index(o.dtype) if o.dtype in DTYPES else 0 for o in outputs],
        pinned=[output.pinned for output in outputs],
    )


def _columns(shape: tuple[int, ...]) -> list[int]:
    if len(shape) > MAX_RANK:
        shape = (
            math.prod(shape[: len(shape) - MAX_RANK + 1]),
            *shape[len(shape) - MAX_RANK + 1 :],
        )
    return [min(int(d), 2**31 - 1) for d in shape] + [-1] * (MAX_RANK - len(shape))


def is_input(graph: Graph) -> Any:
    """Return a mask of the input ops, which run nowhere and take no time. bool `[N]`."""
    return graph.kind == INPUT


def check(graph: Graph) -> None:
    """Raise `ValueError` at the first invalid row, naming its field and index."""
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    if n < 1:
        raise ValueError(f"num_ops is {n}: a graph needs at least one op")
    for field, real in (("num_tensors", t), ("num_uses", e)):
        if real < 0:
            raise ValueError(f"{field} is {real}: expected a number that is not negative")
    axes = dict.fromkeys(Graph._fields[:4], ("kind", n))
    axes |= dict.fromkeys(Graph._fields[4:10], ("producer", t))
    axes |= dict.fromkeys(("tensor", "consumer"), ("tensor", e))
    for field, (first, real) in axes.items():
        have, rows = np.shape(getattr(graph, field)), np.size(getattr(graph, first))
        if have != ((rows, MAX_RANK) if field == "shape" else (rows,)) or rows < real:
            raise ValueError(
                f"{field} has shape {have}: expected {real} rows or more, as many as {first}"
            )

    def require(good: np.ndarray, field: str, what: str) -> None:
        if not good.all():
            index = int(np.argmin(good))
            value = getattr(graph, field)[index]
            raise ValueError(f"{field}[{index}] is {value}: expected {what}")

    def between(field: str, limit: int, what: str) -> np.ndarray:
        values = np.asarray(getattr(graph, field))
        require((values >= 0) & (values < limit), field, f"{what} in 0..{limit - 1}")
        return values

    def points(field: str, real: int, first: str, limit: int, what: str) -> np.ndarray:
        """Check indices: padding rows point at the last row of the array that they index."""
        values, last = np.asarray(getattr(graph, field)), np.size(getattr(graph, first)) - 1
        inside = (values >= 0) & (values < limit)
        require(inside | (np.arange(len(values)) >= real), field, f"{what} in 0..{limit - 1}")
        require((values == last) | (np.arange(len(values)) < real), field, f"{last}, for padding")
        return values[:real]

    between("kind", len(KINDS), "a kind")
    between("dtype", len(DTYPES), "a dtype")
    producer = points("producer", t, "kind", n, "an op")
    tensor = points("tensor", e, "producer", t, "a tensor")
    consumer = points("consumer", e, "kind", n, "an op")
    for field in ("size", "flops", "bytes", "workspace"):
        values = np.asarray(getattr(graph, field))
        require(np.isfinite(values) & (values >= 0), field, "a finite number, not negative")
    for field in ("workspace", "size"):
        values = np.asarray(getattr(graph, field))
        require(values == np.floor(values), field, "whole bytes")
    shape, rank = np.asarray(graph.shape), np.asarray(graph.rank)
    require(rank >= 0, "rank", "a number of dimensions, not negative")
    used = np.arange(MAX_RANK) < rank[:, None]
    require(((shape >= 0) == used).all(1) & (shape >= -1).all(1), "shape", "dimensions, then -1")
    if t > 1:
        ordered = np.concatenate([[True], producer[1:] >= producer[:-1]])
        require(ordered, "producer", "tensors sorted by producer")
    if e > 0:
        require(
            producer[tensor] < consumer,
            "consumer",
            "an op after the producer of the tensor that it reads (topological order, no cycles)",
        )
        require(np.asarray(graph.kind)[consumer] != INPUT, "consumer", "an op that is no input")
    if e > 1:
        step = (tensor[1:] - tensor[:-1]).astype(np.int64) * n + (consumer[1:] - consumer[:-1])
        require(np.concatenate([[True], step != 0]), "consumer", "each (tensor, consumer) once")
        require(np.concatenate([[True], step > 0]), "tensor", "uses sorted by (tensor, consumer)")


def shape_of(graph: Graph) -> Shape:
    """Return the numbers of rows of a graph or stacked batch, padding included."""
    return Shape(graph.kind.shape[-1], graph.producer.shape[-1], graph.tensor.shape[-1])
