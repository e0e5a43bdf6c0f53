"""What a search makes of a model, and what that takes."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import gopt
from experiments.cases import Case
from gopt.rewriting import Found, OpCost, Search, Terms


def measure(case: Case, search: Search, cost: OpCost, *, repeats: int, seed: int) -> dict[str, Any]:
    """Returns what a search makes of a model, and what both take.

    Args:
      case: a model, whose first argument are its weights.
      search: how it is rewritten.
      cost: of an op.
      repeats: turns in which whole programs are timed.
      seed: of weights and inputs.
    """
    watched = _Watched(search)
    rewriting = gopt.rewrite(
        case.fn,
        *case.args,
        constant_argnums=0,
        cost=cost,
        search=watched,
        repeats=repeats,
        seed=seed,
    )
    return {
        "terms": watched.terms,
        "visited": watched.found.visited,
        "stopped": watched.found.stopped,
        "search s": watched.seconds,
        "measuring s": watched.measuring,
        "cost": (rewriting.before.cost, rewriting.found.cost),
        "seconds": {
            of: getattr(rewriting, of).times._asdict() for of in ("before", "folded", "found")
        },
        "ratio": rewriting.ratio(),
        "wall ratio": rewriting.ratio("wall"),
        "folded ratio": rewriting.ratio(of=rewriting.folded),
        "difference": rewriting.difference,
        "tolerance": rewriting.tolerance,
        "refused": rewriting.refused,
        "rules": Counter(rewriting.rules),
    }


class _Watched:
    """A search that remembers what it found, and how long that took."""

    found: Found
    seconds: float  # without those of `measuring`
    measuring: float  # s, for costs of ops
    terms: int  # of the program that was given

    def __init__(self, search: Search):
        self._search = search

    def __call__(self, terms: Terms, roots: Sequence[int], cost: OpCost, rules: Any) -> Found:
        self.terms, self.measuring = len(terms.live(roots)), 0.0

        def timed(*op: Any) -> float:
            begin = time.perf_counter()
            seconds = cost(*op)
            self.measuring += time.perf_counter() - begin
            return seconds

        begin = time.perf_counter()
        self.found = self._search(terms, roots, timed, rules)
        self.seconds = time.perf_counter() - begin - self.measuring
        return self.found
