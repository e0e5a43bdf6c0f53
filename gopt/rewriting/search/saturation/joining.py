"""Choose the terms that two-pattern rules join in an e-graph.

Among n joinable terms, 2**n subsets could be joined. Only two kinds are tried: sets of at most
`max_subset` terms, and all independent terms that were joinable at first, as a whole. A whole set
grows from its first two terms, one by one. Joined terms keep their order.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match
from gopt.rewriting.rules.patterns import Apply, Bindings
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.saturation.alternatives import Alternatives
from gopt.rewriting.search.saturation.queries import Side


def is_join(rule: Rule) -> bool:
    """Return whether a rule replaces two terms by slices of one term."""
    parts = [target for target in rule.target if isinstance(target, Apply)]
    slices = [part.inputs for part in parts if part.operator == "slice"]
    return len(rule.source) == len(slices) == 2 and slices[0] == slices[1]


class _Joined(NamedTuple):
    """Origin of a joined term.

    Attributes:
      shared: variables of the inputs that all joined terms share.
      parts: terms that were joined.
      origins: terms that the parts were joined from, or the parts themselves.
      is_whole: whether the parts are a whole set, none of them joined before.
    """

    shared: frozenset[str]
    parts: tuple[int, ...]
    origins: tuple[int, ...]
    is_whole: bool


class _Side(NamedTuple):
    """One of the two terms that a match joins.

    Attributes:
      parts: terms that it was joined from, with the same shared inputs; otherwise itself.
      origins: see `_Joined`.
      read: bit set of all terms that it depends on.
    """

    parts: tuple[int, ...]
    origins: tuple[int, ...]
    read: int


class JoinSelection:
    """Selection of the matches of joining rules.

    Attributes:
      left_out: whether a match was rejected that would have joined other terms than the selected
        ones.
    """

    def __init__(self, terms: Terms, max_subset: int, alternatives: Alternatives):
        """Create a selection.

        Args:
          terms: all terms.
          max_subset: size of the largest sets of terms that are all tried.
          alternatives: terms that are not joined with each other.
        """
        self._terms, self._max_subset, self._alternatives = terms, max_subset, alternatives
        self._sets: dict[Hashable, list[list[_Side]]] = {}  # whole sets, by shared inputs
        self._joined: dict[int, _Joined] = {}  # by joined term
        self._needs: list[int] = []  # bit set of each term's ancestors and itself
        self.left_out = False

    def may_pair(self, rule: Rule, one: Side, other: Side) -> bool:
        """Return whether a rule may match two terms; False early for most that it would not join.

        Args:
          rule: any rule of two patterns.
          one: term that matches its first pattern.
          other: term that matches its second pattern.
        """
        if not is_join(rule):
            return True
        if self._joined.keys().isdisjoint((one.number, other.number)):
            return not self._alternatives.are(one.number, other.number)
        shared = _shared(rule)
        first, then = self._parts_of(one.number, shared), self._parts_of(other.number, shared)
        if first[-1] >= then[0]:
            return False
        both = (*first, *then)
        if len(both) <= self._max_subset or self._is_whole(_key(shared, one.bound), both):
            return True
        self.left_out = True
        return False

    def chosen(self, found: Iterable[Match]) -> list[Match]:
        """Return the matches to apply, those that join whole sets first."""
        every = [(match, self._of(match), self._sides(match)) for match in found]
        in_part = {number for number, joined in self._joined.items() if not joined.is_whole}
        count = len(every)
        every = [each for each in every if in_part.isdisjoint(_parts(each[2]))]
        self.left_out |= len(every) < count
        # Terms that other rules add later, such as parts of sums, are not always joined with the
        # rest.
        new: dict[Hashable, list[tuple[_Side, _Side]]] = {}
        for _, of, sides in every:
            if of not in self._sets and all(len(side.parts) == 1 for side in sides):
                new.setdefault(of, []).append(sides)
        for of, pairs in new.items():
            self._sets[of] = [each for group in _connected(pairs) for each in _independent(group)]
        whole, subsets = [], []
        for match, of, (one, other) in every:
            if one.parts[-1] >= other.parts[0] or not _is_independent(one, other):
                continue
            both = (*one.parts, *other.parts)
            if self._is_whole(of, both):
                if len(other.parts) == 1:
                    whole.append(match)
            elif len(both) <= self._max_subset and self._joined.keys().isdisjoint(both):
                subsets.append(match)
            else:
                self.left_out = True
        return whole + subsets

    def made(self, found: Match, by: dict[int, int]) -> None:
        """Record the terms that a match has joined, given the replacement of each term."""
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
        return _key(_shared(found.rule), found.bound)

    def _is_whole(self, of: Hashable, numbers: tuple[int, ...]) -> bool:
        """Return whether terms are the first ones of a whole set."""
        return any(numbers == _parts(each[: len(numbers)]) for each in self._sets.get(of, ()))

    def _parts_of(self, number: int, shared: frozenset[str]) -> tuple[int, ...]:
        """Return the terms that a term was joined from, with the same shared inputs."""
        joined = self._joined.get(number)
        return joined.parts if joined and joined.shared == shared else (number,)

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
            parts = self._parts_of(number, shared)
            return _Side(parts, joined.origins if joined else (number,), read)

        return side(0), side(1)


def _shared(rule: Rule) -> frozenset[str]:
    """Return the variables of the inputs that both terms of a joining rule share."""
    one, other = (pattern.names() for pattern in rule.source)
    return frozenset(one & other)


def _key(shared: frozenset[str], bound: Bindings) -> Hashable:
    """Return a key of the terms that could be joined with each other: their shared inputs."""
    return shared, tuple(bound[name] for name in sorted(shared))


def _parts(sides: Iterable[_Side]) -> tuple[int, ...]:
    return tuple(part for side in sides for part in side.parts)


def _is_independent(one: _Side, other: _Side) -> bool:
    """Return whether neither term depends on the other or on its origins."""
    both = (one, other), (other, one)
    return not any(a.read >> origin & 1 for a, b in both for origin in b.origins)


def _connected(pairs: Iterable[tuple[_Side, _Side]]) -> list[list[_Side]]:
    """Return the groups of terms that pairs connect, by any rule, each in the order of terms."""
    groups: list[set[_Side]] = []
    for pair in pairs:
        touched = [group for group in groups if not group.isdisjoint(pair)]
        groups = [group for group in groups if group.isdisjoint(pair)]
        groups.append(set(pair).union(*touched))
    return [sorted(group) for group in groups]


def _independent(sides: Iterable[_Side]) -> list[list[_Side]]:
    """Split terms into sets of independent terms; each term joins the first set possible."""
    sets: list[list[_Side]] = []
    for side in sides:
        for each in sets:
            if all(_is_independent(side, member) for member in each):
                each.append(side)
                break
        else:
            sets.append([side])
    return sets
