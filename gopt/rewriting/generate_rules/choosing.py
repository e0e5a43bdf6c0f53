"""Select the generated rules from which all others follow, after TASO's generator.

After Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph
Substitutions", SOSP 2019. All small expressions are compared on random numbers. Equalities are
verified on random shapes with independent sizes, and dropped if they follow from earlier ones.

Differences from TASO: rules also hold for integers that wrap around, which excludes some rules of
`relu`. Rules of convolutions hold for any strides, padding and dilation, and for any groups if
possible. Two-pattern rules are not generated, nor rules with a variable whose size is a sum. Needs
the extra `rewriting`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gopt.rewriting.generate_rules.enumeration import Expressions
from gopt.rewriting.generate_rules.equalities import (
    Equality,
    equality,
    operators_of,
    restricts_no_shapes,
)
from gopt.rewriting.rules.generated import spelled
from gopt.rewriting.rules.patterns import build
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.saturation import Limits, saturate

Bound = dict[int, int]  # variable to expression, both by number


class RuleCandidate(NamedTuple):
    """A rule, and its equality.

    Attributes:
      equality: verified equality.
      rule: one direction of it.
    """

    equality: Equality
    rule: Rule


class Group(NamedTuple):
    """Equal expressions.

    Attributes:
      first: number of the first expression.
      others: numbers of others, all with the same number of operators.
    """

    first: int
    others: tuple[int, ...]


class Generator:
    """Selection of the equalities from which all others follow.

    An equality follows from earlier ones in three cases: a part has a smaller equal expression, so
    that it is not enumerated; it is a renaming; or it is an instance of a selected equality, up to
    parts with smaller equal expressions.

    Attributes:
      expressions: expressions to compare.
      times: number of verifications of each equality.
      chosen: selected equalities in order, all verified.
      counts: numbers of pairs of an expression and its first equal one, by outcome.
    """

    def __init__(self, expressions: Expressions, *, times: int = 3):
        """Create an empty selection.

        Args:
          expressions: expressions to compare.
          times: number of verifications of each equality.
        """
        self.expressions, self.times = expressions, times
        self.chosen: list[Equality] = []
        self.counts = Counter({"wrong": 0})
        # Known to be equal to their first.
        self._known = expressions.first == np.arange(len(expressions))
        self._sides: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by operator

    def groups(self) -> list[Group]:
        """Return the groups of equal expressions, in the order for `choose`.

        Among the largest expressions, groups that are renamings of another group are left out.
        """
        of = self.expressions
        others = np.flatnonzero(~self._known)
        firsts = of.first[others]
        sizes = np.unique(of.first, return_counts=True)[1]
        needed = of.is_canonical[firsts] | (of.level[others] < of.level.max())
        self.counts["pairs"] = int((sizes * (sizes - 1) // 2).sum())
        self.counts["with the first"] = len(others)
        self.counts["not renamed"] = int(of.is_canonical[firsts].sum())
        found = defaultdict(list)
        for other, first in zip(others[needed].tolist(), firsts[needed].tolist(), strict=True):
            found[int(of.level[other]), int(of.level[first]), first].append(other)

        def order(key: tuple[int, int, int]) -> tuple[int, ...]:
            level, less, first = key  # more distinct variables are more general
            return level, not of.is_canonical[first], -int(of.distinct[first]), less, first

        keys = sorted(found, key=order)
        return [Group(key[-1], tuple(found[key])) for key in keys]

    def choose(self, group: Group) -> None:
        """Select the equalities of a group that do not follow from those selected before.

        Raises:
          ValueError: an equality restricts shapes more than the expression that it would drop.
            Operators with such restrictions must come last in the domain.
        """
        left = list(group.others)
        while left:
            is_derivable = [other for other in left if self._follows(other)]
            if not is_derivable:
                last = left.pop()  # its operator usually differs from the first one's
                is_derivable = [last] if self._try(group.first, last) else []
            self._known[is_derivable] = True
            left = [other for other in left if other not in is_derivable]

    def _try(self, first: int, other: int) -> bool:
        """Select a pair if it is an equality; return whether it is."""
        for any_groups in (True, False):
            found = equality(self.expressions, first, other, any_groups=any_groups)
            if all(found.holds(seed) for seed in range(self.times)):
                break
        else:
            self.counts["wrong"] += 1
            return False
        if not restricts_no_shapes(self.expressions, other, found):
            sides = " = ".join(map(spelled, found.sides))
            raise ValueError(f"{sides} holds for special shapes alone: it has to come first")
        self.chosen.append(found)
        for source, target in ((first, other), (other, first)):
            operator = int(self.expressions.operator[source])
            if operator >= 0 and restricts_no_shapes(self.expressions, source, found):
                self._sides[operator].append((source, target))
        return True

    def _follows(self, number: int) -> bool:
        """Return whether selected equalities turn an expression into one known to be equal."""
        of = self.expressions
        for source, target in self._sides[int(of.operator[number])]:
            for bound in self._match(source, number, {}):
                found = self._build(target, bound)
                if found is not None and self._known[found] and of.first[found] == of.first[number]:
                    return True
        return False

    def _match(self, pattern: int, number: int, bound: Bound) -> Iterator[Bound]:
        of = self.expressions
        if of.operator[pattern] < 0:
            if bound.get(pattern, number) == number:
                yield {**bound, pattern: number}
            return
        if of.operator[pattern] != of.operator[number]:
            return
        patterns, inputs = of.reads(pattern), of.reads(number)
        orders = [inputs, inputs[::-1]] if of.commutes(of.operator[pattern]) else [inputs]
        for order in orders:
            found = [bound]
            for one, other in zip(patterns, order, strict=True):
                found = [new for old in found for new in self._match(one, other, old)]
            yield from found

    def _build(self, pattern: int, bound: Bound) -> int | None:
        """Return an instance of a pattern, with the first equal of each part; None if not found."""
        of = self.expressions
        if of.operator[pattern] < 0:
            return bound.get(pattern)
        inputs = list[int]()
        for each in of.reads(pattern):
            found = self._build(each, bound)
            if found is None or not self._known[found]:
                return None
            inputs.append(int(of.first[found]))
        return of.find(int(of.operator[pattern]), inputs)


def is_same(found: Equality) -> bool:
    """Return whether both sides are one term."""
    terms, bound, _ = found.sample(0)
    one, other = (build(terms, side, bound) for side in found.sides)
    return one == other


def is_useless(rule: Rule) -> bool:
    """Return whether the target contains the source, so that the rule applies forever."""
    (source,), (target,) = rule.source, rule.target
    return source in operators_of(target)


def is_derivable(
    found: RuleCandidate, rules: Sequence[Rule], *, rounds: int = 4, max_terms: int = 1000
) -> bool:
    """Return whether saturation with other rules derives a rule, within its limits.

    Args:
      found: rule to derive.
      rules: other rules.
      rounds: see `gopt.rewriting.search.saturation.Limits`.
      max_terms: see `gopt.rewriting.search.saturation.Limits`.
    """
    (source,), (target,) = found.rule.source, found.rule.target
    for seed in range(2):  # some rules apply to some kernels only
        terms, bound, _ = found.equality.sample(seed, np.float32)
        old, new = (build(terms, side, bound) for side in (source, target))
        limits = Limits(rounds=rounds, max_terms=max_terms)
        if not saturate(terms, [old], rules, limits).are_equal(old, new):
            return False
    return True


def independent(found: Sequence[RuleCandidate], rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that cannot be derived from the rest and from other rules.

    Args:
      found: rules; of two that derive each other, the first stays.
      rules: other rules.
    """
    left = [each.rule for each in found]
    for each in reversed(found):
        rest = [rule for rule in left if rule is not each.rule]
        if is_derivable(each, [*rules, *rest]):
            left = rest
    return left
