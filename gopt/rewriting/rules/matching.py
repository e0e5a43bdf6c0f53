"""Find the places where rules apply in a program.

The matches of a term depend on the term alone. They are found once, and after a rewrite only for
new terms.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.patterns import Bindings, build, match
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.rules.table import RULES


class Match(NamedTuple):
    """A place where a rule applies.

    Attributes:
      rule: the rule.
      terms: terms to replace, one per source pattern of the rule.
      bound: bindings of the rule's variables.
    """

    rule: Rule
    terms: tuple[int, ...]
    bound: Bindings


class Matcher:
    """Find matches of rules in programs."""

    def __init__(self, terms: Terms, rules: Sequence[Rule] = RULES):
        """Create a matcher of `rules` in `terms`."""
        self.terms, self.rules = terms, tuple(rules)
        # Term to (rule, pattern, bindings).
        self._found: dict[int, list[tuple[int, int, Bindings]]] = {}
        self._depth: dict[int, int] = {}  # term to length of the longest path to it
        self._depends: dict[tuple[int, int], bool] = {}  # (deeper term, other term) to dependence
        # Operator to (rule, pattern).
        self._of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for k, rule in enumerate(self.rules):
            for j, pattern in enumerate(rule.source):
                self._of[pattern.operator].append((k, j))

    def matches(self, roots: Sequence[int], order: Sequence[int] | None = None) -> list[Match]:
        """Return all matches in a program.

        Args:
          roots: results of the program.
          order: terms of the program, inputs first; matches are returned in this order, by default
            by term number. Two-pattern rules come last.
        """
        found: list[Match] = []
        parts: dict[int, list[list[tuple[int, Bindings]]]] = {
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
        """Return the roots after a rewrite; None if the new program has a cycle."""
        return self.terms.replace(roots, replacements(self.terms, found))

    def _look(self, number: int) -> list[tuple[int, int, Bindings]]:
        """Return the matches of single patterns at a term; its inputs must be looked at before."""
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
        """Return whether neither of two terms depends on the other."""
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

    def _joined(self, rule: Rule, patterns: list[list[tuple[int, Bindings]]]) -> Iterator[Match]:
        """Yield the matches of a two-pattern rule: different terms with equal shared bindings.

        Neither term may depend on the other, because its replacement would depend on itself.
        """
        first, second = patterns
        shared = sorted(rule.source[0].names() & rule.source[1].names())
        by: dict[tuple[int, ...], list[tuple[int, Bindings]]] = defaultdict(list)
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


def applies(terms: Terms, rule: Rule, j: int, number: int, bound: Bindings) -> bool:
    """Return whether a pattern's match is valid: constants are constant, and all dtypes are equal.

    Sums of narrow numbers differ from narrowed sums: an int8 product with an int32 result is not
    distributive.

    Args:
      terms: all terms.
      rule: rule to check.
      j: index of its source pattern.
      number: term that matches the pattern.
      bound: bindings of the variables.
    """
    names = rule.source[j].names()
    shapes = [terms.shapes[k] for k in (number, *(bound[name] for name in names))]
    dtypes = {None if isinstance(shape, tuple) else shape.dtype for shape in shapes}
    constant = all(terms.constant[bound[name]] for name in rule.constant if name in names)
    return constant and len(dtypes) == 1


def is_alone(rule: Rule, bound: Bindings, readers: Mapping[int, int]) -> bool:
    """Return whether the inner terms of a match have no other readers, if the rule requires that.

    Args:
      rule: rule to check.
      bound: bindings of the match.
      readers: number of readers of each term.
    """
    return not rule.alone or all(readers[k] <= 1 for k in bound.get("inside", ()))


def replacements(terms: Terms, found: Match) -> dict[int, int]:
    """Build the replacement of each term that a rewrite replaces; unchanged terms are left out.

    Args:
      terms: terms to add to.
      found: match of the rewrite.

    Returns:
      Replacement by replaced term.

    Raises:
      ValueError: a replacement has another shape or dtype than its term.
    """
    pairs = zip(found.terms, found.rule.target, strict=True)
    by = {old: build(terms, pattern, found.bound) for old, pattern in pairs}
    for old, new in by.items():
        before, after = terms.shapes[old], terms.shapes[new]
        if before != after:
            raise ValueError(f"{found.rule.name!r} puts {after} in the place of {before}")
    return {old: new for old, new in by.items() if old != new}
