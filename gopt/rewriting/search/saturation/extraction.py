"""Extract the cheapest program from an e-graph by integer programming."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.search.saturation.egraph import EGraph
from gopt.rewriting.search.saturation.interruptible import interruptible

_CHANGE = 1e-12  # s per new term: among programs of equal cost, prefer the original terms
PROVEN = 1e-6  # relative gap within which a cost counts as proven

# E-class to its terms, each with the e-classes that it reads.
Choices = dict[int, dict[int, tuple[int, ...]]]


class Extraction(NamedTuple):
    """A program of an e-graph, the cheapest one that was found.

    Attributes:
      roots: results of the program, as terms.
      cost: cost of the program, in s.
      chosen: terms of the e-graph that were chosen.
      gap: share of the cost by which another program may be cheaper; 0 if proven optimal.
    """

    roots: tuple[int, ...]
    cost: float
    chosen: tuple[int, ...]
    gap: float


def cheapest(
    graph: EGraph, roots: Sequence[int], prices: TermCosts, *, seconds: float = 60.0
) -> Extraction:
    """Return the cheapest program of an e-graph.

    One term is chosen for each e-class that is needed; the e-classes of its inputs are then needed
    too. Cycles are excluded. A constant costs nothing and is not chosen: its e-class's
    representative is taken.

    Args:
      graph: e-graph.
      roots: results of a program in it.
      prices: costs of terms.
      seconds: time limit of the solver in s, after which the best program so far is taken. In 0 s,
        shared terms count as often as they are read.
    """
    classes = graph.classes()
    wanted = {classes[root] for root in roots}
    choices = _choices(graph, wanted, classes)
    before = set(graph.terms.live(roots))
    costs = {
        k: prices.term(k) + (_CHANGE if k not in before else 0.0)
        for members in choices.values()
        for k in members
    }
    choices = _without_worse(choices, costs)
    solved, gap = choose(choices, wanted, costs, seconds)
    chosen, done = set[int](), dict[int, int]()
    for c in _inputs_first(choices, solved):
        number = solved[c]
        operator, attributes, inputs = graph.terms[number]
        chosen.add(number)
        given = [done.get(classes[i], classes[i]) for i in inputs]
        done[c] = graph.terms.add(operator, given, **dict(attributes)) if inputs else number
    found = tuple(done.get(classes[root], classes[root]) for root in roots)
    return Extraction(found, prices.program(found), tuple(sorted(chosen)), gap)


def _choices(graph: EGraph, roots: Iterable[int], classes: Mapping[int, int]) -> Choices:
    """Return the choices of all non-constant e-classes that the roots may need."""
    terms, members = graph.terms, dict[int, list[int]]()
    for number in graph.numbers:
        members.setdefault(classes[number], []).append(number)
    choices: Choices = {}
    stack = list(roots)
    while stack:
        c = stack.pop()
        if c in choices or terms.constant[c]:
            continue
        different: dict[tuple[object, ...], int] = {}
        for number in members[c]:
            operator, attributes, inputs = terms[number]
            read = tuple(classes[i] for i in inputs)
            if c not in read:
                different.setdefault((operator, attributes, read), number)
        choices[c] = {
            number: tuple(sorted({i for i in key[-1] if not terms.constant[i]}))  # type: ignore
            for key, number in different.items()
        }
        stack.extend(i for read in choices[c].values() for i in read)
    return choices


def _without_worse(choices: Choices, costs: Mapping[int, float]) -> Choices:
    """Drop each choice that costs at least as much as another one that reads no more.

    The representatives stay: together they are a program.
    """
    left: Choices = {}
    for c, members in choices.items():
        left[c] = {}
        for k in sorted(members, key=lambda k: (costs[k], len(members[k]), k)):
            if k == c or not any(set(read) <= set(members[k]) for read in left[c].values()):
                left[c][k] = members[k]
    return left


def choose(
    choices: Choices, roots: set[int], costs: Mapping[int, float], seconds: float = 60.0
) -> tuple[dict[int, int], float]:
    """Choose a term for each needed e-class; return the choice and the remaining gap.

    Args:
      choices: terms of each e-class. One of them has the number of the e-class; these
        representatives read each other without a cycle.
      roots: needed e-classes.
      costs: costs of terms; one of infinite cost is chosen only if no other program exists.
      seconds: time limit in s, after which the best so far is taken: at first the representatives,
        or a greedy choice.

    Returns:
      The chosen term of each needed e-class, and the share of the cost by which another choice may
      be cheaper.
    """
    if not roots & choices.keys():
        return {}, 0.0
    first = {c: c for c in _needed(choices, roots)}
    if not sum(costs[c] for c in first.values()):
        return first, 0.0
    greedy = _greedy(choices, roots, costs) or first
    best = min(first, greedy, key=lambda found: sum(costs[k] for k in found.values()))
    before = sum(costs[k] for k in best.values())
    if not before or not seconds:
        return best, float(before > 0)
    if not math.isfinite(before):
        before = sum(filter(math.isfinite, costs.values()))
    taken, needed, ranks, constraints = _program(choices)
    variables = len(taken) + len(needed) + len(ranks)
    cost, low, high = np.zeros(variables), np.zeros(variables), np.ones(variables)
    for k, j in taken.items():
        cost[j] = costs[k] / before if costs[k] <= before else 0.0
        high[j] = costs[k] <= before  # costs more than the whole program: never taken
    low[[needed[c] for c in roots & choices.keys()]] = 1
    high[list(ranks)] = list(ranks.values())
    whole = np.zeros(variables)
    whole[list(taken.values())] = 1  # the other variables are then whole as well
    solved = interruptible(
        partial(
            milp,
            cost,
            constraints=constraints,
            bounds=Bounds(low, high),
            integrality=whole,
            options={"time_limit": seconds, "mip_rel_gap": PROVEN},
        )
    )
    bound = min(max(solved.mip_dual_bound or 0.0, 0.0), 1.0)
    if solved.x is None or solved.fun > 1:
        return best, 1 - bound
    found = {
        c: next(k for k in members if solved.x[taken[k]] > 0.5)
        for c, members in choices.items()
        if solved.x[needed[c]] > 0.5
    }
    return found, max(1 - bound / solved.fun, 0.0) if solved.fun else 0.0


def _greedy(choices: Choices, roots: set[int], costs: Mapping[int, float]) -> dict[int, int] | None:
    """Return a choice that is cheapest if shared terms count as often as they are read.

    None if every program has an infinite cost.
    """
    readers = defaultdict[int, list[tuple[int, int]]](list)
    missing, total = dict[int, int](), dict[int, float]()
    queue = list[tuple[float, int, int]]()  # (cost, term, e-class)
    for c, members in choices.items():
        for k, read in members.items():
            missing[k], total[k] = len(read), costs[k]
            if not read:
                queue.append((costs[k], k, c))
            for i in read:
                readers[i].append((k, c))
    heapq.heapify(queue)
    found = dict[int, int]()
    while queue:  # cheapest e-classes first: what they read is chosen before
        least, number, at = heapq.heappop(queue)
        if at in found or not math.isfinite(least):
            continue
        found[at] = number
        for k, c in readers[at]:
            missing[k], total[k] = missing[k] - 1, total[k] + least
            if not missing[k]:
                heapq.heappush(queue, (total[k], k, c))
    if not found.keys() >= roots & choices.keys():
        return None
    return {c: found[c] for c in _needed(choices, roots, found)}


def _program(
    choices: Choices,
) -> tuple[dict[int, int], dict[int, int], dict[int, int], LinearConstraint]:
    """Return the variables and constraints of the integer program.

    Variables are: whether each term is taken; whether each e-class is needed; and a rank for
    e-classes that may need each other, smaller than the ranks of their readers.

    Returns:
      Variable of each term, variable of each e-class, largest value of each rank variable, and the
      constraints.
    """
    taken = {k: j for j, k in enumerate(k for members in choices.values() for k in members)}
    needed = {c: len(taken) + j for j, c in enumerate(choices)}
    together = _cycles(choices)
    size = np.bincount(list(together.values()))
    inside = [c for c, group in together.items() if size[group] > 1]
    rank = {c: len(taken) + len(needed) + j for j, c in enumerate(inside)}

    # (coefficients, lower bound, upper bound).
    rows: list[tuple[dict[int, float], float, float]] = []
    for c, members in choices.items():
        rows.append(({needed[c]: -1, **{taken[k]: 1 for k in members}}, 0, 0))
        readers = defaultdict[int, list[int]](list)
        for k, read in members.items():
            for i in read:
                readers[i].append(k)
                if together[i] == together[c]:  # an input's rank is smaller
                    most = float(size[together[c]])
                    rows.append(({rank[c]: 1, rank[i]: -1, taken[k]: -most}, 1 - most, np.inf))
        for i, reading in readers.items():  # at most one is taken: tighter than one row for each
            rows.append(({needed[i]: -1, **{taken[k]: 1 for k in reading}}, -np.inf, 0))
    entries = [(row, at, x) for row, (each, _, _) in enumerate(rows) for at, x in each.items()]
    row, column, value = np.array(entries).reshape(-1, 3).T
    shape = len(rows), len(taken) + len(needed) + len(rank)
    matrix = csr_matrix((value, (row.astype(int), column.astype(int))), shape)
    ranks = {j: int(size[together[c]]) - 1 for c, j in rank.items()}
    limits = np.array([each[1:] for each in rows]).T
    return taken, needed, ranks, LinearConstraint(matrix, *limits)


def _needed(
    choices: Choices, roots: Iterable[int], chosen: Mapping[int, int] | None = None
) -> set[int]:
    """Return the e-classes that are needed by a choice, by default of the representatives."""
    found, stack = set[int](), [c for c in roots if c in choices]
    while stack:
        c = stack.pop()
        if c not in found:
            found.add(c)
            stack.extend(choices[c][chosen[c] if chosen else c])
    return found


def _cycles(choices: Choices) -> dict[int, int]:
    """Return a group number for each e-class, equal for e-classes that may need each other."""
    number = {c: k for k, c in enumerate(choices)}
    pairs = [
        (number[c], number[i])
        for c, members in choices.items()
        for read in members.values()
        for i in read
    ]
    row, column = np.array(pairs, int).reshape(-1, 2).T
    edges = coo_matrix((np.ones(len(row)), (row, column)), shape=(len(number), len(number)))
    _, group = connected_components(edges, connection="strong")
    return {c: int(group[k]) for c, k in number.items()}


def _inputs_first(choices: Choices, solved: Mapping[int, int]) -> list[int]:
    """Return the e-classes of a program, inputs first."""
    order, done = list[int](), set[int]()
    for c in solved:
        stack = [(c, False)]
        while stack:
            at, ready = stack.pop()
            if ready:
                order.append(at)
            elif at not in done:
                done.add(at)
                stack.append((at, True))
                stack.extend((i, False) for i in choices[at][solved[at]])
    return order
