"""Equality saturation: what rules make of a program, side by side, and the cheapest of it.

After Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (Tensat),
with other limits: Tensat applies rules of two patterns in some rounds only, and leaves out what
would make a cycle. Here they join certain sets of terms (see `gopt.rewriting.search.joining`), and
the integer program takes nothing that has a cycle. Needs the extra `rewriting`.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import Prices
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import is_alone, replacements
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.egraph import EGraph
from gopt.rewriting.search.extraction import cheapest
from gopt.rewriting.search.joining import Joins, is_join
from gopt.rewriting.search.result import Found


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
    often: int = 1000,
    nodes: int = 15_000,
) -> Saturated:
    """Returns what rules make of a program, side by side.

    Rules that need operators to be alone, see `gopt.rewriting.rules.table.Rule`, go by the readers
    that these have in the program that is given.

    Args:
      terms: to which those that rules put somewhere are added.
      roots: results of the program.
      rules: that are applied.
      rounds: in each, rules are applied everywhere.
      few: terms of each set that are joined, and all together; see `gopt.rewriting.search.joining`.
      often: how many times a rule is applied. In sums of many terms some could be applied in
        exponentially many places.
      nodes: it ends when there are so many terms.

    Raises:
      ValueError: a number is negative.
    """
    limits = {"rounds": rounds, "few": few, "often": often, "nodes": nodes}
    for name, limit in limits.items():
        if limit < 0:
            raise ValueError(f"{name} is {limit}: expected 0 at least")
    graph, joins, origin = EGraph(terms, rules), Joins(terms, few), dict[int, str]()
    # What is new has other readers in other programs: it counts as alone.
    applied, readers, others_read = Counter[str](), terms.readers(roots), False
    graph.add(roots)
    for _ in range(rounds):
        # Terms of other programs, that there are already, count as new as well.
        coming, equal = set[int](), list[tuple[int, int]]()

        def is_full(coming: set[int] = coming) -> bool:
            return len(graph.numbers) + len(coming) >= nodes

        every = list(graph.matches())
        found = [each for each in every if is_alone(each.rule, each.bound, readers)]
        others_read |= len(found) < len(every)
        joining = joins.chosen(each for each in found if is_join(each.rule))
        others = [each for each in found if not is_join(each.rule)]
        for each in itertools.chain(joining, others):
            if is_full():
                break
            applied[each.rule.name] += 1
            if applied[each.rule.name] > often:
                continue
            by = replacements(terms, each)
            origin.update((new, each.rule.name) for new in by.values() if new not in origin)
            equal.extend(by.items())
            coming |= graph.missing(by.values(), coming)
            if is_join(each.rule):
                joins.made(each, by)
        for pair in graph.views():
            if is_full():
                break
            equal.append(pair)
            coming |= graph.missing(pair, coming)
        full = is_full()
        graph.add(equal=equal)
        if full:
            return Saturated(graph, origin, f"there are {len(graph.numbers)} terms")
        if not equal:
            left = [f"joins of more than {few}"] if joins.left_out else []
            if max(applied.values(), default=0) > often:
                left.append(f"rules that were applied {often} times")
            if others_read:
                left.append("sums and products that the program reads elsewhere")
            but = f", but for {' and '.join(left)}" if left else ""
            return Saturated(graph, origin, f"nothing is left to be rewritten{but}")
    return Saturated(graph, origin, f"there were {rounds} rounds")


def saturation(
    terms: Terms,
    roots: Sequence[int],
    cost: OpCost,
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    few: int = 2,
    often: int = 1000,
    nodes: int = 15_000,
    solver_seconds: float = 60.0,
) -> Found:
    """Returns the cheapest program that saturation has, see `saturate`.

    The rules that are told are the last that put there the terms that are new in it, one for each.

    Args:
      terms: to which those of other programs are added.
      roots: results of the program.
      cost: of an op.
      rules: that are applied.
      rounds: see `saturate`.
      few: see `saturate`.
      often: see `saturate`.
      nodes: see `saturate`.
      solver_seconds: after which the best program is taken that the solver has.

    Raises:
      ValueError: a number is negative.
    """
    saturated = saturate(terms, roots, rules, rounds=rounds, few=few, often=often, nodes=nodes)
    best = cheapest(saturated.graph, roots, Prices(terms, cost), seconds=solver_seconds)
    new = set(best.chosen) & saturated.origin.keys() - set(terms.live(roots))
    used = tuple(saturated.origin[k] for k in sorted(new))
    stopped = saturated.stopped
    if best.gap > 1e-6:
        stopped += f"; it is not proven that none of them costs up to {best.gap:.1%} less"
    return Found(best.roots, best.cost, used, len(saturated.graph.numbers), stopped)
