"""A generator of rules: all small expressions, those that are equal, and the rules that these are.

After TASO's, see `gopt.rewriting.generation.choosing`. What it found is in
`gopt.rewriting.generated_rules`.
"""

from gopt.rewriting.generation.choosing import (
    Candidate,
    Generator,
    follows,
    independent,
    is_same,
    is_useless,
)
from gopt.rewriting.generation.domains import DOMAINS
from gopt.rewriting.generation.enumeration import Expressions

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
