"""Where the rules apply in a program.

What a term has of a rule depends on the term alone. So it is looked for once, and after a rewrite
only in terms that are new.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gopt.rewriting.patterns import Bound, build, match
from gopt.rewriting.rules import RULES, Rule
from gopt.rewriting.terms import Terms


class Match(NamedTuple):
    """A place where a rule applies."""

    rule: Rule
    terms: tuple[int, ...]  # what is replaced, one for each pattern of the rule's source
    bound: Bound  # what its names stand for


class Matcher:
    """Finds matches in the programs of some terms."""

    def __init__(self, terms: Terms, rules: Sequence[Rule] = RULES):
        """Takes the rules to be looked for."""
        self.terms, self.rules = terms, tuple(rules)
        self._found: dict[tuple[int, int, int], list[Bound]] = {}  # by rule, pattern and term
        self._of: dict[str, list[tuple[int, int]]] = defaultdict(list)  # rule and pattern
        for k, rule in enumerate(self.rules):
            for j, pattern in enumerate(rule.source):
                self._of[pattern.operator].append((k, j))

    def matches(self, roots: Sequence[int]) -> list[Match]:
        """Returns all matches in a program, given its results."""
        found: list[Match] = []
        parts: dict[int, list[list[tuple[int, Bound]]]] = {
            k: [[] for _ in rule.source]
            for k, rule in enumerate(self.rules)
            if len(rule.source) > 1
        }
        for number in self.terms.live(roots):
            for k, j in self._of.get(self.terms[number].operator, ()):
                for bound in self._look(k, j, number):
                    if k in parts:
                        parts[k][j].append((number, bound))
                    else:
                        found.append(Match(self.rules[k], (number,), bound))
        for k, patterns in parts.items():
            found.extend(_joined(self.rules[k], patterns))
        return found

    def replacements(self, found: Match) -> dict[int, int]:
        """Returns what a rewrite puts in the place of each term that it replaces."""
        terms = zip(found.terms, found.rule.target, strict=True)
        by = {old: build(self.terms, pattern, found.bound) for old, pattern in terms}
        return {old: new for old, new in by.items() if old != new}

    def apply(self, roots: Sequence[int], found: Match) -> tuple[int, ...] | None:
        """Returns the program after a rewrite, given its results; nothing if that has a cycle."""
        return self.terms.replace(roots, self.replacements(found))

    def _look(self, k: int, j: int, number: int) -> list[Bound]:
        known = self._found.get((k, j, number))
        if known is None:
            rule = self.rules[k]
            known = [
                bound
                for bound in match(self.terms, rule.source[j], number, rule.shapes, {})
                if all(self.terms.constant[bound[name]] for name in rule.constant if name in bound)
            ]
            self._found[k, j, number] = known
        return known


def _joined(rule: Rule, patterns: list[list[tuple[int, Bound]]]) -> Iterator[Match]:
    """Yields the matches of a rule of two patterns, of different terms that agree in all names."""
    first, second = patterns
    shared = sorted(rule.source[0].names() & rule.source[1].names())
    by: dict[tuple[int, ...], list[tuple[int, Bound]]] = defaultdict(list)
    for number, bound in second:
        by[tuple(bound[name] for name in shared)].append((number, bound))
    seen = set()
    for number, bound in first:
        for other, also in by.get(tuple(bound[name] for name in shared), ()):
            both = frozenset((number, other))
            if other == number or both in seen:
                continue
            if all(also[name] == bound[name] for name in bound.keys() & also.keys()):
                seen.add(both)
                yield Match(rule, (number, other), bound | also)
