"""The searches that are compared."""

from functools import partial

from gopt.rewriting import Search, backtracking
from gopt.rewriting.search.pet import partial_equivalence
from gopt.rewriting.search.saturation import saturation

SEARCHES: dict[str, Search] = {
    "greedy": partial(backtracking, alpha=1.0),
    "backtracking": backtracking,
    "backtracking, 300": partial(backtracking, budget=300),  # as many as forms and rules in turn
    "saturation": saturation,
    "partial equivalence": partial_equivalence,
}
