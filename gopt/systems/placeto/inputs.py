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
    """A graph on a machine, as Placeto reads it. `N` ops, `K` groups, in the order of visits."""

    problem: Problem
    group: Any  # int32 [N], of each op; of an input, that of its first reader; of padding the last
    about: Any  # float32 [K, 2], time and bytes of each group, in shares of the largest
    reads: Any  # float32 [K, K], 1 where the group of the row reads what that of the column makes
    above: Any  # float32 [K, K], 1 where a path leads from that of the column to that of the row
    beside: Any  # float32 [K, K], 1 where no path leads from either to the other


def inputs(graph: Graph, problem: Problem, *, settings: Settings) -> Inputs:
    """Return the inputs of Placeto; on the host.

    Groups are the coarsest of GO (`gopt.heuristics.schedule.placement.groups`), in the order of
    their first ops: our choice. In the published one ops are merged, too. Groups may read each
    other.

    Args:
      graph: the graph, of which nothing is read besides the problem.
      problem: the same graph on the machine that it is placed on.
      settings: settings of the policy: how many groups there are.
    """
    del graph
    n, uses, rows = int(problem.num_ops), int(problem.num_uses), problem.shape.ops
    (group,) = coarse_to_fine(problem, (settings.groups,))
    group = group[followed_ops(problem)]
    first = np.full(n, n)
    np.minimum.at(first, group, np.arange(n))
    order = np.argsort(first, kind="stable")  # those that nobody is in come last
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
    for k in range(count):  # what reads k reads what k reads
        above |= above[:, k : k + 1] & above[k]
    np.fill_diagonal(above, False)
    beside = ~(above | above.T | np.eye(count, dtype=bool))
    of_ops = np.full(rows, count - 1, np.int32)
    of_ops[:n] = group
    matrices = (matrix.astype(np.float32) for matrix in (reads, above, beside))
    shares = about / np.maximum(about.max(0), 1e-9)
    return Inputs(problem, of_ops, shares.astype(np.float32), *matrices)
