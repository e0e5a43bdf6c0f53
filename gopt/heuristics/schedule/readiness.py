"""What ops wait for. Inputs are there from the start: nothing waits for them."""

import numpy as np

from gopt.cost.schedule.problem import Problem


class Waiting:
    """Ops and how many tensors, other than those of inputs, each of them waits for."""

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
        """Returns the ops that waited for this one as the last, by index."""
        ready = []
        for reader in self._consumer[self._first[op] : self._first[op + 1]]:
            self._waits[reader] -= 1
            if self._waits[reader] == 0:
                ready.append(reader)
        return sorted(ready)

    def readers(self, tensor: int) -> list[int]:
        """Returns the ops that read a tensor."""
        return self._consumer[self._first_use[tensor] : self._first_use[tensor + 1]]


def check_group(problem: Problem, group: np.ndarray) -> None:
    """Raises `ValueError` if there is not one group for each real op."""
    count = int(problem.num_ops)
    if np.shape(group) != (count,):
        raise ValueError(f"group has shape {np.shape(group)}: expected one group for {count} ops")


def leaders(problem: Problem) -> np.ndarray:
    """Returns whom each real op follows: a free input the first of its readers, others themselves.

    An input is free if it may be everywhere, see `gopt.cost.schedule.dispatch.settled`. Int64
    `[n]`.
    """
    n, uses = int(problem.num_ops), int(problem.num_uses)
    maker = np.asarray(problem.producer)[np.asarray(problem.tensor)[:uses]]
    first = np.full(n, n)
    np.minimum.at(first, maker, np.asarray(problem.consumer)[:uses])
    follows = np.asarray(problem.is_input)[:n] & np.asarray(problem.allowed)[:n].all(1)
    return np.where(follows & (first < n), first, np.arange(n))


def reads_of(problem: Problem) -> list[list[int]]:
    """Returns the tensors that each real op reads."""
    read, first = np.asarray(problem.read).tolist(), np.asarray(problem.first_read).tolist()
    return [read[first[i] : first[i + 1]] for i in range(int(problem.num_ops))]
