"""A graph whose ops may be fused, quantised to int32: what the cost of a fusion reads.

As in `gopt.cost.schedule.problem`, the host computes in float64, once: times become whole ticks, so
that every path to a cost agrees bit for bit.

What is the same in every configuration is settled here. Broadcasts are never worth a kernel of
their own: an op that may be fused with a broadcast reads what is broadcast, and makes the rest
itself. An op that reads a part of a tensor pays for the part.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from gopt.cost.fusion.reachable import MAX_TIMES, Ops, Reach, pad_reach, reach
from gopt.cost.fusion.rules import RULES, Rules, into_of_kinds, roles_of_kinds, work_of_kinds
from gopt.cost.hardware import Hardware, check_hardware
from gopt.graph import graph as graphs
from gopt.graph.graph import Graph
from gopt.graph.kinds import kind_index
from gopt.program.primitives import ROLES

UNFUSED_TICKS = 2**26  # all ops one by one take no more
OVERLAP_BITS = 10


class FusionProblem(NamedTuple):
    """What the cost of a fusion, searches and features read.

    `N` ops, `E` uses, `A` accesses, `V` visits, padded. The cost reads `compute`, `memory`,
    `is_kernel`, `configurable`, `launch`, `overlap`, `clones` and `reach`, which was settled from
    all the others: to replace one of these changes nothing there.
    """

    compute: Any  # int32 [N], ticks of all its flops, once
    memory: Any  # int32 [N], ticks of what a kernel that ends with the op writes
    role: Any  # int32 [N], as a bit
    into: Any  # int32 [N], roles that a kernel may end with to have the op in it, and `REPEATABLE`
    is_kernel: Any  # bool [N], it runs: no input, no padding, nor a broadcast that others make
    configurable: Any  # bool [N], it may be fused into its readers
    consumer: Any  # int32 [E], the op that reads
    times: Any  # int32 [E], how often it uses each element
    first_use: Any  # int32 [N + 1], uses of what op i makes: first_use[i] .. first_use[i + 1]
    access: Any  # int32 [A], ops that make or read tensors: of each the maker, then who reads most
    tensor: Any  # int32 [A], a number of the tensor, rising
    read: Any  # int32 [A], ticks to read it; 0 for the maker
    choices: Any  # int32 [N], configurable ops from the last to the first; then N - 1
    num_choices: Any  # int32 []
    num_ops: Any  # int32 []
    num_accesses: Any  # int32 []
    reach: Reach  # what kernels may have in them, and read
    limit: Any  # int32 [], how many ops may be in a kernel
    clones: Any  # bool [], an op may be in several kernels
    takes_moves: (
        Any  # int32 [], roles that a kernel may end with to have a broadcast in it, as bits
    )
    launch: Any  # int32 [], ticks of a kernel
    overlap: Any  # int32 [], in units of 2⁻¹⁰
    tick: Any  # float64 [], s


def prepare_fusion(
    graph: Graph,
    hardware: Hardware,
    *,
    rules: Rules = RULES["cpu"],
    compute: Any = None,
    fusible: Any = None,
    rows: tuple[int, int, int] | None = None,
    tick: float | None = None,
) -> FusionProblem:
    """Returns the int32 problem of fusing the ops of one graph on a machine.

    Args:
      graph: padded or not.
      hardware: the machine, of which the first device counts.
      rules: what may be fused.
      compute: seconds that each op computes, `[N]`, without what it moves and without a launch; by
        default its flops, weighed by kind, by the rate of the machine. `N` counts real ops.
      fusible: ops that rules alone decide on, bool `[N]`, `N` as above; others are not fused into
        their readers. By default all.
      rows: of ops, accesses and visits, with padding; by default those of `fusion_bucket`.
      tick: of times, in s; by default the shortest power of two in which all ops one by one fit.

    Raises:
      ValueError: the machine or the graph is not valid, a time is negative or not finite, there is
        not one time or bit for each op, the rows do not suffice, or the tick is too short.
    """
    check_hardware(hardware)
    graphs.check(graph)
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    kind, producer = np.asarray(graph.kind)[:n], np.asarray(graph.producer)[:t].astype(np.int64)
    size = np.asarray(graph.size)[:t].astype(np.float64)
    elements = _elements(graph, t)
    role = roles_of_kinds()[kind]
    into = into_of_kinds(rules)[kind]
    uses = _Uses(
        np.asarray(graph.tensor)[:e].astype(np.int64),
        np.asarray(graph.consumer)[:e].astype(np.int64),
    )
    flows = _traffic(graph, uses, n, size, producer)
    made = np.bincount(producer, elements, minlength=n)
    uses = _Uses(uses.tensor, uses.consumer, flows.read, _repeats(kind, role, uses, made, elements))
    pinned = np.asarray(graph.pinned)[:t]
    uses, gone = _without_broadcasts(kind, role, into, producer, uses, pinned, n)

    readers = np.bincount(uses.tensor, minlength=t)
    outputs = np.bincount(producer, minlength=n)
    kept = (readers > 0) | pinned
    is_kernel = ~np.asarray(graphs.is_input(graph))[:n] & ~gone
    single = np.zeros(n, bool)
    single[producer] = (readers > 0) & ~pinned
    configurable = is_kernel & (outputs == 1) & single & (into > 0)
    if fusible is not None:
        if np.shape(fusible) != (n,):
            raise ValueError(f"fusible has shape {np.shape(fusible)}: expected ({n},)")
        configurable &= np.asarray(fusible, bool)

    rate, bandwidth = float(hardware.flop_rate[0]), float(hardware.memory_bandwidth[0])
    seconds = _seconds(compute, np.asarray(graph.flops)[:n] * work_of_kinds()[kind] / rate, n)
    unread = np.bincount(producer[~kept], size[~kept], minlength=n)
    moved = np.maximum(flows.written - unread, 0) / bandwidth
    tick = _tick(
        np.where(is_kernel, seconds + moved + hardware.launch[0], 0).sum()
        + (uses.read / bandwidth).sum(),
        tick,
    )

    def ticks(seconds: Any) -> np.ndarray:
        return np.rint(np.asarray(seconds) / tick).astype(np.int64)

    read = ticks(uses.read / bandwidth)
    order = np.lexsort((uses.consumer, -read, uses.tensor))
    uses, read = _Uses(*(column[order] for column in uses)), read[order]
    made, first = np.unique(uses.tensor, return_index=True)

    def with_makers(readers: np.ndarray, makers: Any) -> np.ndarray:
        return np.insert(readers, first, makers)

    computed, role = np.where(is_kernel, ticks(seconds), 0), 1 << role
    into = np.where(configurable, into, 0)
    found = reach(
        Ops(
            *(computed, role, into, is_kernel, configurable),
            *(uses.tensor, producer[uses.tensor], uses.consumer, uses.times, read),
        ),
        limit=rules.limit,
        clones=rules.clones,
    )
    counts = n, len(uses.tensor) + len(made), len(found.kernel)
    rows = fusion_bucket(*counts) if rows is None else rows
    for axis, have, padded in zip(("ops", "accesses", "visits"), counts, rows, strict=True):
        if padded <= have:
            raise ValueError(f"rows has {padded} {axis}: expected more than the graph's {have}")

    def pad(values: Any, count: int, fill: Any, dtype: Any = np.int32) -> np.ndarray:
        result = np.full(count, fill, dtype)
        result[: len(values)] = values
        return result

    access, tensor = with_makers(uses.consumer, producer[made]), with_makers(uses.tensor, made)
    # Who uses each element most often comes first.
    uses = _Uses(
        *(column[np.lexsort((uses.consumer, -uses.times, uses.tensor))] for column in uses)
    )
    first_use = np.searchsorted(producer[uses.tensor], np.arange(n + 1))
    choices = np.flatnonzero(configurable)[::-1]
    ops, count, visits = rows
    return FusionProblem(
        compute=pad(computed, ops, 0),
        memory=pad(np.where(is_kernel, ticks(moved), 0), ops, 0),
        role=pad(role, ops, 1),
        into=pad(into, ops, 0),
        is_kernel=pad(is_kernel, ops, False, bool),
        configurable=pad(configurable, ops, False, bool),
        consumer=pad(uses.consumer, count, ops - 1),
        times=pad(uses.times, count, 1),
        first_use=pad(first_use, ops + 1, len(uses.tensor)),
        access=pad(access, count, ops - 1),
        tensor=pad(tensor, count, t),
        read=pad(with_makers(read, 0), count, 0),
        choices=pad(choices, ops, ops - 1),
        num_choices=np.int32(len(choices)),
        num_ops=np.int32(n),
        num_accesses=np.int32(counts[1]),
        reach=pad_reach(found, ops, visits),
        limit=np.int32(min(rules.limit, ops)),
        clones=np.bool_(rules.clones),
        takes_moves=rules.masks()[ROLES.index("move")],
        launch=np.int32(ticks(hardware.launch[0])),
        overlap=np.int32(round(float(hardware.overlap) * 2**OVERLAP_BITS)),
        tick=np.float64(tick),
    )


def fusion_bucket(ops: int, accesses: int, visits: int) -> tuple[int, int, int]:
    """Returns rows for so many ops, accesses and visits, so that few programs are compiled."""

    def rows(need: int) -> int:
        size = 16
        while size < need:
            size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
        return size

    return rows(ops + 1), rows(accesses + 1), rows(visits + 1)


class _Uses(NamedTuple):
    tensor: np.ndarray
    consumer: np.ndarray
    read: np.ndarray = np.zeros(0)  # bytes
    times: np.ndarray = np.zeros(0, np.int64)


class _Traffic(NamedTuple):
    read: np.ndarray  # bytes of each use
    written: np.ndarray  # bytes of each op


def _traffic(graph: Graph, uses: _Uses, n: int, size: np.ndarray, producer: np.ndarray) -> _Traffic:
    """Returns what ops read of tensors and what they write.

    An op that moves less than all its operands and results reads a part of its largest operand, and
    if that does not explain it, it writes a part, too. What it moves beyond them it writes.
    """
    read = size[uses.tensor]
    written = np.bincount(producer, size, minlength=n)
    total = np.bincount(uses.consumer, read, minlength=n) + written
    spare = total - np.asarray(graph.bytes)[:n]
    by_size = np.lexsort((read, uses.consumer))
    largest = by_size[np.diff(uses.consumer[by_size], append=n) > 0]  # the last of each op
    op = uses.consumer[largest]
    less = np.clip(spare[op], 0, read[largest])
    read[largest] -= less
    spare[op] -= less
    return _Traffic(read, np.maximum(written - spare, 0))


def _elements(graph: Graph, t: int) -> np.ndarray:
    """Returns the elements of each tensor, float64 `[T]`; of unknown shapes the bytes."""
    shape, rank = np.asarray(graph.shape)[:t], np.asarray(graph.rank)[:t]
    known = np.where(shape < 0, 1, shape).astype(np.float64).prod(1)
    return np.where((rank > 0) | (shape >= 0).any(1), known, np.asarray(graph.size)[:t])


_REPEATING = ("broadcast_in_dim", "gather", "tile")


def _repeats(
    kind: np.ndarray, role: np.ndarray, uses: _Uses, made: np.ndarray, elements: np.ndarray
) -> np.ndarray:
    """Returns how often each use reads an element, on average, at least 1. int64 `[E]`.

    Element-wise ops repeat operands along axes of length 1.
    """
    repeating = np.isin(kind, [kind_index(name) for name in _REPEATING])
    repeating |= role == ROLES.index("element-wise")
    times = np.rint(made[uses.consumer] / np.maximum(elements[uses.tensor], 1))
    return np.where(repeating[uses.consumer], np.clip(times, 1, MAX_TIMES), 1).astype(np.int64)


def _without_broadcasts(
    kind: np.ndarray,
    role: np.ndarray,
    into: np.ndarray,
    producer: np.ndarray,
    uses: _Uses,
    pinned: np.ndarray,
    n: int,
) -> tuple[_Uses, np.ndarray]:
    """Returns the uses when readers make what is broadcast themselves, and ops that are gone.

    A reader does so if a kernel that ends with it may have a broadcast in it. What no other reads
    is gone.
    """
    gone = np.zeros(n, bool)
    source = {}  # of a tensor that is broadcast: the use of what it is made of
    op_of = uses.consumer.tolist()
    broadcast = kind == kind_index("broadcast_in_dim")
    broadcast &= np.bincount(producer, minlength=n) == 1
    made = {int(i): t for t, i in enumerate(producer)}
    for index, op in enumerate(op_of):
        if broadcast[op]:
            source[made[op]] = index
    allowed = (into[producer[uses.tensor]] >> role[uses.consumer]) & 1
    tensor, times, read = uses.tensor.copy(), uses.times.copy(), uses.read.copy()
    # Broadcasts of broadcasts: those that come first in the graph are settled first.
    for index in range(len(op_of)):
        if allowed[index] and int(uses.tensor[index]) in source:
            behind = source[int(uses.tensor[index])]
            tensor[index] = tensor[behind]
            times[index] = min(times[index] * times[behind], MAX_TIMES)
            read[index] = read[behind]
    left = np.bincount(tensor, minlength=len(pinned))
    for t in sorted(source, reverse=True):
        op = producer[t]
        if not pinned[t] and not left[t]:
            gone[op] = True
            left[tensor[source[t]]] -= 1
    kept = ~gone[uses.consumer]
    # An op may read a tensor twice now: once is paid for, and the most is computed.
    found: dict[tuple[int, int], int] = {}
    for index in np.flatnonzero(kept).tolist():
        first = found.setdefault((int(tensor[index]), op_of[index]), index)
        times[first], read[first] = max(times[first], times[index]), max(read[first], read[index])
    rows = np.fromiter(found.values(), np.int64, len(found))
    return _Uses(tensor[rows], uses.consumer[rows], read[rows], times[rows]), gone


def _seconds(given: Any, default: np.ndarray, n: int) -> np.ndarray:
    if given is None:
        return default
    values = np.asarray(given, np.float64)
    if values.shape != (n,):
        raise ValueError(f"compute has shape {values.shape}: expected ({n},)")
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        index = int(np.argmin(good))
        raise ValueError(
            f"compute[{index}] is {values[index]}: expected a finite number, not negative"
        )
    return values


def _tick(total: float, given: float | None) -> float:
    """Returns the smallest power of two, in s, by which a total is no more than so many ticks."""
    if not np.isfinite(total):
        raise ValueError("the times of all ops have no finite sum")
    if given is not None:
        if not (given > 0 and total / given <= UNFUSED_TICKS):
            raise ValueError(f"tick is {given} s: expected one in which {total} s fit")
        return float(given)
    return power_of_two(total / UNFUSED_TICKS) if total > 0 else 1.0


def power_of_two(value: float) -> float:
    """Returns the smallest power of two that is not less than a positive number, exactly."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))
