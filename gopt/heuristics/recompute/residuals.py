"""Values that are live between the two halves of a program, and candidates that drop them.

A training program computes a loss, then its gradients. In between, at the turning point, most bytes
are live: residuals, which the second half reads. A place k of a program lies just before op k.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices


class Halves(NamedTuple):
    """The part of a program before its turning point, for ops `N` and tensors `T` with padding.

    Attributes:
      turn: place of the turning point; ops before it are the first half.
      droppable: bool `[N]`; ops that may run again and that another op reads.
      until: int64 `[T]`; last reader of each tensor in the first half; its producer if there is
        none.
      residual: bool `[T]`; tensors of droppable ops of the first half that the second half reads.
    """

    turn: int
    droppable: Bool[np.ndarray, " N"]
    until: Int64[np.ndarray, " T"]
    residual: Bool[np.ndarray, " T"]


def halves(problem: Problem) -> Halves:
    """Return the halves of a program.

    The turning point is the first place with most live bytes. Only tensors of droppable ops count:
    arguments and results are in memory anyway.

    Args:
      problem: one problem.
    """
    droppable = problem.may_repeat & (np.diff(problem.first_reader) > 0)
    last = last_readers(problem, problem.num_rows)
    live = live_bytes(problem, last, droppable[problem.producer])
    turn = int(np.argmax(live))
    residual = droppable[problem.producer] & (problem.producer < turn) & (last >= turn)
    return Halves(turn, droppable, last_readers(problem, turn), residual)


def last_readers(problem: Problem, end: int) -> Int64[np.ndarray, " T"]:
    """Return the last reader of each tensor before a place; its producer if there is none."""
    uses = int(problem.num_uses)
    tensor, reader = problem.tensor[:uses], problem.consumer[:uses]
    last = problem.producer.astype(np.int64)
    np.maximum.at(last, tensor[reader < end], reader[reader < end])
    return last


def live_bytes(
    problem: Problem, last: Int64[np.ndarray, " T"], counted: Bool[np.ndarray, " T"]
) -> Int64[np.ndarray, " N+1"]:
    """Return the bytes that are live at each place, in units.

    Args:
      problem: one problem.
      last: last reader of each tensor.
      counted: tensors that count, bool `[T]`.
    """
    change = np.zeros(problem.num_rows + 2, np.int64)
    size = np.where(counted & (last > problem.producer), problem.size, 0)
    np.add.at(change, problem.producer + 1, size)
    np.add.at(change, last + 1, -size)
    return np.cumsum(change)[:-1]


def again_after(problem: Problem, turn: int, again: Bool[np.ndarray, " N"]) -> Choices:
    """Return the candidate in which some ops run again once, if a run after a place reads them.

    Other ops run once, and are held as long as something reads them. An op without a reader before
    the place is held for its first reader.

    Args:
      problem: one problem.
      turn: the place.
      again: ops that run again, bool `[N]`.
    """
    first = problem.first_reader
    before = np.append(0, np.cumsum(problem.readers[: first[-1]] < turn))
    counts = np.maximum(before[first[1:]] - before[first[:-1]], 1)
    return Choices(None, np.where(again & problem.may_repeat, counts, 0).astype(np.int32)[:, None])
