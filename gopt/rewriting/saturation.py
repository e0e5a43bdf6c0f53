"""Equality saturation: all that rules make of a program, side by side, and the cheapest of it.

After Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (Tensat):
rules of several patterns are limited, and what is cheapest is found as an integer program. Needs
the extra `rewriting`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.costs import OpCost
from gopt.rewriting.egraph import EGraph
from gopt.rewriting.extraction import cheapest
from gopt.rewriting.found import Found
from gopt.rewriting.matching import Match, replacements
from gopt.rewriting.pricing import Prices
from gopt.rewriting.rules import RULES, Rule
from gopt.rewriting.terms import Terms


class Saturated(NamedTuple):
    """A program with all that rules made of it."""

    graph: EGraph
    origin: dict[int, str]  # names of rules, by the terms that they put somewhere
    rounds: int
    stopped: str  # why


def saturate(
    terms: Terms,
    roots: Sequence[int],
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    joined: int = 4,
    nodes: int = 10_000,
) -> Saturated:
    """Returns what rules make of a program, all at once.

    Args:
      terms: to which those that rules put somewhere are added.
      roots: results of the program.
      rules: that are applied.
      rounds: in each, rules are applied everywhere.
      joined: how many terms those of several patterns make one, at most.
      nodes: no more than so many terms, a fifth of Tensat's: most of more are orders of sums.

    Raises:
      ValueError: a number is negative.
    """
    if min(rounds, joined, nodes) < 0:
        raise ValueError(f"expected 0 at least: rounds {rounds}, joined {joined}, nodes {nodes}")
    graph, origin = EGraph(terms, rules), dict[int, str]()
    graph.add(terms.live(roots))
    for k in range(rounds):
        before, equal = len(terms), []
        for found in graph.matches():
            if len(found.terms) > 1 and not _joins(terms, found, joined):
                continue
            if len(graph.numbers) + len(terms) - before > nodes:
                break
            for old, new in replacements(terms, found).items():
                origin.setdefault(new, found.rule.name)
                equal.append((old, new))
        equal.extend(graph.views())
        added = range(before, len(terms))
        graph.add(added, equal)
        if len(graph.numbers) > nodes:
            return Saturated(graph, origin, k + 1, f"there are more than {nodes} terms")
        if not added and not equal:
            return Saturated(graph, origin, k + 1, "nothing is left to be rewritten")
    return Saturated(graph, origin, rounds, f"there were {rounds} rounds")


def saturation(
    terms: Terms,
    roots: Sequence[int],
    cost: OpCost,
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    joined: int = 4,
    nodes: int = 10_000,
    effort: float = 60.0,
) -> Found:
    """Returns the cheapest program that saturation has, see `saturate`.

    Args:
      terms: to which those of other programs are added.
      roots: results of the program.
      cost: of an op.
      rules: that are applied.
      rounds: see `saturate`.
      joined: see `saturate`.
      nodes: see `saturate`.
      effort: of the solver, about s, but the same on every machine.

    Raises:
      ValueError: a number is negative.
    """
    saturated = saturate(terms, roots, rules, rounds=rounds, joined=joined, nodes=nodes)
    best = cheapest(saturated.graph, roots, Prices(terms, cost), effort=effort)
    used = tuple(saturated.origin[k] for k in best.chosen if k in saturated.origin)
    stopped = saturated.stopped
    if best.gap:
        stopped += f"; of that another program could cost {best.gap:.1%} less"
    return Found(best.roots, best.cost, used, len(saturated.graph.numbers), stopped)


def _joins(terms: Terms, found: Match, most: int) -> bool:
    """Returns whether what a match of two patterns joins are few terms, in their order, each once.

    So that of all orders in which several may be joined, one is.
    """
    sides = [pattern.names() for pattern in found.rule.source]
    one, other = (
        [part for name in names - rest for part in _parts(terms, found.bound[name])]
        for names, rest in (sides, sides[::-1])
    )
    return len(one) + len(other) <= most and max(one) < min(other)


def _parts(terms: Terms, number: int) -> tuple[int, ...]:
    term = terms[number]
    return term.inputs if term.operator == "concat" else (number,)
