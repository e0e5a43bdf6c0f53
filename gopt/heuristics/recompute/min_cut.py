"""The cheapest set of values to hold across the turning point, as a cut of a flow network.

Every path from an op that may not run again to a reader in the second half has to pass a value that
is held. Values are edges with their bytes as capacity, so the cheapest set is a least cut.

Source: the rule of PyTorch's `min_cut_rematerialization_partition` (He and Yu, "Transcending
runtime-memory tradeoffs in checkpointing by being fusion aware", MLSys 2023). There an op's kind
says whether it may run again, and values far from their reader weigh more; here the time per byte
says it, and bytes alone weigh.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool
from scipy import sparse
from scipy.sparse import csgraph

from gopt.cost.recompute.problem import Problem
from gopt.cost.recompute.runs import Choices
from gopt.heuristics.recompute.residuals import Halves, again_after, halves

HEAVY = 4.0  # an op with so many times the median of time per byte is not run again
SOURCE, SINK = 0, 1
LIMIT = 2**29  # sum of all capacities, so that int32 holds each sum


def cheap(problem: Problem) -> Bool[np.ndarray, " N"]:
    """Return the ops that take little time for the bytes that they read and write, bool `[N]`.

    Args:
      problem: one problem.
    """
    n, uses = problem.num_rows, int(problem.num_uses)
    moved = np.bincount(problem.producer, problem.size, n)
    moved += np.bincount(problem.consumer[:uses], problem.size[problem.tensor[:uses]], n)
    moves = problem.may_repeat & (moved > 0)
    rate = problem.ticks / np.maximum(moved, 1)
    return ~moves | (rate <= HEAVY * np.median(rate[moves])) if moves.any() else ~moves


def min_cut(problem: Problem, may_recompute: Bool[np.ndarray, " N"] | None = None) -> Choices:
    """Return the candidate that holds the fewest bytes across the turning point.

    Of such sets of held values it takes the one for which the fewest ops run again.

    Args:
      problem: one problem.
      may_recompute: ops that may run again, if the problem allows it too, bool `[N]`; by default
        `cheap`.
    """
    half = halves(problem)
    allowed = cheap(problem) if may_recompute is None else np.asarray(may_recompute, bool)
    return again_after(problem, half.turn, least_cut(problem, half, allowed))


def least_cut(
    problem: Problem, half: Halves, may_recompute: Bool[np.ndarray, " N"]
) -> Bool[np.ndarray, " N"]:
    """Return the ops that run again if the fewest bytes are held, bool `[N]`.

    Args:
      problem: one problem.
      half: its halves.
      may_recompute: ops that may run again, if the problem allows it too, bool `[N]`.
    """
    turn, links = half.turn, int(problem.num_links)
    size = capacities(problem)
    maker, reader = problem.maker[:links], problem.reader[:links]
    is_inside = problem.is_read[:links] & (maker < turn)
    maker, reader = maker[is_inside].astype(int), reader[is_inside].astype(int)
    ops = np.arange(turn)
    fixed = np.flatnonzero(~(may_recompute & half.droppable)[:turn])
    endless = int(size.sum()) + 1
    readers = np.where(reader < turn, _before(reader), SINK)
    edges = [
        _edges(SOURCE, _before(fixed), endless),
        _edges(_before(ops), _after(ops), size[:turn]),
        _edges(_after(maker), readers, endless),
    ]
    needed = _reaching_sink(np.concatenate(edges, axis=1), 2 + 2 * turn)
    again = np.zeros(problem.num_rows, bool)
    again[:turn] = needed[_before(ops)] & needed[_after(ops)]
    return again


def _before(op: np.ndarray) -> np.ndarray:
    return 2 + 2 * op


def _after(op: np.ndarray) -> np.ndarray:
    return 3 + 2 * op


def capacities(problem: Problem) -> np.ndarray:
    """Return the bytes to hold of each op, scaled, int64 `[N]`; arguments and results are free."""
    read = np.zeros(len(problem.size), bool)
    read[problem.tensor[: int(problem.num_uses)]] = True
    is_free = problem.pinned | problem.is_input[problem.producer] | ~read
    size = np.zeros(problem.num_rows, np.int64)
    np.add.at(size, problem.producer, np.where(is_free, 0, problem.size))
    scale = -(-int(size.sum()) // (LIMIT - len(size)))
    return -(-size // max(scale, 1))


def _edges(tail: Any, head: Any, capacity: Any) -> np.ndarray:
    return np.stack(np.broadcast_arrays(tail, head, capacity))


def _reaching_sink(edges: np.ndarray, nodes: int) -> Bool[np.ndarray, " nodes"]:
    """Return the nodes on the sink's side of the least cut that is nearest to the sink."""
    tail, head, capacity = np.unique(edges, axis=1)  # equal edges are one
    network = sparse.csr_matrix((capacity.astype(np.int32), (tail, head)), (nodes, nodes))
    network.eliminate_zeros()
    flow = csgraph.maximum_flow(network, SOURCE, SINK).flow
    left = (network - flow).tocsr()
    left.eliminate_zeros()
    order = csgraph.breadth_first_order(left.T.tocsr(), SINK, return_predecessors=False)
    found = np.zeros(nodes, bool)
    found[order] = True
    return found
