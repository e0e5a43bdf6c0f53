"""TASO's search: from the cheapest program that is known, all that one rewrite makes of it.

After Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph
Substitutions", SOSP 2019, section 5.
"""

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import Change, Prices
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match, Matcher, replacements
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.result import Found


class _Way(NamedTuple):
    """A program, and the rules that led there."""

    roots: tuple[int, ...]
    rules: tuple[str, ...]


def backtracking(
    terms: Terms,
    roots: Sequence[int],
    cost: OpCost,
    rules: Sequence[Rule] = RULES,
    *,
    alpha: float = 1.05,
    budget: int = 100,
) -> Found:
    """Returns the cheapest program that is found.

    With `alpha = 1` it is greedy, but for ties.

    Args:
      terms: to which those of other programs are added.
      roots: results of the program.
      cost: of an op.
      rules: that are applied.
      alpha: programs are kept that cost less than so many times the cheapest.
      budget: how many programs are rewritten.

    Raises:
      ValueError: `alpha` is less than 1, or `budget` than 0.
    """
    if alpha < 1 or budget < 0:
        raise ValueError(f"alpha is {alpha}, budget {budget}: expected 1 and 0 at least")
    matcher, prices = Matcher(terms, rules), Prices(terms, cost)
    # Larger programs are left out, as TASO does it.
    most = 2 * len(terms.live(roots))
    best = _Way(tuple(roots), ())
    least, seen = prices.program(roots), {best.roots}
    # What is in the queue costs about so much; it is made when its turn comes.
    queue: list[tuple[float, int, _Way, Match | None]] = [(least, 0, best, None)]
    visited, ticket = 0, itertools.count(1)  # of equal costs the first is first
    while queue and visited < budget:
        cost_then, _, way, rewrite = heapq.heappop(queue)
        if cost_then > alpha * least:
            queue.clear()
            break
        if rewrite is not None:
            after = matcher.apply(way.roots, rewrite)
            if after is None or after in seen or len(terms.live(after)) > most:
                continue
            seen.add(after)
            way, cost_then = _Way(after, (*way.rules, rewrite.rule.name)), prices.program(after)
            if cost_then < least:
                best, least = way, cost_then
        visited += 1
        change = Change(terms, prices.term, way.roots)
        for found in matcher.matches(way.roots):
            by = replacements(terms, found)
            then = cost_then + change.of(by)
            if by and then < alpha * least:
                heapq.heappush(queue, (then, next(ticket), way, found))
    stopped = (
        f"the budget of {budget} programs is spent" if queue else "nothing is left to be rewritten"
    )
    return Found(best.roots, least, best.rules, visited, stopped)
