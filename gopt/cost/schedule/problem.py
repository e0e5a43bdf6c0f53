"""A graph on a machine, quantised to int32: what every cost model reads.

The host computes in float64, once. Times become whole ticks and sizes whole units, so that the
cost models only take maxima, sums and differences of int32, and every path to a cost agrees bit
for bit. The quantised problem is the contract, not the seconds that it came from.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.cost.hardware import Hardware, check_hardware, op_seconds
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Shape

MAX_TICKS = 2**30  # no schedule is longer: all ops one after another, with every transfer
MAX_UNITS = 2**31 - 1  # no device holds more: every tensor, and the largest workspace


class Problem(NamedTuple):
    """What the cost models read. `N` ops, `T` tensors, `E` uses, `D` devices.

    The last row of ops, tensors and uses is padding. Items are numbered: op i is item i, the
    transfer of tensor t to device d is item N + t · D + d.
    """

    op_ticks: Any  # int32 [N, D]
    transfer_ticks: Any  # int32 [T, D, D], from row to column; the diagonal is not read
    size: Any  # int32 [T], units
    workspace: Any  # int32 [N], units; 0 for inputs, which run nowhere
    allowed: Any  # bool [N, D]
    capacity: Any  # int32 [D], units
    channel: Any  # int32 [D, D], link of a pair, or -1
    synchronous: Any  # bool []
    is_input: Any  # bool [N]
    pinned: Any  # bool [T]
    producer: Any  # int32 [T]
    tensor: Any  # int32 [E], sorted by (tensor, consumer)
    consumer: Any  # int32 [E]
    first_tensor: Any  # int32 [N + 1], tensors of op i: first_tensor[i] .. first_tensor[i + 1]
    first_use: Any  # int32 [T + 1], uses of tensor t: first_use[t] .. first_use[t + 1]
    read: Any  # int32 [E], tensors that are read, sorted by (consumer, tensor)
    first_read: Any  # int32 [N + 1], reads of op i: first_read[i] .. first_read[i + 1]
    num_ops: Any  # int32 []
    num_tensors: Any  # int32 []
    num_uses: Any  # int32 []
    tick: Any  # float64 [], s
    unit: Any  # float64 [], bytes, a power of two

    @property
    def shape(self) -> Shape:
        """Rows of ops, tensors and uses, padding included."""
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
    """Returns the int32 problem of one graph on a machine.

    Args:
      graph: padded or not; one padding row is added where there is none.
      hardware: the machine.
      seconds: time of each op, in s, `[N]` or `[N, D]`, overheads included; by default by the
        roofline `gopt.cost.hardware.op_seconds`. `N` counts real ops, or all rows of the graph.
      allowed: which op may run on which device, bool `[N, D]`; by default every one on all.
      tick: of times, in s; by default the shortest power of two in which all schedules fit, or 1 if
        all times are whole.

    Raises:
      ValueError: naming the field and the index, for invalid hardware, a time that is negative
        or not finite, an op without an allowed device, a device that fits no op, a tick that is
        too short.
    """
    check_hardware(hardware)
    graphs.check(graph)
    if min(np.subtract(graphs.shape_of(graph), _real(graph))) < 1:
        graph = padding.pad(graph, Shape(*(rows + 1 for rows in _real(graph))))
    n, t, e = _real(graph)
    rows, devices = graphs.shape_of(graph), len(hardware.flop_rate)
    inputs = np.asarray(graphs.is_input(graph))

    size, producer = np.asarray(graph.size), np.asarray(graph.producer)
    with np.errstate(over="ignore", invalid="ignore"):  # `_tick` raises
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
    """Returns problems of one shape stacked along a new first axis `G`.

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
    """Returns ticks of one problem as seconds, float64. On the host."""
    return np.asarray(ticks).astype(np.float64) * float(problem.tick)


def to_bytes(problem: Problem, units: Any) -> Any:
    """Returns units of one problem as bytes: a Python integer, or int64 for an array."""
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
    """The smallest power of two in which everything at once stays below 2³¹ units."""
    unit = 1.0
    while np.ceil(size / unit).sum() + np.ceil(workspace / unit).max() > MAX_UNITS:
        unit *= 2
    return unit


def _tick(times: np.ndarray, sent: np.ndarray, given: float | None) -> float:
    """1 s if all times are whole seconds and fit; else the smallest power of two that fits."""
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
