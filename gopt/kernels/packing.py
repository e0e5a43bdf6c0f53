"""What XLA's allocator makes of a schedule: the address space that its tensors take.

XLA assigns addresses when it compiles, and not perfectly: gaps that no tensor fits add to the most
that is in use at once.

Source: `heap_simulator.cc` of OpenXLA, `GlobalDecreasingSizeBestFitHeap`.
"""

import numpy as np

from gopt.cost.execution import Schedule
from gopt.problem import Problem

_ALIGNMENT = 64  # bytes


def packed_bytes(problem: Problem, schedule: Schedule) -> int:
    """Returns the bytes that XLA needs for what a schedule on one device makes, inputs excluded.

    It places tensors one after another, each at the tightest gap that is free as long as it lives:
    once the largest first, once those that live longest, and keeps the better of the two.

    Args:
      problem: one problem, on one device.
      schedule: of the problem.
    """
    size, start, end = _lifetimes(problem, schedule)
    length = start - end  # negative, so that sorting puts the longest first
    return min(
        _pack(size, start, end, np.lexsort((length, -size))),
        _pack(size, start, end, np.lexsort((-size, length))),
    )


def _lifetimes(problem: Problem, schedule: Schedule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns bytes, first and last step of all tensors that ops make, and of their workspace."""
    ops, tensors, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    step = np.empty(ops, np.int64)
    step[np.asarray(schedule.order)[:ops]] = np.arange(ops)
    producer = np.asarray(problem.producer)[:tensors]
    last = step[producer]
    np.maximum.at(last, problem.tensor[:uses], step[np.asarray(problem.consumer)[:uses]])
    last[np.asarray(problem.pinned)[:tensors]] = ops
    size = np.concatenate([problem.size[:tensors], problem.workspace[:ops]]) * float(problem.unit)
    start = np.concatenate([step[producer], step])
    end = np.concatenate([last, step])
    is_input = np.asarray(problem.is_input)[:ops]
    kept = (size > 0) & ~np.concatenate([is_input[producer], is_input])
    aligned = np.ceil(size[kept] / _ALIGNMENT).astype(np.int64) * _ALIGNMENT
    return aligned, start[kept], end[kept]


def _pack(size: np.ndarray, start: np.ndarray, end: np.ndarray, order: np.ndarray) -> int:
    """Returns the end of the last tensor when they are placed in this order."""
    offset = np.zeros_like(size)
    placed = np.zeros(len(size), bool)
    for tensor in order.tolist():
        met = np.flatnonzero(placed & (start <= end[tensor]) & (end >= start[tensor]))
        met = met[np.argsort(offset[met], kind="stable")]
        tops = np.maximum.accumulate(np.append(0, offset[met] + size[met]))
        gaps = offset[met] - tops[:-1]
        fits = np.flatnonzero(gaps >= size[tensor])
        offset[tensor] = tops[fits[np.argmin(gaps[fits])]] if fits.size else tops[-1]
        placed[tensor] = True
    return int((offset + size).max(initial=0))
