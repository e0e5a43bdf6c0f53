"""A graph with fusible ops, quantised to int32: the input of the fusion cost model.

As in `gopt.cost.schedule.problem`, the host computes in float64, once, and times become whole
ticks, so that all implementations agree bit for bit.

Decisions that hold for every configuration are made here. A broadcast never gets a kernel of its
own if its consumer may contain it: the consumer reads the broadcast operand and repeats it itself.
An op that reads part of a tensor pays for that part.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from gopt.cost.fusion.kernel_reach import (
    KernelReach,
    Ops,
    compute_reach,
    pad_reach,
)
from gopt.cost.fusion.rules import RULES, Rules, kind_fusion_masks, kind_roles, kind_work
from gopt.cost.fusion.traffic import (
    Uses,
    count_elements,
    count_repetitions,
    count_traffic,
    take_over_broadcasts,
)
from gopt.cost.hardware import Hardware, check_hardware
from gopt.graph import graph as graphs
from gopt.graph.graph import Graph
from gopt.program.primitives import ROLES

MAX_UNFUSED_TICKS = 2**26  # at least the ticks of all unfused ops
OVERLAP_BITS = 10


class FusionProblem(NamedTuple):
    """A fusion problem in ticks. `N` ops, `A` accesses, `V` visits, padded.

    `reach` is computed from the other fields. The cost reads only `compute`, `memory`, `is_kernel`,
    `configurable`, `launch`, `overlap`, `allow_duplication` and `reach`: replacing another field
    does not change it.

    Attributes:
      compute: int32 `[N]`; ticks to compute the op once.
      memory: int32 `[N]`; ticks to write the output of a kernel that ends with the op.
      role: int32 `[N]`; bit of the op's role.
      fuses_into: int32 `[N]`; bits of the roles of ends it may be fused into, and `REPEATABLE`.
      is_kernel: bool `[N]`; false for inputs, padding, and broadcasts that their consumers make.
      configurable: bool `[N]`; true if the op may be fused into its consumers.
      consumer: int32 `[A]`; op that reads, per use; uses fill fewer rows than accesses.
      repetitions: int32 `[A]`; number of times the consumer uses each element, per use.
      first_use: int32 `[N + 1]`; uses of the output of op i start at `first_use[i]`.
      access: int32 `[A]`; op that makes or reads a tensor: the producer, then consumers, most ticks
        first.
      tensor: int32 `[A]`; tensor number, rising.
      read: int32 `[A]`; ticks to read the tensor; 0 for the producer.
      choices: int32 `[N]`; configurable ops from the last to the first, then N - 1.
      num_choices: int32 `[]`; number of configurable ops.
      num_ops: int32 `[]`; ops without padding.
      num_accesses: int32 `[]`; accesses without padding.
      reach: ops that kernels may contain, and the tensors these read.
      max_kernel_ops: int32 `[]`; largest number of ops in a kernel.
      allow_duplication: bool `[]`; true if an op may be in several kernels.
      broadcast_ends: int32 `[]`; bits of the roles of ends whose kernels may contain a broadcast.
      launch: int32 `[]`; ticks per kernel.
      overlap: int32 `[]`; hidden share of min(compute, memory), in units of 2⁻¹⁰.
      tick: float64 `[]`; length of a tick, s.
    """

    compute: Any
    memory: Any
    role: Any
    fuses_into: Any
    is_kernel: Any
    configurable: Any
    consumer: Any
    repetitions: Any
    first_use: Any
    access: Any
    tensor: Any
    read: Any
    choices: Any
    num_choices: Any
    num_ops: Any
    num_accesses: Any
    reach: KernelReach
    max_kernel_ops: Any
    allow_duplication: Any
    broadcast_ends: Any
    launch: Any
    overlap: Any
    tick: Any


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
    """Return the int32 problem of fusing the ops of one graph on a machine.

    Args:
      graph: graph, padded or not.
      hardware: machine; only its first device counts.
      rules: fusion rules.
      compute: compute time of each op, s, `[N]`, without memory traffic and launch; by default its
        flops, weighted by kind, over the machine's rate. `N` counts real ops.
      fusible: ops that may be fused into their consumers if rules allow, bool `[N]`, `N` as above;
        by default all.
      rows: padded numbers of ops, accesses and visits; by default `fusion_bucket`.
      tick: length of a tick, s; by default the shortest power of two in which all unfused ops fit.

    Raises:
      ValueError: the machine or the graph is invalid; a time is negative or not finite; `compute`
        or `fusible` does not have one entry per op; the rows do not suffice; or the tick is too
        short.
    """
    check_hardware(hardware)
    graphs.check(graph)
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    kind, producer = np.asarray(graph.kind)[:n], np.asarray(graph.producer)[:t].astype(np.int64)
    size = np.asarray(graph.size)[:t].astype(np.float64)
    elements = count_elements(graph, t)
    role = kind_roles()[kind]
    fuses_into = kind_fusion_masks(rules)[kind]
    uses = Uses(
        np.asarray(graph.tensor)[:e].astype(np.int64),
        np.asarray(graph.consumer)[:e].astype(np.int64),
    )
    flows = count_traffic(graph, uses, n, size, producer)
    made = np.bincount(producer, elements, minlength=n)
    uses = Uses(
        uses.tensor, uses.consumer, flows.read, count_repetitions(kind, role, uses, made, elements)
    )
    pinned = np.asarray(graph.pinned)[:t]
    uses, gone = take_over_broadcasts(kind, role, fuses_into, producer, uses, pinned, n)

    readers = np.bincount(uses.tensor, minlength=t)
    outputs = np.bincount(producer, minlength=n)
    kept = (readers > 0) | pinned
    is_kernel = ~np.asarray(graphs.is_input(graph))[:n] & ~gone
    single = np.zeros(n, bool)
    single[producer] = (readers > 0) & ~pinned
    configurable = is_kernel & (outputs == 1) & single & (fuses_into > 0)
    if fusible is not None:
        if np.shape(fusible) != (n,):
            raise ValueError(f"fusible has shape {np.shape(fusible)}: expected ({n},)")
        configurable &= np.asarray(fusible, bool)

    rate, bandwidth = float(hardware.flop_rate[0]), float(hardware.memory_bandwidth[0])
    seconds = _seconds(compute, np.asarray(graph.flops)[:n] * kind_work()[kind] / rate, n)
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
    uses, read = Uses(*(column[order] for column in uses)), read[order]
    made, first = np.unique(uses.tensor, return_index=True)

    def with_makers(readers: np.ndarray, makers: Any) -> np.ndarray:
        return np.insert(readers, first, makers)

    computed, role = np.where(is_kernel, ticks(seconds), 0), 1 << role
    fuses_into = np.where(configurable, fuses_into, 0)
    found = compute_reach(
        Ops(
            *(computed, role, fuses_into, is_kernel, configurable),
            *(uses.tensor, producer[uses.tensor], uses.consumer, uses.repetitions, read),
        ),
        max_kernel_ops=rules.max_kernel_ops,
        allow_duplication=rules.allow_duplication,
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
    # Of a tensor's uses, the one that repeats elements most often comes first.
    uses = Uses(
        *(column[np.lexsort((uses.consumer, -uses.repetitions, uses.tensor))] for column in uses)
    )
    first_use = np.searchsorted(producer[uses.tensor], np.arange(n + 1))
    choices = np.flatnonzero(configurable)[::-1]
    ops, count, visits = rows
    return FusionProblem(
        compute=pad(computed, ops, 0),
        memory=pad(np.where(is_kernel, ticks(moved), 0), ops, 0),
        role=pad(role, ops, 1),
        fuses_into=pad(fuses_into, ops, 0),
        is_kernel=pad(is_kernel, ops, False, bool),
        configurable=pad(configurable, ops, False, bool),
        consumer=pad(uses.consumer, count, ops - 1),
        repetitions=pad(uses.repetitions, count, 1),
        first_use=pad(first_use, ops + 1, len(uses.tensor)),
        access=pad(access, count, ops - 1),
        tensor=pad(tensor, count, t),
        read=pad(with_makers(read, 0), count, 0),
        choices=pad(choices, ops, ops - 1),
        num_choices=np.int32(len(choices)),
        num_ops=np.int32(n),
        num_accesses=np.int32(counts[1]),
        reach=pad_reach(found, ops, visits),
        max_kernel_ops=np.int32(min(rules.max_kernel_ops, ops)),
        allow_duplication=np.bool_(rules.allow_duplication),
        broadcast_ends=rules.masks()[ROLES.index("move")],
        launch=np.int32(ticks(hardware.launch[0])),
        overlap=np.int32(round(float(hardware.overlap) * 2**OVERLAP_BITS)),
        tick=np.float64(tick),
    )


def fusion_bucket(ops: int, accesses: int, visits: int) -> tuple[int, int, int]:
    """Return padded numbers of rows, from few values, so that few programs are compiled.

    Args:
      ops: number of ops.
      accesses: number of accesses.
      visits: number of visits.
    """

    def rows(need: int) -> int:
        size = 16
        while size < need:
            size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
        return size

    return rows(ops + 1), rows(accesses + 1), rows(visits + 1)


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
    """Return the smallest power of two, s, in which the total fits in `MAX_UNFUSED_TICKS`."""
    if not np.isfinite(total):
        raise ValueError("the times of all ops have no finite sum")
    if given is not None:
        if not (given > 0 and total / given <= MAX_UNFUSED_TICKS):
            raise ValueError(f"tick is {given} s: expected one in which {total} s fit")
        return float(given)
    return power_of_two(total / MAX_UNFUSED_TICKS) if total > 0 else 1.0


def power_of_two(value: float) -> float:
    """Return the smallest power of two that is at least a positive number, exactly."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))
