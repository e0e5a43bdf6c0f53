"""The searches that are compared."""

from functools import partial

from gopt.rewriting import Search, backtracking
from gopt.rewriting.saturation import saturation

SEARCHES: dict[str, Search] = {
    "greedy": partial(backtracking, alpha=1.0),
    "backtracking": backtracking,
    "saturation": saturation,
}
