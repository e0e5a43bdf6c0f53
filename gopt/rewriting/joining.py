"""Which terms are made one in an e-graph, of all that rules of two patterns could.

Of n terms that could be one, 2**n sets could be. Those of a few terms are tried, and all that there
were at first, together: a set that grows from the first two, one after another. What is joined
comes in the order of terms.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from gopt.rewriting.matching import Match
from gopt.rewriting.terms import Terms


class _Sides(NamedTuple):
    """What a match joins."""

    of: Hashable  # the same for all that could be one
    one: tuple[int, ...]
    other: tuple[int, ...]


class Joins:
    """Chooses matches of rules of two patterns."""

    def __init__(self, terms: Terms, few: int):
        """Takes how many terms are few: all sets of no more than so many are tried."""
        self._terms, self._few = terms, few
        self._together: dict[Hashable, list[int]] = {}
        self._instead: dict[int, set[int]] = {}  # terms that are parts of one that was joined
        self._needs: list[int] = []  # bits of the terms that each is made of, itself included

    def chosen(self, found: Iterable[Match]) -> list[Match]:
        """Returns those that are to be applied."""
        every = [(match, self._sides(match)) for match in found]
        new = defaultdict[Hashable, set[int]](set)
        for _, sides in every:
            new[sides.of].update(*(side for side in sides[1:] if len(side) == 1))
        # What other rules add later, such as parts of sums, is not always joined with the rest.
        self._together = {of: sorted(parts) for of, parts in new.items()} | self._together
        return [match for match, sides in every if self._is_chosen(match, sides)]

    def made(self, found: Match, by: dict[int, int]) -> None:
        """Remembers what is a part of what, given what was put in the place of each term."""
        parts = set[int]().union(*(self._instead.get(old, {old}) for old in by))
        for new in by.values():
            self._instead.setdefault(self._terms[new].inputs[0], set()).update(parts)

    def _sides(self, found: Match) -> _Sides:
        first, second = (pattern.names() for pattern in found.rule.source)
        same = {
            name: value
            for name, value in found.bound.items()
            if name in first & second or name.startswith("like ")
        }
        one, other = (
            tuple(part for name in names for part in self._parts(found.bound[name]))
            for names in (first - second, second - first)
        )
        return _Sides((found.rule.name, *sorted(same.items())), one, other)

    def _parts(self, number: int) -> tuple[int, ...]:
        term = self._terms[number]
        return term.inputs if term.operator == "concat" else (number,)

    def _is_chosen(self, found: Match, sides: _Sides) -> bool:
        one, other = sides.one, sides.other
        if max(one) >= min(other) or self._need_each_other(found):
            return False
        if len(one) + len(other) <= self._few:
            return True
        return [*one, *other] == self._together[sides.of][: len(one) + 1]

    def _need_each_other(self, found: Match) -> bool:
        """Returns whether what one of both terms reads depends on the other, or on a part of it."""
        terms, needs = self._terms, self._needs
        for number in range(len(needs), len(terms)):
            needs.append(1 << number)
            for i in terms[number].inputs:
                needs[number] |= needs[i]
        for pattern, other in zip(found.rule.source, found.terms[::-1], strict=True):
            for name in pattern.names():
                read = needs[found.bound[name]]
                if any(read >> k & 1 for k in self._instead.get(other, {other})):
                    return True
        return False
