"""Which terms are made one in an e-graph, of all that rules of two patterns could join.

Of n terms that could be one, 2**n sets could be. Those of a few terms are tried, and all that there
were at first and none of which needs another, together: a set that grows from the first two, one
after another. What is joined comes in the order of terms.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match
from gopt.rewriting.rules.patterns import Apply
from gopt.rewriting.rules.rule import Rule


def is_join(rule: Rule) -> bool:
    """Returns whether a rule puts parts of one term in the place of two."""
    parts = [target for target in rule.target if isinstance(target, Apply)]
    slices = [part.inputs for part in parts if part.operator == "slice"]
    return len(rule.source) == len(slices) == 2 and slices[0] == slices[1]


class _Joined(NamedTuple):
    """What a term was joined from."""

    shared: frozenset[str]  # names of what they all read
    parts: tuple[int, ...]  # terms
    origins: tuple[int, ...]  # what these were joined from, or they themselves
    is_whole: bool  # whether these are all that could be joined, and not joined themselves


class _Side(NamedTuple):
    """One of two terms that a match joins."""

    parts: tuple[int, ...]  # terms that it was joined from, which share what both read, or itself
    origins: tuple[int, ...]  # see `_Joined`
    read: int  # bits of all that it depends on


class Joins:
    """Chooses matches of rules that join two terms.

    Attributes:
      left_out: whether a match was not chosen that would have joined other terms than those chosen.
    """

    def __init__(self, terms: Terms, few: int):
        """Takes how many terms are few: all sets of no more than so many are tried."""
        self._terms, self._few = terms, few
        self._sets: dict[Hashable, list[list[_Side]]] = {}  # that are joined as a whole
        self._joined: dict[int, _Joined] = {}  # by term
        self._needs: list[int] = []  # bits of the terms that each is made of, itself included
        self.left_out = False

    def chosen(self, found: Iterable[Match]) -> list[Match]:
        """Returns those that are to be applied: first those of sets that are joined as a whole."""
        every = [(match, self._of(match), self._sides(match)) for match in found]
        in_part = {number for number, joined in self._joined.items() if not joined.is_whole}
        count = len(every)
        every = [each for each in every if in_part.isdisjoint(_parts(each[2]))]
        self.left_out |= len(every) < count
        # What other rules add later, such as parts of sums, is not always joined with the rest.
        new: dict[Hashable, list[tuple[_Side, _Side]]] = {}
        for _, of, sides in every:
            if of not in self._sets and all(len(side.parts) == 1 for side in sides):
                new.setdefault(of, []).append(sides)
        for of, pairs in new.items():
            self._sets[of] = [each for group in _connected(pairs) for each in _independent(group)]
        whole, few = [], []
        for match, of, (one, other) in every:
            if one.parts[-1] >= other.parts[0] or not _is_independent(one, other):
                continue
            both = (*one.parts, *other.parts)
            if any(both == _parts(each[: len(both)]) for each in self._sets.get(of, ())):
                if len(other.parts) == 1:
                    whole.append(match)
            elif len(both) <= self._few and self._joined.keys().isdisjoint(both):
                few.append(match)
            else:
                self.left_out = True
        return whole + few

    def made(self, found: Match, by: dict[int, int]) -> None:
        """Remembers what was joined, given what was put in the place of each term."""
        for new in by.values():
            term = self._terms[new]
            if term.operator == "slice" and term.inputs[0] not in self._joined:
                sides = self._sides(found)
                parts = _parts(sides)
                is_first = self._joined.keys().isdisjoint(parts)
                self._joined[term.inputs[0]] = _Joined(
                    _shared(found.rule),
                    parts,
                    tuple(origin for side in sides for origin in side.origins),
                    is_first and parts in map(_parts, self._sets.get(self._of(found), ())),
                )

    def _of(self, found: Match) -> Hashable:
        """Returns what is the same for all terms that could be one: what they share."""
        shared = _shared(found.rule)
        return shared, tuple(found.bound[name] for name in sorted(shared))

    def _sides(self, found: Match) -> tuple[_Side, _Side]:
        terms, needs = self._terms, self._needs
        for number in range(len(needs), len(terms)):
            needs.append(1 << number)
            for i in terms[number].inputs:
                needs[number] |= needs[i]

        shared = _shared(found.rule)

        def side(j: int) -> _Side:
            read = 0
            for name in found.rule.source[j].names():
                read |= needs[found.bound[name]]
            number = found.terms[j]
            joined = self._joined.get(number)
            parts = joined.parts if joined and joined.shared == shared else (number,)
            return _Side(parts, joined.origins if joined else (number,), read)

        return side(0), side(1)


def _shared(rule: Rule) -> frozenset[str]:
    """Returns the names of what both terms read that a rule joins."""
    one, other = (pattern.names() for pattern in rule.source)
    return frozenset(one & other)


def _parts(sides: Iterable[_Side]) -> tuple[int, ...]:
    return tuple(part for side in sides for part in side.parts)


def _is_independent(one: _Side, other: _Side) -> bool:
    """Returns whether neither of two terms depends on what the other was joined from, or is."""
    both = (one, other), (other, one)
    return not any(a.read >> origin & 1 for a, b in both for origin in b.origins)


def _connected(pairs: Iterable[tuple[_Side, _Side]]) -> list[list[_Side]]:
    """Returns what pairs connect, by whatever rules, each group in the order of terms."""
    groups: list[set[_Side]] = []
    for pair in pairs:
        touched = [group for group in groups if not group.isdisjoint(pair)]
        groups = [group for group in groups if group.isdisjoint(pair)]
        groups.append(set(pair).union(*touched))
    return [sorted(group) for group in groups]


def _independent(sides: Iterable[_Side]) -> list[list[_Side]]:
    """Returns sets of terms none of which needs another, each term in the first that it can."""
    sets: list[list[_Side]] = []
    for side in sides:
        for each in sets:
            if all(_is_independent(side, member) for member in each):
                each.append(side)
                break
        else:
            sets.append([side])
    return sets
