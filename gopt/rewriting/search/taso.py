"""TASO's backtracking search: repeatedly apply every single rewrite to the cheapest program.

After Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph
Substitutions", SOSP 2019, section 5.
"""

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from gopt.host.progress import Progress
from gopt.plots.units import format_seconds
from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.cost.pricing import Change, TermCosts
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match, Matcher, replacements
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.result import RewriteSearchResult


class _Way(NamedTuple):
    """A program, and the rewrites that led to it.

    Attributes:
      roots: results of the program, as terms.
      rules: names of the applied rules, in order.
    """

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
    progress: Progress | None = None,
) -> RewriteSearchResult:
    """Return the cheapest program that TASO's search finds.

    With `alpha = 1` the search is greedy, except for ties.

    Args:
      terms: terms to add to.
      roots: results of the program.
      cost: cost of an op.
      rules: rules to apply.
      alpha: programs that cost less than `alpha` times the cheapest one stay in the queue.
      budget: maximum number of programs to rewrite.
      progress: shows progress, and ends the search when its time is over or at Ctrl-C.

    Raises:
      ValueError: `alpha` is less than 1, or `budget` is less than 0.
    """
    if not (alpha >= 1 and budget >= 0):
        raise ValueError(f"alpha is {alpha}, budget {budget}: expected 1 and 0 at least")
    matcher, prices = Matcher(terms, rules), TermCosts(terms, cost)
    # Larger programs are dropped, as in TASO.
    most = 2 * len(terms.live(roots))
    best = _Way(tuple(roots), ())
    least, seen = prices.program(roots), {best.roots}
    # Queued costs are estimates; a program is built when it leaves the queue.
    queue: list[tuple[float, int, _Way, Match | None]] = [(least, 0, best, None)]
    visited, ticket = 0, itertools.count(1)  # breaks ties: first in, first out
    progress = progress or Progress()
    progress.phase("rewriting programs", budget)
    with progress.interruptible():
        while queue and visited < budget and not progress.is_over:
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
            progress.advance(visited, f"best {format_seconds(least)} by the model")
            change = Change(terms, prices.term, way.roots)
            for found in matcher.matches(way.roots):
                by = replacements(terms, found)
                then = cost_then + change.of(by)
                if by and then < alpha * least:
                    heapq.heappush(queue, (then, next(ticket), way, found))
    stopped = progress.cut_note or (
        f"the budget of {budget} programs is spent" if queue else "nothing is left to be rewritten"
    )
    return RewriteSearchResult(best.roots, least, best.rules, visited, stopped)
