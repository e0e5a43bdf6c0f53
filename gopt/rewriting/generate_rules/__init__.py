"""A generator of rules: all small expressions, those that are equal, and the rules that these are.

After TASO's, see `gopt.rewriting.generate_rules.choosing`. What it found is in
`gopt.rewriting.rules.generated`.
"""

from gopt.rewriting.generate_rules.choosing import (
    Candidate,
    Generator,
    follows,
    independent,
    is_same,
    is_useless,
)
from gopt.rewriting.generate_rules.domains import DOMAINS
from gopt.rewriting.generate_rules.enumeration import Expressions

__all__ = [
    "DOMAINS",
    "Candidate",
    "Expressions",
    "Generator",
    "follows",
    "independent",
    "is_same",
    "is_useless",
]
