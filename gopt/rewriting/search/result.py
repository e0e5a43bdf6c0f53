"""Types that all rewrite searches share: result and interface."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.rule import Rule


class RewriteSearchResult(NamedTuple):
    """Result of a search: the cheapest program.

    Attributes:
      roots: results of the program, as terms.
      cost: cost of the program, in s.
      rewrites: names of the rules that led to it; see each search.
      num_visited: number of programs rewritten; for saturation, number of terms.
      stop_reason: reason why the search ended.
    """

    roots: tuple[int, ...]
    cost: float
    rewrites: tuple[str, ...]
    num_visited: int
    stop_reason: str


# Takes terms, the roots of a program in them, the cost of an op, and rules.
RewriteSearch = Callable[[Terms, Sequence[int], OpCost, Sequence[Rule]], RewriteSearchResult]
