"""Searches of the rewriting experiments."""

from functools import partial

from gopt.rewriting import RewriteSearch, backtracking
from gopt.rewriting.search.pet import partial_equivalence
from gopt.rewriting.search.saturation import saturation

SEARCHES: dict[str, RewriteSearch] = {
    "greedy": partial(backtracking, alpha=1.0),
    "backtracking": backtracking,
    # As many programs as partial equivalence.
    "backtracking, 300": partial(backtracking, budget=300),
    "saturation": saturation,
    "partial equivalence": partial_equivalence,
}
