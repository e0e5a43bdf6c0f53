"""Equality saturation: all that rules make of a program, side by side, and the cheapest of it.

After Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (Tensat):
rules of two patterns are limited, and what is cheapest is found as an integer program. Needs
the extra `rewriting`.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.costs import OpCost
from gopt.rewriting.egraph import EGraph
from gopt.rewriting.extraction import cheapest
from gopt.rewriting.found import Found
from gopt.rewriting.joining import Joins
from gopt.rewriting.matching import replacements
from gopt.rewriting.pricing import Prices
from gopt.rewriting.rules import RULES, Rule
from gopt.rewriting.terms import Terms


class Saturated(NamedTuple):
    """A program with all that rules made of it."""

    graph: EGraph
    origin: dict[int, str]  # names of rules, by the terms that they put somewhere
    stopped: str  # why


def saturate(
    terms: Terms,
    roots: Sequence[int],
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    few: int = 2,
    nodes: int = 15_000,
) -> Saturated:
    """Returns what rules make of a program, all at once.

    Args:
      terms: to which those that rules put somewhere are added.
      roots: results of the program.
      rules: that are applied.
      rounds: in each, rules are applied everywhere.
      few: those of two patterns are tried on all sets of so many terms, and on all together.
      nodes: no more than so many terms; most of more are orders of sums.

    Raises:
      ValueError: a number is negative.
    """
    if min(rounds, few, nodes) < 0:
        raise ValueError(f"expected 0 at least: rounds {rounds}, few {few}, nodes {nodes}")
    graph, joins, origin = EGraph(terms, rules), Joins(terms, few), dict[int, str]()
    graph.add(terms.live(roots))
    stopped = f"there were {rounds} rounds"
    for _ in range(rounds):
        before, equal = len(terms), list[tuple[int, int]]()

        def is_full(before: int = before) -> bool:
            return len(graph.numbers) + len(terms) - before >= nodes

        found = list(graph.matches())
        alone = [each for each in found if len(each.terms) == 1]
        several = joins.chosen(each for each in found if len(each.terms) > 1)
        for each in itertools.chain(several, alone):
            if is_full():
                break
            by = replacements(terms, each)
            origin.update((new, each.rule.name) for new in by.values() if new not in origin)
            equal.extend(by.items())
            if len(each.terms) > 1:
                joins.made(each, by)
        equal.extend(itertools.takewhile(lambda _: not is_full(), graph.views()))
        full = is_full()
        graph.add(range(before, len(terms)), equal)
        if full:
            stopped = f"there are {nodes} terms"
            break
        if not equal:
            stopped = "nothing is left to be rewritten"
            break
    return Saturated(graph, origin, stopped)


def saturation(
    terms: Terms,
    roots: Sequence[int],
    cost: OpCost,
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    few: int = 2,
    nodes: int = 15_000,
    seconds: float = 60.0,
) -> Found:
    """Returns the cheapest program that saturation has, see `saturate`.

    Args:
      terms: to which those of other programs are added.
      roots: results of the program.
      cost: of an op.
      rules: that are applied.
      rounds: see `saturate`.
      few: see `saturate`.
      nodes: see `saturate`.
      seconds: after which the best program so far is taken.

    Raises:
      ValueError: a number is negative.
    """
    saturated = saturate(terms, roots, rules, rounds=rounds, few=few, nodes=nodes)
    best = cheapest(saturated.graph, roots, Prices(terms, cost), seconds=seconds)
    used = tuple(saturated.origin[k] for k in best.chosen if k in saturated.origin)
    stopped = saturated.stopped
    if best.gap > 1e-6:
        stopped += f"; of that another program could cost {best.gap:.1%} less"
    return Found(best.roots, best.cost, used, len(saturated.graph.numbers), stopped)
