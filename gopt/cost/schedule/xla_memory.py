"""Model of XLA's buffer assignment: the address space that an order of kernels needs.

XLA assigns addresses when it compiles. The packing is not optimal: unused gaps add to the peak
memory.

Source: `buffer_assignment.cc` and `heap_simulator.cc` of OpenXLA.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.extend.core import Var
from jaxtyping import Int

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph.padding import pad
from gopt.program.program import Program
from gopt.xla.buffers import kernel_graph
from gopt.xla.ordered import written_over

_ALIGNMENT = 64  # bytes


def packed_bytes(problem: Problem, order: Int[np.ndarray, " N"]) -> int:
    """Return the bytes that XLA needs for tensors and workspace on one device, without inputs.

    Each output has its own buffer. Other tensors share these buffers while the output is not live.
    They are assigned by decreasing size, and by first step on ties.

    The remaining tensors are packed into one large buffer. Each takes the tightest gap that is free
    during its whole life. They are packed twice, by decreasing size and by decreasing lifetime; the
    smaller buffer counts.

    Args:
      problem: one problem on one device.
      order: ops in execution order, int `[N]`. Further entries are ignored.
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
    """Sizes and lifetimes of tensors and workspaces; inputs and empty tensors are left out.

    Attributes:
      size: size, rounded up to the alignment, int64 `[T]`, bytes.
      first: first step at which it is live, int64 `[T]`.
      last: last step at which it is live, int64 `[T]`.
      is_output: whether it is an output of the program, bool `[T]`.
    """

    size: np.ndarray
    first: np.ndarray
    last: np.ndarray
    is_output: np.ndarray

    def meet(self, tensor: int, others: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return whether each of `others` is live while a tensor is, bool `[len(others)]`."""
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
    """Return the bytes of one buffer in which tensors are placed in this order."""
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
    """Return the predicted bytes of outputs and temporaries of `ordered(program)` under XLA.

    Args:
      program: program of kernels in execution order; see `gopt.xla.ordered.ordered`.
      workspace: bytes that each kernel needs only while it runs, by the kernel's first result.
    """
    graph = kernel_graph(program, workspace, written_over(program)).graph
    problem = prepare(pad(graph), unit_rate_devices(1))
    return packed_bytes(problem, np.arange(int(problem.num_ops)))
