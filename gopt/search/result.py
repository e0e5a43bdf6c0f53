"""The record of a search."""

from typing import Any, NamedTuple


class SearchResult(NamedTuple):
    """The best candidate of a search, and how its cost fell.

    Attributes:
      best: the best candidate, in the form that the search gives it.
      cost: `[]`, cost of the best candidate.
      history: `[K]`, least cost known at K times of the search, infinite before the first; the last
        entry is `cost`.
      evaluations: int32 `[K]`, candidates costed until then, starting points included.
    """

    best: Any
    cost: Any
    history: Any
    evaluations: Any
