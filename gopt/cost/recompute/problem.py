"""A graph on one device whose ops may run more than once, quantised to int32.

The host rounds times and sizes once, as `gopt.cost.schedule.problem` does.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from gopt.cost.hardware import Hardware
from gopt.cost.schedule import problem as schedule_problem
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.graph.graph import Graph


class Problem(NamedTuple):
    """Ops that may run more than once, on one device. `N` ops, `T` tensors, `E` uses.

    The last row of ops, tensors and uses is padding. A link is a pair of ops, of which the second
    runs after the first: it reads a tensor of the first, or only waits for it. There are at most
    `E` links.

    Attributes:
      ticks: int32 `[N]`; time of a run, ticks; 0 for inputs.
      size: int32 `[T]`; memory of a tensor, units.
      workspace: int32 `[N]`; memory held only while the op runs, units.
      is_input: bool `[N]`; inputs are in memory before the first run.
      may_repeat: bool `[N]`; whether the op may run more than once.
      pinned: bool `[T]`; whether the tensor is held to the end.
      producer: int32 `[T]`; op that makes the tensor.
      tensor: int32 `[E]`; tensor of a use.
      consumer: int32 `[E]`; op that reads it.
      in_place: int32 `[E]`; memory of the tensor, units, if the result of the op may take its place
        at the last read; else 0.
      maker: int32 `[E]`; first op of a link; links are sorted by falling second op.
      reader: int32 `[E]`; second op of a link.
      is_read: bool `[E]`; whether the second op of a link reads a tensor of the first.
      first_reader: int32 `[N + 1]`; readers of op i start at `first_reader[i]`.
      readers: int32 `[E]`; ops that read a tensor of an op, sorted by (that op, reader).
      num_ops: int32 `[]`; ops without padding.
      num_uses: int32 `[]`; uses without padding.
      num_links: int32 `[]`; links without padding.
      excess_shift: int32 `[]`; excesses are counted in 2^shift units, so that their sum over all
        runs is below 2³¹.
      tick: float64 `[]`; length of a tick, s.
      unit: float64 `[]`; size of a unit, bytes, a power of two.
    """

    ticks: Any
    size: Any
    workspace: Any
    is_input: Any
    may_repeat: Any
    pinned: Any
    producer: Any
    tensor: Any
    consumer: Any
    in_place: Any
    maker: Any
    reader: Any
    is_read: Any
    first_reader: Any
    readers: Any
    num_ops: Any
    num_uses: Any
    num_links: Any
    excess_shift: Any
    tick: Any
    unit: Any

    @property
    def num_rows(self) -> int:
        """Number of rows of ops, padding included."""
        return self.ticks.shape[-1]


def prepare(
    graph: Graph,
    hardware: Hardware,
    *,
    max_runs: int,
    seconds: Any = None,
    may_repeat: Any = None,
    waits: Collection[tuple[int, int]] = (),
    in_place: Collection[tuple[int, int]] = (),
) -> Problem:
    """Return the int32 problem of one graph on a machine of one device.

    Inputs and ops that make a pinned tensor never run more than once.

    Args:
      graph: graph, padded or not; gets one padding row per axis if it lacks one.
      hardware: machine of one device.
      max_runs: largest number of runs of an op, for which the sum of all times is below 2³⁰ ticks.
      seconds: time of each op, s, `[N]`, overheads included; by default
        `gopt.cost.hardware.op_seconds`.
      may_repeat: whether each op may run more than once, bool `[N]`; by default all may. `N` counts
        real ops, or all rows of the graph.
      waits: pairs of ops of which the second only waits for the first, although the graph has a use
        of a tensor without bytes. A wait is for first runs alone.
      in_place: pairs of a tensor and an op that reads it, whose result may take the tensor's place.
        One result takes one place, and not more memory than it needs.

    Raises:
      ValueError: `max_runs` is less than one, the machine has several devices, `may_repeat` has
        another shape, or as in `gopt.cost.schedule.problem.prepare`.
    """
    if not max_runs >= 1:
        raise ValueError(f"max_runs is {max_runs}: expected 1 at least")
    if len(hardware.flop_rate) != 1:
        raise ValueError(f"hardware has {len(hardware.flop_rate)} devices: expected 1")
    once = schedule_problem.prepare(graph, hardware, seconds=seconds)
    tick = float(once.tick)
    while int(once.op_ticks.sum(dtype=np.int64)) * max_runs >= MAX_TICKS:
        tick *= 2
        once = schedule_problem.prepare(graph, hardware, seconds=seconds, tick=tick)
    n, rows = int(once.num_ops), once.shape.ops
    e, uses = int(once.num_uses), once.shape.uses
    repeats = _repeats(may_repeat, n, rows)
    repeats &= ~once.is_input
    repeats[once.producer[once.pinned]] = False
    links = np.unique(np.stack([once.producer[once.tensor[:e]], once.consumer[:e]], 1), axis=0)
    is_read = np.array([tuple(pair) not in waits for pair in links.tolist()], bool)
    reads = links[is_read]
    backwards = np.lexsort((links[:, 0], -links[:, 1]))

    made = np.bincount(once.producer, once.size, minlength=rows)
    uses_of = zip(once.tensor.tolist(), once.consumer.tolist(), strict=True)
    pairs = set(in_place)
    saved = np.array([use in pairs for use in uses_of], bool)
    saved &= ~(once.pinned | once.is_input[once.producer])[once.tensor]
    place = np.minimum(once.size[once.tensor], made[once.consumer])

    def padded(values: np.ndarray) -> np.ndarray:
        return np.append(values, np.full(uses - len(values), rows - 1)).astype(values.dtype)

    return Problem(
        ticks=once.op_ticks[:, 0],
        size=once.size,
        workspace=once.workspace,
        is_input=once.is_input,
        may_repeat=repeats,
        pinned=once.pinned,
        producer=once.producer,
        tensor=once.tensor,
        consumer=once.consumer,
        in_place=np.where(saved, place, 0).astype(np.int32),
        maker=padded(links[backwards, 0]),
        reader=padded(links[backwards, 1]),
        is_read=padded(is_read[backwards]),
        first_reader=np.searchsorted(reads[:, 0], np.arange(rows + 1)).astype(np.int32),
        readers=padded(reads[:, 1]),
        num_ops=once.num_ops,
        num_uses=once.num_uses,
        num_links=np.int32(len(links)),
        excess_shift=np.int32((n * max_runs - 1).bit_length()),
        tick=once.tick,
        unit=once.unit,
    )


def _repeats(may_repeat: Any, real: int, padded: int) -> np.ndarray:
    result = np.zeros(padded, bool)
    result[:real] = True
    if may_repeat is not None:
        given = np.asarray(may_repeat, bool)
        if given.shape not in ((real,), (padded,)):
            raise ValueError(f"may_repeat has shape {given.shape}: expected ({real},)")
        result[:real] = given[:real]
    return result
