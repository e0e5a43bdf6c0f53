"""Groups of ops that belong on one device, by shared weights and by transferred data.

Moving a whole group changes a placement where moving one op only adds transfers. `coarse_to_fine`
returns groups of several sizes, down to single ops.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, Shaped
from scipy import sparse
from scipy.sparse import csgraph

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.list_scheduling import mean_ticks, mean_transfer_ticks

_FEW = 50  # a round that joins less than one in this many groups has few connected pairs
# Transfer time from which an input is a weight, as a share of its readers' time; our choice.
_DEAR = 0.02


def coarse_to_fine(problem: Problem, counts: Sequence[int]) -> list[np.ndarray]:
    """Return a grouping of the ops for each of several counts, numbered from 0, int32 `[n]` each.

    The first grouping joins groups that read the same weights (`weight_groups`) until `counts[0]`
    are left. The others join single ops in the same way. A graph may have fewer groups.

    Args:
      problem: one problem of n real ops, as NumPy arrays.
      counts: maximum number of groups in each grouping.
    """
    ops = np.arange(int(problem.num_ops))
    return [
        join_groups(problem, ops if k else weight_groups(problem), count).astype(np.int32)
        for k, count in enumerate(counts)
    ]


def weight_groups(problem: Problem) -> Int64[np.ndarray, " n"]:
    """Group the readers of one weight with the ops attached to them; return int64 `[n]`.

    A weight is an input whose transfer takes more than `_DEAR` of its readers' time. All steps of
    an unrolled layer are therefore one group. If an optimizer keeps a state for the weight, the ops
    that accumulate its gradient are another group. Other ops join the group that the heaviest chain
    of tensors connects them with. Frameworks also keep a variable and its readers together; the
    rest is our choice.
    """
    n, t, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    producer = np.asarray(problem.producer)[:t]
    tensor, consumer = np.asarray(problem.tensor)[:uses], np.asarray(problem.consumer)[:uses]
    maker = producer[tensor]
    sent = mean_transfer_ticks(problem)[:t]
    work = np.bincount(tensor, mean_ticks(problem)[consumer], minlength=t)
    is_weight = np.asarray(problem.is_input)[producer] & (sent > _DEAR * work)
    shared = is_weight[tensor]
    ends = maker[shared], consumer[shared]
    readers = sparse.coo_matrix((np.ones(shared.sum()), ends), (n, n))
    _, group = csgraph.connected_components(readers, directed=False)
    settled = np.zeros(n, bool)
    settled[np.concatenate(ends)] = True

    near: list[list[tuple[float, int]]] = [[] for _ in range(n)]
    for i, j, weight in zip(maker.tolist(), consumer.tolist(), sent[tensor].tolist(), strict=True):
        near[i].append((-weight, j))
        near[j].append((-weight, i))
    found = np.where(settled, group, -1).tolist()
    queue = [(w, j, found[i]) for i in np.flatnonzero(settled).tolist() for w, j in near[i]]
    heapq.heapify(queue)
    while queue:  # grow a heaviest spanning forest from the weights
        _, op, group_of = heapq.heappop(queue)
        if found[op] < 0:
            found[op] = group_of
            for weight, other in near[op]:
                if found[other] < 0:
                    heapq.heappush(queue, (weight, other, group_of))
    alone = n + np.arange(n)  # ops that are not connected with any weight
    return np.unique(np.where(np.array(found) < 0, alone, found), return_inverse=True)[1]


def join_groups(problem: Problem, group: Shaped[np.ndarray, " n"], count: int) -> np.ndarray:
    """Join pairs of groups, the most connected first, until `count` are left; return int `[n]`.

    The time of a joined group has a limit: half of a device's fair share, or three times the mean
    of the final groups, if larger. When few connected pairs are left, the shortest groups are
    joined up to that limit, connected or not. If too many groups remain, the limit is dropped.

    Args:
      problem: one problem of n real ops.
      group: group of each op, numbered from 0, `[n]`.
      count: number of groups to reach.

    Source: heavy-edge matching of Karypis and Kumar, "A fast and high quality multilevel scheme for
    partitioning irregular graphs", SIAM Journal on Scientific Computing 20 (1998).
    """
    ticks = mean_ticks(problem)[: int(problem.num_ops)]
    limit = ticks.sum() * max(0.5 / problem.num_devices, 3 / count)
    tensor = np.asarray(problem.tensor)[: int(problem.num_uses)]
    ends = np.asarray(problem.producer)[tensor], np.asarray(problem.consumer)[: tensor.size]
    sent = mean_transfer_ticks(problem)[tensor]
    group = np.asarray(group)
    while (left := int(group.max()) + 1) > count:  # type: ignore[call-overload]
        of_group = np.bincount(group, ticks, minlength=left)
        new = _matched(*_pairs(group[ends[0]], group[ends[1]], sent), of_group, limit, count)
        joined = left - np.unique(new).size
        if left - joined > count and joined < left // _FEW + 1:  # happens around a hub
            new = _packed(of_group, limit, count)
            if (new == np.arange(left)).all():
                limit = np.inf  # type: ignore[assignment]
        group = np.unique(new[group], return_inverse=True)[1]
    return group


def _matched(
    weight: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    of_group: np.ndarray,
    limit: float,
    count: int,
) -> np.ndarray:
    """Return the new number of each group; the heaviest pairs join until `count` are left."""
    left = of_group.size
    taken, new = np.zeros(left, bool), np.arange(left)
    for k in np.argsort(-weight, kind="stable").tolist():
        if left <= count:
            break
        i, j = first[k], second[k]
        if not (taken[i] or taken[j]) and of_group[i] + of_group[j] <= limit:
            taken[i] = taken[j] = True
            new[j] = i
            left -= 1
    return new


def _packed(of_group: np.ndarray, limit: float, count: int) -> np.ndarray:
    """Return the new number of each group; the shortest join until `count` are left."""
    left, new = of_group.size, np.arange(of_group.size)
    order = np.argsort(of_group, kind="stable").tolist()
    head, total = order[0], of_group[order[0]]
    for group in order[1:]:
        if left > count and total + of_group[group] <= limit:
            new[group] = head
            total += of_group[group]
            left -= 1
        else:
            head, total = group, of_group[group]
    return new


def _pairs(
    one: np.ndarray, other: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum the weights `[E]` over each pair of different groups; return the sums and the pairs."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    count = int(high.max(initial=0)) + 1
    pairs, place = np.unique(low.astype(np.int64) * count + high, return_inverse=True)
    total = np.bincount(place, weight, minlength=pairs.size)
    apart = pairs // count != pairs % count
    return total[apart], pairs[apart] // count, pairs[apart] % count
