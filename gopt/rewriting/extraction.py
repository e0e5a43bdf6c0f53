"""The cheapest program in an e-graph, as an integer program."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gopt.rewriting.egraph import EGraph
from gopt.rewriting.pricing import Prices

_UNIT = 1e-10  # s: costs are integers for the solver

# The terms of each class, each with the classes that it reads.
Choices = dict[int, dict[int, tuple[int, ...]]]


class Extracted(NamedTuple):
    """The cheapest program that was found."""

    roots: tuple[int, ...]
    cost: float  # s
    chosen: tuple[int, ...]  # terms that it is made of, of those in the e-graph
    gap: float  # by what share of its cost another one could be cheaper; 0 if it is proven


def cheapest(
    graph: EGraph, roots: Sequence[int], prices: Prices, *, effort: float = 60.0
) -> Extracted:
    """Returns the cheapest program of an e-graph.

    For each class that is needed one term is chosen, and the classes of what it reads are needed,
    too; none may need itself. What is known before the program runs costs nothing, and is not
    chosen: the first term of its class is taken.

    Args:
      graph: all terms, with what is equal.
      roots: results of a program in it.
      prices: of its terms.
      effort: of the solver, about s, but the same on every machine.
    """
    classes = graph.classes()
    wanted = {classes[root] for root in roots}
    choices = _choices(graph, wanted, classes)
    before = set(graph.terms.live(roots))
    costs = {  # of programs that cost the same, the one most like that before
        k: round(prices.term(k) / _UNIT) + (k not in before) for m in choices.values() for k in m
    }
    choices = _without_worse(choices, costs)
    solved, gap = choose(choices, wanted, costs, effort)
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


def _without_worse(choices: Choices, costs: Mapping[int, int]) -> Choices:
    """Returns the choices without those that cost no less than one that reads no more."""
    left: Choices = {}
    for c, members in choices.items():
        left[c] = {}
        for k in sorted(members, key=lambda k: (costs[k], len(members[k]), k)):
            if not any(set(read) <= set(members[k]) for read in left[c].values()):
                left[c][k] = members[k]
    return left


def choose(
    choices: Choices, roots: set[int], costs: Mapping[int, int], effort: float = 60.0
) -> tuple[dict[int, int], float]:
    """Returns a term for each class that is needed, and by what share others could be cheaper.

    Args:
      choices: the terms of each class; one of them has the number of the class, and these read
        each other without a cycle.
      roots: classes that are needed.
      costs: of terms.
      effort: see `cheapest`.
    """
    model = cp_model.CpModel()
    needed = {c: model.new_bool_var("") for c in choices}
    taken = {k: model.new_bool_var("") for members in choices.values() for k in members}
    together = _cycles(choices)
    size = np.bincount(list(together.values()))
    rank = {
        c: model.new_int_var(0, int(size[group]) - 1, "")
        for c, group in together.items()
        if size[group] > 1
    }
    for c, members in choices.items():
        model.add(sum(taken[k] for k in members) == needed[c])
        readers = defaultdict[int, list[int]](list)
        for k, read in members.items():
            model.add_hint(taken[k], k == c)  # the program that there was
            for i in read:
                readers[i].append(k)
                if together[i] == together[c]:
                    model.add(rank[c] > rank[i]).only_enforce_if(taken[k])
        for i, reading in readers.items():  # as one is taken, tighter than for each of them
            model.add(sum(taken[k] for k in reading) <= needed[i])
    for c in roots & choices.keys():
        model.add(needed[c] == 1)
    model.minimize(sum(costs[k] * take for k, take in taken.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2  # the relaxation is nearly tight
    solver.parameters.max_deterministic_time = effort
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {c: c for c in choices}, 1.0
    gap = (solver.objective_value - solver.best_objective_bound) / max(solver.objective_value, 1)
    solved = {c: k for c, members in choices.items() for k in members if solver.value(taken[k])}
    return solved, max(gap, 0.0)


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
