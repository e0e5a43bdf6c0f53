"""The cheapest program in an e-graph, as an integer program."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from gopt.rewriting.cost.pricing import Prices
from gopt.rewriting.search.egraph import EGraph

_CHANGE = 1e-12  # s, for each new term: of programs that cost the same, one like that before
_TIE = 1e-6  # share of a cost that is proven

# The terms of each class, each with the classes that it reads.
Choices = dict[int, dict[int, tuple[int, ...]]]


class Extracted(NamedTuple):
    """The cheapest program that was found."""

    roots: tuple[int, ...]
    cost: float  # s
    chosen: tuple[int, ...]  # terms that it is made of, of those in the e-graph
    gap: float  # by what share of its cost another one could be cheaper; 0 if it is proven


def cheapest(
    graph: EGraph, roots: Sequence[int], prices: Prices, *, seconds: float = 60.0
) -> Extracted:
    """Returns the cheapest program of an e-graph.

    For each class that is needed one term is chosen, and the classes of what it reads are needed,
    too; none may need itself. What is known before the program runs costs nothing, and is not
    chosen: the first term of its class is taken.

    Args:
      graph: all terms, with what is equal.
      roots: results of a program in it.
      prices: of its terms.
      seconds: after which the best so far is taken.
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
    return Extracted(found, prices.program(found), tuple(sorted(chosen)), gap)


def _choices(graph: EGraph, roots: Iterable[int], classes: Mapping[int, int]) -> Choices:
    """Returns the choices of all classes that the roots may need, but for those known before."""
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
    """Returns the choices without those that cost no less than one that reads no more.

    The first of each stay: together they are a program.
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
    """Returns a term for each class that is needed, and by what share others could be cheaper.

    Args:
      choices: the terms of each class; one of them has the number of the class, and these read
        each other without a cycle.
      roots: classes that are needed.
      costs: of terms; infinite ones are never taken, but where there is no other program.
      seconds: after which the best so far is taken: at first, terms with the numbers of classes.
    """
    if not roots & choices.keys():
        return {}, 0.0
    first = {c: c for c in _needed(choices, roots)}
    before = sum(costs[c] for c in first)
    if not before:
        return first, 0.0
    if not math.isfinite(before):
        before = sum(filter(math.isfinite, costs.values()))
    taken, needed, ranks, constraints = _program(choices)
    variables = len(taken) + len(needed) + len(ranks)
    cost, low, high = np.zeros(variables), np.zeros(variables), np.ones(variables)
    for k, j in taken.items():
        cost[j] = costs[k] / before if costs[k] <= before else 0.0
        high[j] = costs[k] <= before  # what costs more than all is never taken
    low[[needed[c] for c in roots & choices.keys()]] = 1
    high[list(ranks)] = list(ranks.values())
    whole = np.zeros(variables)
    whole[list(taken.values())] = 1  # then the others are as well
    solved = milp(
        cost,
        constraints=constraints,
        bounds=Bounds(low, high),
        integrality=whole,
        options={"time_limit": seconds, "mip_rel_gap": _TIE},
    )
    bound = min(max(solved.mip_dual_bound or 0.0, 0.0), 1.0)
    if solved.x is None or solved.fun > 1:
        return first, 1 - bound
    found = {
        c: next(k for k in members if solved.x[taken[k]] > 0.5)
        for c, members in choices.items()
        if solved.x[needed[c]] > 0.5
    }
    return found, max(1 - bound / solved.fun, 0.0) if solved.fun else 0.0


def _program(
    choices: Choices,
) -> tuple[dict[int, int], dict[int, int], dict[int, int], LinearConstraint]:
    """Returns what a choice has to keep.

    Its variables, by number: whether each term is taken; whether each class is needed; and of
    classes that may need each other a rank, smaller than that of its readers. Of these the largest
    value is returned.
    """
    taken = {k: j for j, k in enumerate(k for members in choices.values() for k in members)}
    needed = {c: len(taken) + j for j, c in enumerate(choices)}
    together = _cycles(choices)
    size = np.bincount(list(together.values()))
    inside = [c for c, group in together.items() if size[group] > 1]
    rank = {c: len(taken) + len(needed) + j for j, c in enumerate(inside)}

    rows: list[tuple[dict[int, float], float, float]] = []  # of variables, least and most
    for c, members in choices.items():
        rows.append(({needed[c]: -1, **{taken[k]: 1 for k in members}}, 0, 0))
        readers = defaultdict[int, list[int]](list)
        for k, read in members.items():
            for i in read:
                readers[i].append(k)
                if together[i] == together[c]:  # what is read has a smaller rank
                    most = float(size[together[c]])
                    rows.append(({rank[c]: 1, rank[i]: -1, taken[k]: -most}, 1 - most, np.inf))
        for i, reading in readers.items():  # as one is taken, tighter than for each of them
            rows.append(({needed[i]: -1, **{taken[k]: 1 for k in reading}}, -np.inf, 0))
    entries = [(row, at, x) for row, (each, _, _) in enumerate(rows) for at, x in each.items()]
    row, column, value = np.array(entries).reshape(-1, 3).T
    shape = len(rows), len(taken) + len(needed) + len(rank)
    matrix = csr_matrix((value, (row.astype(int), column.astype(int))), shape)
    ranks = {j: int(size[together[c]]) - 1 for c, j in rank.items()}
    limits = np.array([each[1:] for each in rows]).T
    return taken, needed, ranks, LinearConstraint(matrix, *limits)


def _needed(choices: Choices, roots: Iterable[int]) -> set[int]:
    """Returns the classes that are needed if the first term is taken of each."""
    found, stack = set[int](), [c for c in roots if c in choices]
    while stack:
        c = stack.pop()
        if c not in found:
            found.add(c)
            stack.extend(choices[c][c])
    return found


def _cycles(choices: Choices) -> dict[int, int]:
    """Returns the number of a group for each class: the same if each may need the other."""
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
    """Returns the classes of a program, each after those that it reads."""
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
