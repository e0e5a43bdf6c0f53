"""A graph on a machine, quantised to int32: the input of every cost model.

The host computes in float64, once, and rounds times to whole ticks and sizes to whole units. So
cost models need only max, + and - on int32, and all implementations agree bit for bit. The
quantised problem is the contract, not the seconds it was made from.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.cost.hardware import Hardware, check_hardware, op_seconds
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Shape

MAX_TICKS = 2**30  # above every makespan: all ops and all transfers in sequence take less
MAX_UNITS = 2**31 - 1  # at least what a device holds: all tensors, and the largest workspace


class Problem(NamedTuple):
    """A scheduling problem in ticks and units. `N` ops, `T` tensors, `E` uses, `D` devices.

    The last row of ops, tensors and uses is padding. An item is an op or a transfer: op i is item
    i, and the transfer of tensor t to device d is item N + t · D + d.

    Attributes:
      op_ticks: int32 `[N, D]`; time of an op on a device, ticks.
      transfer_ticks: int32 `[T, D, D]`; time from row to column, ticks; the diagonal is not read.
      size: int32 `[T]`; memory of the tensor, units.
      workspace: int32 `[N]`; memory held only while the op runs, units; 0 for inputs.
      allowed: bool `[N, D]`; true if the op may run on the device.
      capacity: int32 `[D]`; memory of the device, units.
      channel: int32 `[D, D]`; link of a pair of devices, or -1 without contention.
      synchronous: bool `[]`; true if a transfer occupies both devices.
      is_input: bool `[N]`; true for input ops.
      pinned: bool `[T]`; true for tensors that are never freed on their producer's device.
      producer: int32 `[T]`; op that makes the tensor.
      tensor: int32 `[E]`; tensor that is read; uses are sorted by (tensor, consumer).
      consumer: int32 `[E]`; op that reads it.
      first_tensor: int32 `[N + 1]`; tensors of op i start at `first_tensor[i]`.
      first_use: int32 `[T + 1]`; uses of tensor t start at `first_use[t]`.
      read: int32 `[E]`; tensors that are read, sorted by (consumer, tensor).
      first_read: int32 `[N + 1]`; reads of op i start at `first_read[i]`.
      num_ops: int32 `[]`; ops without padding.
      num_tensors: int32 `[]`; tensors without padding.
      num_uses: int32 `[]`; uses without padding.
      tick: float64 `[]`; length of a tick, s.
      unit: float64 `[]`; size of a unit, bytes, a power of two.
    """

    op_ticks: Any
    transfer_ticks: Any
    size: Any
    workspace: Any
    allowed: Any
    capacity: Any
    channel: Any
    synchronous: Any
    is_input: Any
    pinned: Any
    producer: Any
    tensor: Any
    consumer: Any
    first_tensor: Any
    first_use: Any
    read: Any
    first_read: Any
    num_ops: Any
    num_tensors: Any
    num_uses: Any
    tick: Any
    unit: Any

    @property
    def shape(self) -> Shape:
        """Numbers of rows of ops, tensors and uses, padding included."""
        return Shape(self.op_ticks.shape[-2], self.size.shape[-1], self.consumer.shape[-1])

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return self.op_ticks.shape[-1]


def prepare(
    graph: Graph,
    hardware: Hardware,
    *,
    seconds: Any = None,
    allowed: Any = None,
    tick: float | None = None,
) -> Problem:
    """Return the int32 problem of one graph on a machine.

    Args:
      graph: graph, padded or not; gets one padding row per axis if it lacks one.
      hardware: machine of `D` devices.
      seconds: time of each op, s, `[N]` or `[N, D]`, overheads included; by default
        `gopt.cost.hardware.op_seconds`. `N` counts real ops, or all rows of the graph.
      allowed: mask of the devices where each op may run, bool `[N, D]`; by default all true.
      tick: length of a tick, s; by default 1 if all times are whole, else the shortest power of
        two in which every schedule fits.

    Raises:
      ValueError: hardware or graph is invalid; a time is negative or not finite; an op has no
        allowed device; a device fits no op; or the tick is too short. The message names the field,
        and the index if there is one.
    """
    check_hardware(hardware)
    graphs.check(graph)
    if min(np.subtract(graphs.shape_of(graph), _real(graph))) < 1:
        graph = padding.pad(graph, Shape(*(rows + 1 for rows in _real(graph))))
    n, t, e = _real(graph)
    rows, devices = graphs.shape_of(graph), len(hardware.flop_rate)
    inputs = np.asarray(graphs.is_input(graph))

    size, producer = np.asarray(graph.size), np.asarray(graph.producer)
    with np.errstate(over="ignore", invalid="ignore"):  # `_tick` raises on overflow
        times = _op_times(graph, hardware, seconds)
        sent = hardware.latency + size[:, None, None] / hardware.bandwidth
    times[inputs | (np.arange(rows.ops) >= n)] = 0
    may = np.ones((rows.ops, devices), bool)
    if allowed is not None:
        may[:n] = _rows("allowed", allowed, n, rows.ops, devices).astype(bool)
    if not may[:n].any(1).all():
        index = int(np.argmin(may[:n].any(1)))
        raise ValueError(f"allowed[{index}] allows no device: expected at least one")

    uses = np.bincount(np.asarray(graph.tensor)[:e], minlength=rows.tensors)
    sent[:, np.arange(devices), np.arange(devices)] = 0
    sent[uses == 0] = 0

    workspace = np.where(inputs, 0, graph.workspace)
    unit = _unit(size, workspace)
    tick = _tick(np.where(may, times, 0), sent, tick)
    made = np.bincount(producer[:t], size[:t], minlength=rows.ops) + workspace
    least = made[:n][~inputs[:n]].min(initial=np.inf)  # type: ignore[call-overload]
    for device, bytes in enumerate(hardware.capacity):
        if np.isfinite(least) and bytes < least:
            raise ValueError(
                f"capacity[{device}] is {bytes} bytes: the device fits nothing, the smallest op "
                f"makes {least:.0f} bytes"
            )

    by_consumer = np.lexsort((graph.tensor, graph.consumer))
    return Problem(
        op_ticks=np.rint(np.where(may, times, 0) / tick).astype(np.int32),
        transfer_ticks=np.rint(sent / tick).astype(np.int32),
        size=np.ceil(size / unit).astype(np.int32),
        workspace=np.ceil(workspace / unit).astype(np.int32),
        allowed=may,
        capacity=np.floor(np.minimum(hardware.capacity / unit, MAX_UNITS)).astype(np.int32),
        channel=np.asarray(hardware.channel, np.int32),
        synchronous=np.bool_(hardware.synchronous),
        is_input=inputs,
        pinned=np.asarray(graph.pinned),
        producer=producer.astype(np.int32),
        tensor=np.asarray(graph.tensor, np.int32),
        consumer=np.asarray(graph.consumer, np.int32),
        first_tensor=_starts(producer, rows.ops),
        first_use=_starts(graph.tensor, rows.tensors),
        read=np.asarray(graph.tensor, np.int32)[by_consumer],
        first_read=_starts(np.asarray(graph.consumer)[by_consumer], rows.ops),
        num_ops=np.int32(n),
        num_tensors=np.int32(t),
        num_uses=np.int32(e),
        tick=np.float64(tick),
        unit=np.float64(unit),
    )


def stack(problems: Sequence[Problem]) -> Problem:
    """Return problems of one shape stacked along a new first axis `G`.

    Raises:
      ValueError: there are none, or their shapes differ (pad the graphs to one shape first).
    """
    if not problems:
        raise ValueError("problems is empty: nothing to stack")
    for index, problem in enumerate(problems):
        for field, first, leaf in zip(Problem._fields, problems[0], problem, strict=True):
            if np.shape(first) != np.shape(leaf):
                raise ValueError(
                    f"problems[{index}].{field} has shape {np.shape(leaf)}: expected "
                    f"{np.shape(first)}, as in problems[0]; pad the graphs to one shape first"
                )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *problems)


def to_seconds(problem: Problem, ticks: Any) -> Any:
    """Return ticks of one problem as seconds, float64, on the host.

    Args:
      problem: one problem.
      ticks: int32 of any shape.
    """
    return np.asarray(ticks).astype(np.float64) * float(problem.tick)


def to_bytes(problem: Problem, units: Any) -> Any:
    """Return units of one problem as bytes: a Python integer, or int64 for an array.

    Args:
      problem: one problem.
      units: int32 of any shape.
    """
    values = np.asarray(units).astype(np.int64) * int(problem.unit)
    return int(values) if values.ndim == 0 else values


def _real(graph: Graph) -> Shape:
    return Shape(int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses))


def _starts(sorted_rows: Any, count: int) -> np.ndarray:
    return np.searchsorted(sorted_rows, np.arange(count + 1)).astype(np.int32)


def _rows(field: str, values: Any, real: int, padded: int, devices: int) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim == 1:
        values = np.repeat(values[:, None], devices, 1)
    if values.shape not in ((real, devices), (padded, devices)):
        raise ValueError(
            f"{field} has shape {values.shape}: expected ({real},) or ({real}, {devices})"
        )
    return values[:real]


def _op_times(graph: Graph, hardware: Hardware, seconds: Any) -> np.ndarray:
    times = op_seconds(graph.flops, graph.bytes, hardware)
    if seconds is not None:
        n, padded = int(graph.num_ops), graphs.shape_of(graph).ops
        times[:n] = _rows("seconds", seconds, n, padded, len(hardware.flop_rate))
        good = np.isfinite(times) & (times >= 0)
        if not good.all():
            index = np.unravel_index(np.argmin(good), good.shape)
            raise ValueError(
                f"seconds[{index[0]}] is {times[index]} on device {index[1]}: expected a finite "
                "number, not negative"
            )
    return times


def _unit(size: np.ndarray, workspace: np.ndarray) -> float:
    """Return the smallest power of two in which all tensors and the largest workspace fit int32."""
    unit = 1.0
    while np.ceil(size / unit).sum() + np.ceil(workspace / unit).max() > MAX_UNITS:
        unit *= 2
    return unit


def _tick(times: np.ndarray, sent: np.ndarray, given: float | None) -> float:
    """Return 1 s if all times are whole and fit, else the smallest power of two that fits."""
    with np.errstate(over="ignore"):
        longest, transfers = times.max(1), sent.max(1)
        total = longest.sum() + transfers.sum()
    if not np.isfinite(total):
        raise ValueError("seconds, or the times of transfers, have no finite sum")

    def fits(tick: float) -> bool:
        return bool(np.rint(longest / tick).sum() + np.rint(transfers / tick).sum() < MAX_TICKS)

    if given is not None:
        if not (given > 0 and fits(given)):
            raise ValueError(f"tick is {given} s: expected one in which {total} s fit")
        return float(given)
    if fits(1.0) and not (times % 1).any() and not (sent % 1).any():
        return 1.0
    tick = float(2.0 ** max(np.floor(np.log2(total)) - 30, -1022))  # MAX_TICKS is 2³⁰
    while not fits(tick):
        tick *= 2
    return tick
