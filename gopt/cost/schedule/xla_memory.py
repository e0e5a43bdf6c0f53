"""What XLA's allocator makes of an order: the address space that its tensors take.

XLA assigns addresses when it compiles, and not perfectly: gaps that no tensor fits add to the most
that is in use at once.

Source: `buffer_assignment.cc` and `heap_simulator.cc` of OpenXLA.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.extend.core import Var

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.padding import pad
from gopt.program.program import Program
from gopt.xla.buffers import kernel_graph
from gopt.xla.ordered import written_over

_ALIGNMENT = 64  # bytes


def packed_bytes(problem: Problem, order: np.ndarray) -> int:
    """Returns the bytes that XLA needs for what ops on one device make, inputs excluded.

    Outputs have places of their own. Before they are made, others take these: the largest first, of
    equal ones the first. What finds no such place goes to the tightest gap of one large buffer that
    is free as long as it lives: once the largest first, once those that live longest, whichever
    takes less.

    Args:
      problem: one problem, on one device.
      order: of the ops. int `[N]`, or longer
    """
    lives = _lives(problem, order)
    outputs = np.flatnonzero(lives.is_output)
    taken: list[list[int]] = [[output] for output in outputs.tolist()]
    rest: list[int] = []
    for tensor in np.lexsort((lives.first, -lives.size)).tolist():
        if lives.is_output[tensor]:
            continue
        places = (
            place
            for place in reversed(taken)
            if lives.size[place[0]] >= lives.size[tensor] and not lives.meet(tensor, place).any()
        )
        place = next(places, None)
        (rest if place is None else place).append(tensor)
    length = lives.last - lives.first
    by_size = sorted(rest, key=lambda t: (-lives.size[t], -length[t], lives.first[t]))
    by_length = sorted(rest, key=lambda t: (-length[t], -lives.size[t], lives.first[t]))
    buffer = min(_pack(lives, by_size), _pack(lives, by_length))
    return int(lives.size[outputs].sum()) + buffer


class _Lives(NamedTuple):
    """Tensors that ops make, and their workspace, by size and by first and last step."""

    size: np.ndarray  # int64 [T], bytes
    first: np.ndarray  # int64 [T]
    last: np.ndarray  # int64 [T]
    is_output: np.ndarray  # bool [T]

    def meet(self, tensor: int, others: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns which of others live while a tensor does."""
        return (self.first[others] <= self.last[tensor]) & (self.last[others] >= self.first[tensor])


def _lives(problem: Problem, order: np.ndarray) -> _Lives:
    ops, tensors, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    step = np.empty(ops, np.int64)
    step[np.asarray(order)[:ops]] = np.arange(ops)
    producer = np.asarray(problem.producer)[:tensors]
    pinned = np.asarray(problem.pinned)[:tensors]
    last = step[producer]
    np.maximum.at(last, problem.tensor[:uses], step[np.asarray(problem.consumer)[:uses]])
    last[pinned] = ops
    size = np.concatenate([problem.size[:tensors], problem.workspace[:ops]]) * float(problem.unit)
    is_input = np.asarray(problem.is_input)[:ops]
    kept = (size > 0) & ~np.concatenate([is_input[producer], is_input])
    return _Lives(
        size=np.ceil(size[kept] / _ALIGNMENT).astype(np.int64) * _ALIGNMENT,
        first=np.concatenate([step[producer], step])[kept],
        last=np.concatenate([last, step])[kept],
        is_output=np.concatenate([pinned, np.zeros(ops, bool)])[kept],
    )


def _pack(lives: _Lives, order: Sequence[int]) -> int:
    """Returns the end of the last of some tensors when they are placed in this order."""
    offset = np.zeros_like(lives.size)
    placed = np.zeros(len(offset), bool)
    for tensor in order:
        met = np.flatnonzero(placed)
        met = met[lives.meet(tensor, met)]
        met = met[np.argsort(offset[met], kind="stable")]
        tops = np.maximum.accumulate(np.append(0, offset[met] + lives.size[met]))
        gaps = offset[met] - tops[:-1]
        fits = np.flatnonzero(gaps >= lives.size[tensor])
        offset[tensor] = tops[fits[np.argmin(gaps[fits])]] if fits.size else tops[-1]
        placed[tensor] = True
    return int((offset + lives.size)[placed].max(initial=0))


def beside(program: Program, workspace: Mapping[Var, float]) -> int:
    """Returns the bytes that `ordered(program)` needs beside arguments through XLA, by the model.

    Args:
      program: see `ordered`.
      workspace: bytes that kernels need only while they run, by the first result.
    """
    graph = kernel_graph(program, workspace, written_over(program)).graph
    problem = prepare(pad(graph), unit_rate_devices(1))
    return packed_bytes(problem, np.arange(int(problem.num_ops)))
