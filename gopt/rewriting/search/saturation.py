"""Equality saturation: apply all rules at once in an e-graph, then extract the cheapest program.

After Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (Tensat),
with other limits. Tensat applies two-pattern rules in some rounds only, and filters out cycles.
Here they join selected sets of terms (see `gopt.rewriting.search.joining`), and the integer program
excludes cycles. Needs the extra `rewriting`.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import TermCosts
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import is_alone, replacements
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.egraph import EGraph
from gopt.rewriting.search.extraction import cheapest
from gopt.rewriting.search.joining import JoinSelection, is_join
from gopt.rewriting.search.result import RewriteSearchResult


class Saturated(NamedTuple):
    """A saturated e-graph.

    Attributes:
      graph: e-graph.
      origin: name of the rule that added each term, by term.
      stop_reason: reason why saturation ended.
    """

    graph: EGraph
    origin: dict[int, str]
    stop_reason: str


def saturate(
    terms: Terms,
    roots: Sequence[int],
    rules: Sequence[Rule] = RULES,
    *,
    rounds: int = 15,
    max_subset: int = 2,
    max_applications: int = 1000,
    max_terms: int = 15_000,
) -> Saturated:
    """Apply rules to a program in an e-graph until a limit is reached or nothing is new.

    For rules with `alone`, see `gopt.rewriting.rules.rule.Rule`, readers are counted in the given
    program.

    Args:
      terms: terms to add to.
      roots: results of the program.
      rules: rules to apply.
      rounds: maximum number of rounds; each applies the rules everywhere.
      max_subset: size of the largest subsets of joinable terms that are joined. Whole sets are
        joined at any size; see `gopt.rewriting.search.joining`.
      max_applications: maximum number of applications of one rule. In sums of many terms, the
        matches of some rules can be exponentially many.
      max_terms: number of terms in the e-graph at which saturation ends.

    Raises:
      ValueError: a limit is negative.
    """
    limits = {
        "rounds": rounds,
        "max_subset": max_subset,
        "max_applications": max_applications,
        "max_terms": max_terms,
    }
    for name, limit in limits.items():
        if not limit >= 0:
            raise ValueError(f"{name} is {limit}: expected 0 at least")
    graph, joins, origin = EGraph(terms, rules), JoinSelection(terms, max_subset), dict[int, str]()
    # A new term may have other readers in each program: it counts as alone.
    applied, readers, others_read = Counter[str](), terms.readers(roots), False
    graph.add(roots)
    for _ in range(rounds):
        # Terms that exist already, from other programs, count as new as well.
        coming, equal = set[int](), list[tuple[int, int]]()

        def is_full(coming: set[int] = coming) -> bool:
            return len(graph.numbers) + len(coming) >= max_terms

        every = list(graph.matches())
        found = [each for each in every if is_alone(each.rule, each.bound, readers)]
        others_read |= len(found) < len(every)
        joining = joins.chosen(each for each in found if is_join(each.rule))
        others = [each for each in found if not is_join(each.rule)]
        for each in itertools.chain(joining, others):
            if is_full():
                break
            applied[each.rule.name] += 1
            if applied[each.rule.name] > max_applications:
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
            left = [f"joins of subsets of more than {max_subset}"] if joins.left_out else []
            if max(applied.values(), default=0) > max_applications:
                left.append(f"rules that were applied {max_applications} times")
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
    max_subset: int = 2,
    max_applications: int = 1000,
    max_terms: int = 15_000,
    solver_seconds: float = 60.0,
) -> RewriteSearchResult:
    """Return the cheapest program that saturation finds, see `saturate`.

    The reported rewrites are the rules that added the program's new terms, one per term.

    Args:
      terms: terms to add to.
      roots: results of the program.
      cost: cost of an op.
      rules: rules to apply.
      rounds: see `saturate`.
      max_subset: see `saturate`.
      max_applications: see `saturate`.
      max_terms: see `saturate`.
      solver_seconds: time limit of the solver in s, after which its best program so far is taken.

    Raises:
      ValueError: a limit is negative.
    """
    saturated = saturate(
        terms,
        roots,
        rules,
        rounds=rounds,
        max_subset=max_subset,
        max_applications=max_applications,
        max_terms=max_terms,
    )
    best = cheapest(saturated.graph, roots, TermCosts(terms, cost), seconds=solver_seconds)
    new = set(best.chosen) & saturated.origin.keys() - set(terms.live(roots))
    used = tuple(saturated.origin[k] for k in sorted(new))
    stopped = saturated.stop_reason
    if best.gap > 1e-6:
        stopped += f"; it is not proven that none of them costs up to {best.gap:.1%} less"
    return RewriteSearchResult(best.roots, best.cost, used, len(saturated.graph.numbers), stopped)
