"""Rule generator: enumerate small expressions, find equal ones, and select rules.

After TASO's generator, see `gopt.rewriting.generate_rules.choosing`. The generated rules are in
`gopt.rewriting.rules.generated`.
"""

from gopt.rewriting.generate_rules.choosing import (
    Generator,
    RuleCandidate,
    independent,
    is_derivable,
    is_same,
    is_useless,
)
from gopt.rewriting.generate_rules.domains import DOMAINS
from gopt.rewriting.generate_rules.enumeration import Expressions

__all__ = [
    "DOMAINS",
    "Expressions",
    "Generator",
    "RuleCandidate",
    "independent",
    "is_derivable",
    "is_same",
    "is_useless",
]
