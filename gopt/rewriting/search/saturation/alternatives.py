"""Terms of an e-graph that no cheapest program needs together, so that they are not joined.

If all readers of one term lead to another one, the first is not needed once the second is computed
from other terms. A term that rules have made counts as the term of the program that it was made
for.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from gopt.rewriting.ir.terms import Terms

_RESULTS = -1  # reads all results of the program


class Alternatives:
    """Pairs of terms of which a program needs one."""

    def __init__(self, terms: Terms, roots: Sequence[int]):
        """Read the program.

        Args:
          terms: all terms.
          roots: results of the program.
        """
        self._terms = terms
        live = terms.live(roots)
        # First term on all ways from a term to the results, and the number of such terms.
        self._next: dict[int, int] = dict.fromkeys(roots, _RESULTS)
        self._depth = {_RESULTS: 0}
        for number in reversed(live):
            self._depth[number] = self._depth[self._next[number]] + 1
            for i in terms[number].inputs:
                self._next[i] = self._meeting(self._next.get(i, number), number)
        # Term of the program that each other term was made for; `_RESULTS` if for several.
        self._home = {number: number for number in live}

    def made(self, by: Mapping[int, int]) -> None:
        """Record that new terms, and what they read, were made in place of others.

        Args:
          by: new term by old term, which the e-graph had before. What is made for two is not known
            to be for one of them.
        """
        homes = {self._home.get(old, _RESULTS) for old in by}
        home, stack = homes.pop() if len(homes) == 1 else _RESULTS, list(by.values())
        while stack:
            number = stack.pop()
            if number in self._next or self._terms.constant[number]:
                continue
            known = self._home.get(number)
            self._home[number] = home if known is None else self._larger(known, home)
            if self._home[number] != known:
                stack.extend(self._terms[number].inputs)

    def regrouped(self, new: int) -> None:
        """Record that a sum was made in another order: each sum in it stands where its parts meet.

        Args:
          new: the sum.
        """
        stack = [new]
        while stack:
            number = stack[-1]
            parts = {i for i in self._terms[number].inputs if not self._terms.constant[i]}
            if left := [] if number in self._home else parts - self._home.keys():
                stack.extend(left)
                continue
            if stack.pop() not in self._home:
                self._home[number] = reduce(self._meeting, sorted(self._home[i] for i in parts))

    def are(self, one: int, other: int) -> bool:
        """Return whether no program needs both of two terms."""
        homes = self._home.get(one, _RESULTS), self._home.get(other, _RESULTS)
        return one != other and _RESULTS not in homes and self._larger(*homes) != _RESULTS

    def _larger(self, one: int, other: int) -> int:
        """Return the one of two terms of the program that the other always leads to, if any."""
        meeting = self._meeting(one, other)
        return meeting if meeting in (one, other) else _RESULTS

    def _meeting(self, one: int, other: int) -> int:
        """Return the first term on all ways from two terms to the results, themselves included."""
        while one != other:
            if self._depth[one] < self._depth[other]:
                one, other = other, one
            one = self._next[one]
        return one
