"""Ops that are best kept on one device: by what they read, and by what goes between them.

A move of a group changes a placement where a move of one op only adds transfers. `coarse_to_fine`
has groups of several sizes, down to single ops.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gopt.cost.schedule.problem import Problem
from gopt.heuristics.schedule.placement.list_scheduling import mean_ticks, mean_transfer_ticks

_FEW = 50  # in a round that joins less than one of so many groups, connected pairs are few
_DEAR = 0.02  # share of the time of its readers from which an input is dear to send; our choice


def coarse_to_fine(problem: Problem, counts: Sequence[int]) -> list[np.ndarray]:
    """Returns groups of ops for each of these counts, numbered from 0, int32 `[n]`; on the host.

    The first has groups that read the same weights (`weight_groups`), joined until there are so
    few; the others have single ops, joined likewise. A graph may have fewer groups.

    Args:
      problem: one problem of n real ops.
      counts: how many groups there may be.
    """
    ops = np.arange(int(problem.num_ops))
    return [
        join(problem, ops if k else weight_groups(problem), count).astype(np.int32)
        for k, count in enumerate(counts)
    ]


def weight_groups(problem: Problem) -> np.ndarray:
    """Returns a group for each op: those that read one weight, and what hangs on them, int64 `[n]`.

    A weight is an input that is dear to send: its transfer takes more than `_DEAR` of the time of
    its readers. So all steps of an unrolled layer are one group; what accumulates the gradient of
    its weight is another, if an optimizer keeps a state of it. Other ops join the group with which
    the heaviest chain of tensors connects them. Frameworks, too, keep a variable and its readers
    together; the rest is our choice.
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
    while queue:  # a heaviest spanning forest that grows from the weights
        _, op, group_of = heapq.heappop(queue)
        if found[op] < 0:
            found[op] = group_of
            for weight, other in near[op]:
                if found[other] < 0:
                    heapq.heappush(queue, (weight, other, group_of))
    alone = n + np.arange(n)  # what no weight is connected with
    return np.unique(np.where(np.array(found) < 0, alone, found), return_inverse=True)[1]


def join(problem: Problem, group: np.ndarray, count: int) -> np.ndarray:
    """Returns groups joined in pairs, the most connected first, until `count` are left, `[n]`.

    Nothing is joined that would take more than half of the fair share of a device, and more than
    three times what a group takes on average in the end. Where pairs that are connected become few,
    the groups that take least are put together up to that limit, whether connected or not; if that
    leaves too many, without the limit.

    Args:
      problem: one problem of n real ops.
      group: of each op, numbered from 0, `[n]`.
      count: of groups.

    Source: heavy-edge matching of Karypis and Kumar, "A fast and high quality multilevel scheme
    for partitioning irregular graphs", SIAM Journal on Scientific Computing 20 (1998).
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
        if left - joined > count and joined < left // _FEW + 1:  # as around a hub
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
    """Returns which group each becomes, the heaviest pairs joined, until `count` are left."""
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
    """Returns which group each becomes, from the lightest on, until `count` are left."""
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
    """Returns the sum of the weights `[E]` of each pair of different groups, and the pairs."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    count = int(high.max(initial=0)) + 1
    pairs, place = np.unique(low.astype(np.int64) * count + high, return_inverse=True)
    total = np.bincount(place, weight, minlength=pairs.size)
    apart = pairs // count != pairs % count
    return total[apart], pairs[apart] // count, pairs[apart] % count
