"""Rules that are found, not written by hand: after TASO's generator.

After Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph
Substitutions", SOSP 2019. All small expressions are compared on random numbers. What is equal is
verified, for random shapes of which no two need to be the same; and left out where it follows from
what was found before. Other than TASO's rules, these hold of integers that wrap around, too, which
leaves some of `relu` out, and of convolutions with any strides, padding and dilation, and with any
groups if they may. There are none of two patterns, and none where a name has a size that is a sum.
Needs the extra `rewriting`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gopt.rewriting.generate_rules.enumeration import Expressions
from gopt.rewriting.generate_rules.equalities import Equality, equality, is_general, operators_of
from gopt.rewriting.rules.generated import spelled
from gopt.rewriting.rules.patterns import build
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.saturation import saturate

Bound = dict[int, int]  # expressions, by the numbers of names


class Candidate(NamedTuple):
    """A rule, and the equality that it is."""

    equality: Equality
    rule: Rule


class Group(NamedTuple):
    """Expressions that are the same."""

    first: int
    others: tuple[int, ...]  # of one number of operators


class Generator:
    """Chooses, of all that is equal, that from which the rest follows.

    It follows if a part has a smaller expression that is equal, as no others are enumerated; if
    names are renamed; or if it is what was chosen before, with expressions in the place of names,
    up to parts that have smaller ones.

    Attributes:
      chosen: equalities, in the order in which they were found; all are verified.
      counts: what became of pairs of an expression and the first that is equal.
    """

    def __init__(self, expressions: Expressions, *, times: int = 3):
        """Takes all expressions.

        Args:
          expressions: that are compared.
          times: how often an equality is verified.
        """
        self.expressions, self.times = expressions, times
        self.chosen: list[Equality] = []
        self.counts = Counter({"wrong": 0})
        self._known = expressions.first == np.arange(len(expressions))  # equal to their first
        self._sides: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by operator

    def groups(self) -> list[Group]:
        """Returns what is the same, for `choose` to take one by one.

        Of the largest expressions, no group is there whose first one is another's, renamed.
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
            level, less, first = key  # what has more names is more general
            return level, not of.is_canonical[first], -int(of.distinct[first]), less, first

        keys = sorted(found, key=order)
        return [Group(key[-1], tuple(found[key])) for key in keys]

    def choose(self, group: Group) -> None:
        """Chooses what does not follow from what was chosen before, of a group.

        Raises:
          ValueError: an equality asks more of shapes than the expression that has been left out for
            it: operators of the domain that do so have to come last.
        """
        left = list(group.others)
        while left:
            follows = [other for other in left if self._follows(other)]
            if not follows:
                last = left.pop()  # most often it has another operator than the first
                follows = [last] if self._try(group.first, last) else []
            self._known[follows] = True
            left = [other for other in left if other not in follows]

    def _try(self, first: int, other: int) -> bool:
        """Returns whether a pair is an equality; then it is chosen."""
        for any_groups in (True, False):
            found = equality(self.expressions, first, other, any_groups=any_groups)
            if all(found.holds(seed) for seed in range(self.times)):
                break
        else:
            self.counts["wrong"] += 1
            return False
        if not is_general(self.expressions, other, found):
            sides = " = ".join(map(spelled, found.sides))
            raise ValueError(f"{sides} holds for special shapes alone: it has to come first")
        self.chosen.append(found)
        for source, target in ((first, other), (other, first)):
            operator = int(self.expressions.operator[source])
            if operator >= 0 and is_general(self.expressions, source, found):
                self._sides[operator].append((source, target))
        return True

    def _follows(self, number: int) -> bool:
        """Returns whether what was chosen makes it an expression that is known to be the same."""
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
        """Returns an expression, its parts replaced by the first that are equal, if it is there."""
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
    """Returns whether both sides are one term, however it is written."""
    terms, bound, _ = found.sample(0)
    one, other = (build(terms, side, bound) for side in found.sides)
    return one == other


def is_useless(rule: Rule) -> bool:
    """Returns whether what is put there has what is looked for in it, again and again."""
    (source,), (target,) = rule.source, rule.target
    return source in operators_of(target)


def follows(found: Candidate, rules: Sequence[Rule], *, rounds: int = 4, nodes: int = 1000) -> bool:
    """Returns whether saturation by other rules puts there what a rule does, within its limits.

    Args:
      found: a rule.
      rules: the others.
      rounds: see `gopt.rewriting.search.saturation.saturate`.
      nodes: see there.
    """
    (source,), (target,) = found.rule.source, found.rule.target
    for seed in range(2):  # some rules apply to some kernels alone
        terms, bound, _ = found.equality.sample(seed, np.float32)
        old, new = (build(terms, side, bound) for side in (source, target))
        graph = saturate(terms, [old], rules, rounds=rounds, nodes=nodes).graph
        graph.add([new])
        classes = graph.classes()
        if classes[old] != classes[new]:
            return False
    return True


def independent(found: Sequence[Candidate], rules: Sequence[Rule]) -> list[Rule]:
    """Returns what does not follow from the rest together with other rules.

    Args:
      found: rules; of two that follow from each other the first stays.
      rules: the others.
    """
    left = [each.rule for each in found]
    for each in reversed(found):
        rest = [rule for rule in left if rule is not each.rule]
        if follows(each, [*rules, *rest]):
            left = rest
    return left
