"""Equal programs: terms, rules, searches, and functions that are measured to be faster."""

from gopt.rewriting.backtracking import backtracking
from gopt.rewriting.costs import OpCost, footprint, measured, roofline
from gopt.rewriting.found import Found, Search
from gopt.rewriting.generated_rules import generated
from gopt.rewriting.matching import Match, Matcher
from gopt.rewriting.partial import partial_equivalence
from gopt.rewriting.reading import read
from gopt.rewriting.rule import Rule
from gopt.rewriting.rules import RULES
from gopt.rewriting.terms import Term, Terms
from gopt.rewriting.verb import Rewriting, rewrite
from gopt.rewriting.writing import Traced, Written

__all__ = [
    "RULES",
    "Found",
    "Match",
    "Matcher",
    "OpCost",
    "Rewriting",
    "Rule",
    "Search",
    "Term",
    "Terms",
    "Traced",
    "Written",
    "backtracking",
    "footprint",
    "generated",
    "measured",
    "partial_equivalence",
    "read",
    "rewrite",
    "roofline",
]
