"""Track which ops are ready. Input ops are available from the start: nothing waits for them."""

import numpy as np
from jaxtyping import Int64, Shaped

from gopt.cost.schedule.problem import Problem


class ReadinessTracker:
    """Number of non-input tensors that each op still waits for.

    Args:
      problem: one problem, as NumPy arrays.

    Attributes:
      sources: non-input ops that wait for nothing, by index.
    """

    def __init__(self, problem: Problem):
        uses = int(problem.num_uses)
        is_input = np.asarray(problem.is_input)
        makers = np.asarray(problem.producer)[problem.tensor[:uses]]
        consumer = np.asarray(problem.consumer)[:uses]
        waits = np.bincount(consumer[~is_input[makers]], minlength=problem.shape.ops)
        self._waits: list[int] = waits.tolist()
        self._consumer: list[int] = consumer.tolist()
        self._first_use: list[int] = np.asarray(problem.first_use).tolist()
        self._first: list[int] = np.asarray(problem.first_use)[problem.first_tensor].tolist()
        real = int(problem.num_ops)
        self.sources: list[int] = np.flatnonzero((waits[:real] == 0) & ~is_input[:real]).tolist()

    def issue(self, op: int) -> list[int]:
        """Issue an op; return the ops that become ready by it, sorted by index."""
        ready = []
        for reader in self._consumer[self._first[op] : self._first[op + 1]]:
            self._waits[reader] -= 1
            if self._waits[reader] == 0:
                ready.append(reader)
        return sorted(ready)

    def readers(self, tensor: int) -> list[int]:
        """Return the ops that read a tensor."""
        return self._consumer[self._first_use[tensor] : self._first_use[tensor + 1]]


def check_group(problem: Problem, group: Shaped[np.ndarray, " n"]) -> None:
    """Check that `group` has one entry per real op.

    Args:
      problem: one problem, as NumPy arrays.
      group: group of each real op, `[n]`.

    Raises:
      ValueError: `group` has another shape.
    """
    count = int(problem.num_ops)
    if np.shape(group) != (count,):
        raise ValueError(f"group has shape {np.shape(group)}: expected one group for {count} ops")


def followed_ops(problem: Problem) -> Int64[np.ndarray, " n"]:
    """Return the op that each real op follows, int64 `[n]`.

    A free input follows the first of its readers; every other op follows itself. An input is free
    if it is allowed on every device, see `gopt.cost.schedule.dispatch.legalize_placement`.
    """
    n, uses = int(problem.num_ops), int(problem.num_uses)
    maker = np.asarray(problem.producer)[np.asarray(problem.tensor)[:uses]]
    first = np.full(n, n)
    np.minimum.at(first, maker, np.asarray(problem.consumer)[:uses])
    follows = np.asarray(problem.is_input)[:n] & np.asarray(problem.allowed)[:n].all(1)
    return np.where(follows & (first < n), first, np.arange(n))


def operands_by_op(problem: Problem) -> list[list[int]]:
    """Return the tensors that each real op reads."""
    read, first = np.asarray(problem.read).tolist(), np.asarray(problem.first_read).tolist()
    return [read[first[i] : first[i + 1]] for i in range(int(problem.num_ops))]
