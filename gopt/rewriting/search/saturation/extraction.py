"""Extract the cheapest program from an e-graph by integer programming."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.search.saturation.choice import Choices, choose
from gopt.rewriting.search.saturation.egraph import EGraph

_CHANGE = 1e-12  # s per new term: among programs of equal cost, prefer the original terms


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
