"""The searches that are compared."""

from functools import partial

from gopt.rewriting import Search, backtracking
from gopt.rewriting.partial import partial_equivalence
from gopt.rewriting.saturation import saturation

SEARCHES: dict[str, Search] = {
    "greedy": partial(backtracking, alpha=1.0),
    "backtracking": backtracking,
    "saturation": saturation,
    "partial equivalence": partial_equivalence,
}
