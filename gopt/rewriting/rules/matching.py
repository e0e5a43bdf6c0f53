"""Where the rules apply in a program.

What a term has of a rule, and what it is made of, depends on the term alone. So both are found
once, and after a rewrite only for terms that are new.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.patterns import Bound, build, match
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES


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
        self._found: dict[int, list[tuple[int, int, Bound]]] = {}  # by term: rule, pattern, names
        self._depth: dict[int, int] = {}  # by term: of the longest way to it
        self._depends: dict[tuple[int, int], bool] = {}  # by pair, the deeper one first
        self._of: dict[str, list[tuple[int, int]]] = defaultdict(list)  # rule and pattern
        for k, rule in enumerate(self.rules):
            for j, pattern in enumerate(rule.source):
                self._of[pattern.operator].append((k, j))

    def matches(self, roots: Sequence[int], order: Sequence[int] | None = None) -> list[Match]:
        """Returns all matches in a program.

        Args:
          roots: its results.
          order: its terms, inputs first, in whose order matches are returned, of each rule of two
            patterns after all others; by default that of their numbers.
        """
        found: list[Match] = []
        parts: dict[int, list[list[tuple[int, Bound]]]] = {
            k: [[] for _ in rule.source]
            for k, rule in enumerate(self.rules)
            if len(rule.source) > 1
        }
        readers = self.terms.readers(roots)
        for number in self.terms.live(roots) if order is None else order:
            for k, j, bound in self._look(number):
                if k in parts:
                    parts[k][j].append((number, bound))
                elif is_alone(self.rules[k], bound, readers):
                    found.append(Match(self.rules[k], (number,), bound))
        for k, patterns in parts.items():
            found.extend(self._joined(self.rules[k], patterns))
        return found

    def apply(self, roots: Sequence[int], found: Match) -> tuple[int, ...] | None:
        """Returns the program after a rewrite, given its results; nothing if that has a cycle."""
        return self.terms.replace(roots, replacements(self.terms, found))

    def _look(self, number: int) -> list[tuple[int, int, Bound]]:
        """Returns what a term has of the rules, once its inputs were looked at."""
        known = self._found.get(number)
        if known is None:
            known = self._found[number] = [
                (k, j, bound)
                for k, j in self._of.get(self.terms[number].operator, ())
                for rule in (self.rules[k],)
                for bound in match(self.terms, rule.source[j], number, rule.shapes, {})
                if applies(self.terms, rule, j, number, bound)
            ]
            inputs = self.terms[number].inputs
            self._depth[number] = 1 + max((self._depth[i] for i in inputs), default=0)
        return known

    def _is_apart(self, first: int, second: int) -> bool:
        """Returns whether neither of two terms depends on the other."""
        depth = self._depth
        deep, other = (first, second) if depth[first] > depth[second] else (second, first)
        if depth[deep] == depth[other]:
            return True
        if (deep, other) not in self._depends:
            seen, stack = set[int](), [deep]
            while stack and other not in seen:
                near = (i for i in self.terms[stack.pop()].inputs if depth[i] >= depth[other])
                stack.extend(new := [i for i in near if i not in seen])
                seen.update(new)
            self._depends[deep, other] = other in seen
        return not self._depends[deep, other]

    def _joined(self, rule: Rule, patterns: list[list[tuple[int, Bound]]]) -> Iterator[Match]:
        """Yields the matches of a rule of two patterns, of different terms that agree in all names.

        Neither may depend on the other: what is put in their place would depend on itself.
        """
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
                if not self._is_apart(number, other):
                    continue
                names = bound.keys() & also.keys() - {"inside"}
                if all(also[name] == bound[name] for name in names):
                    seen.add(both)
                    yield Match(rule, (number, other), bound | also)


def applies(terms: Terms, rule: Rule, j: int, number: int, bound: Bound) -> bool:
    """Returns whether constants are constant, and all arrays of one dtype, where patterns are.

    Sums of narrow numbers are others than narrowed sums: where a product of int8 is int32, it
    does not distribute.

    Args:
      terms: all terms.
      rule: that may apply.
      j: one of its patterns.
      number: the term that has it.
      bound: what its names stand for.
    """
    names = rule.source[j].names()
    shapes = [terms.shapes[k] for k in (number, *(bound[name] for name in names))]
    dtypes = {None if isinstance(shape, tuple) else shape.dtype for shape in shapes}
    constant = all(terms.constant[bound[name]] for name in rule.constant if name in names)
    return constant and len(dtypes) == 1


def is_alone(rule: Rule, bound: Bound, readers: Mapping[int, int]) -> bool:
    """Returns whether what is inside of a pattern has no other readers, if the rule needs that.

    Args:
      rule: that may apply.
      bound: where it would.
      readers: of terms, how many there are.
    """
    return not rule.alone or all(readers[k] <= 1 for k in bound.get("inside", ()))


def replacements(terms: Terms, found: Match) -> dict[int, int]:
    """Returns what a rewrite puts in the place of each term that it replaces.

    Raises:
      ValueError: the rule is no equality: what it puts there has another shape or dtype.
    """
    pairs = zip(found.terms, found.rule.target, strict=True)
    by = {old: build(terms, pattern, found.bound) for old, pattern in pairs}
    for old, new in by.items():
        before, after = terms.shapes[old], terms.shapes[new]
        if before != after:
            raise ValueError(f"{found.rule.name!r} puts {after} in the place of {before}")
    return {old: new for old, new in by.items() if old != new}
