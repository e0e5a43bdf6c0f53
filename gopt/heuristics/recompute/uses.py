"""Lists of what ops read, make and write over, for rules that order ops."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from gopt.cost.recompute.problem import Problem


class Uses(NamedTuple):
    """Lists of a problem.

    Attributes:
      made: memory of what each op makes, units, `[N]`.
      held: the part of it that something reads or pins, units, `[N]`.
      stays: whether a reader that runs early or late changes nothing for a tensor, `[T]`.
      reads: tensors that each op reads.
      readers: ops that read each tensor.
      followers: ops that come after each op: they read it or wait for it.
      in_place: pairs of ops of which the second may write over a result of the first.
    """

    made: Int64[np.ndarray, " N"]
    held: Int64[np.ndarray, " N"]
    stays: Bool[np.ndarray, " T"]
    reads: list[list[int]]
    readers: dict[int, list[int]]
    followers: list[list[int]]
    in_place: set[tuple[int, int]]


def uses_of(problem: Problem) -> Uses:
    """Return the lists of a problem."""
    rows, uses, links = problem.num_rows, int(problem.num_uses), int(problem.num_links)
    tensor, consumer = problem.tensor[:uses], problem.consumer[:uses]
    reads: list[list[int]] = [[] for _ in range(rows)]
    readers: dict[int, list[int]] = {}
    for t, op in dict.fromkeys(zip(tensor.tolist(), consumer.tolist(), strict=True)):
        reads[op].append(t)
        readers.setdefault(t, []).append(op)
    followers: list[list[int]] = [[] for _ in range(rows)]
    pairs = zip(problem.maker[:links].tolist(), problem.reader[:links].tolist(), strict=True)
    for maker, op in pairs:
        followers[maker].append(op)
    over = problem.in_place[:uses] > 0
    makers = problem.producer[tensor[over]].tolist()
    is_held = problem.pinned.copy()
    is_held[[*readers]] = True
    made, held = (
        np.bincount(problem.producer, sizes, minlength=rows).astype(np.int64)
        for sizes in (problem.size, np.where(is_held, problem.size, 0))
    )
    return Uses(
        made=made,
        held=held,
        stays=problem.pinned | problem.is_input[problem.producer],
        reads=reads,
        readers=readers,
        followers=followers,
        in_place={*zip(makers, consumer[over].tolist(), strict=True)},
    )
