"""What searches take and return."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.rule import Rule


class Found(NamedTuple):
    """The cheapest program of a search."""

    roots: tuple[int, ...]
    cost: float  # s
    rewrites: tuple[str, ...]  # names of the rules that led there; see each search
    visited: int  # programs that were rewritten, or, of saturation, terms
    stopped: str  # why it ended


# Takes terms, the results of a program in them, the cost of an op, and rules.
Search = Callable[[Terms, Sequence[int], OpCost, Sequence[Rule]], Found]
