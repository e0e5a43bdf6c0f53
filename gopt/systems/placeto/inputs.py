"""Inputs of Placeto: a graph on a machine, read once, on the host."""

from typing import Any, NamedTuple

import numpy as np

from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph
from gopt.heuristics.schedule.placement.groups import coarse_to_fine
from gopt.heuristics.schedule.placement.list_scheduling import mean_ticks
from gopt.heuristics.schedule.readiness import followed_ops
from gopt.systems.placeto.settings import Settings


class Inputs(NamedTuple):
    """A graph on a machine, as Placeto reads it. `N` ops, `K` groups, in the order of visits.

    Attributes:
      problem: the graph on the machine.
      group: int32 `[N]`, group of each op. An input is in its first reader's group, padding in the
        last.
      about: float32 `[K, 2]`, time and bytes of each group, in shares of the largest.
      reads: float32 `[K, K]`, 1 where the row's group reads tensors of the column's group.
      above: float32 `[K, K]`, 1 where a path leads from the column's group to the row's group.
      beside: float32 `[K, K]`, 1 where no path connects the two groups in either direction.
    """

    problem: Problem
    group: Any
    about: Any
    reads: Any
    above: Any
    beside: Any


def inputs(graph: Graph, problem: Problem, *, settings: Settings) -> Inputs:
    """Return the inputs of Placeto; on the host.

    Groups are the coarsest of GO (`gopt.heuristics.schedule.placement.groups`), in the order of
    their first ops: our choice. The published system merges ops, too. Groups may read each other.

    Args:
      graph: the graph; not read, because the problem contains all that is needed.
      problem: the same graph on the machine that it is placed on.
      settings: settings of the policy, which give the number of groups.
    """
    del graph
    n, uses, rows = int(problem.num_ops), int(problem.num_uses), problem.shape.ops
    (group,) = coarse_to_fine(problem, (settings.groups,))
    group = group[followed_ops(problem)]
    first = np.full(n, n)
    np.minimum.at(first, group, np.arange(n))
    order = np.argsort(first, kind="stable")  # empty groups come last
    count = np.unique(group).size
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    group = place[group]

    made = np.zeros(rows)
    tensors = int(problem.num_tensors)
    np.add.at(made, np.asarray(problem.producer)[:tensors], np.asarray(problem.size)[:tensors])
    about = np.zeros((count, 2))
    np.add.at(about, group, np.stack([mean_ticks(problem)[:n], made[:n]], 1))

    maker = np.asarray(problem.producer)[np.asarray(problem.tensor)[:uses]]
    reads = np.zeros((count, count), bool)
    reads[group[np.asarray(problem.consumer)[:uses]], group[maker]] = True
    np.fill_diagonal(reads, False)
    above = reads.copy()
    for k in range(count):  # readers of k are below all that is above k
        above |= above[:, k : k + 1] & above[k]
    np.fill_diagonal(above, False)
    beside = ~(above | above.T | np.eye(count, dtype=bool))
    of_ops = np.full(rows, count - 1, np.int32)
    of_ops[:n] = group
    matrices = (matrix.astype(np.float32) for matrix in (reads, above, beside))
    shares = about / np.maximum(about.max(0), 1e-9)
    return Inputs(problem, of_ops, shares.astype(np.float32), *matrices)
