"""Rewrite programs into equal ones that are measured to be faster: terms, rules and searches."""

from gopt.rewriting.api import rewrite
from gopt.rewriting.cost.costs import OpCost, footprint, measured, roofline
from gopt.rewriting.ir.from_program import terms_of_program
from gopt.rewriting.ir.terms import Term, Terms
from gopt.rewriting.ir.to_function import RewrittenProgram, TracedProgram
from gopt.rewriting.report import RewriteReport
from gopt.rewriting.rules.generated import generated
from gopt.rewriting.rules.matching import Match, Matcher
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES
from gopt.rewriting.search.pet import partial_equivalence
from gopt.rewriting.search.result import RewriteSearch, RewriteSearchResult
from gopt.rewriting.search.taso import backtracking

__all__ = [
    "RULES",
    "Match",
    "Matcher",
    "OpCost",
    "RewriteReport",
    "RewriteSearch",
    "RewriteSearchResult",
    "RewrittenProgram",
    "Rule",
    "Term",
    "Terms",
    "TracedProgram",
    "backtracking",
    "footprint",
    "generated",
    "measured",
    "partial_equivalence",
    "rewrite",
    "roofline",
    "terms_of_program",
]
