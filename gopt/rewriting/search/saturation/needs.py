"""Pairs of parts of a sum or product that a rule can use."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.matching import Match, is_alone
from gopt.rewriting.rules.patterns import (
    COMMUTATIVE,
    Apply,
    AttributeVariable,
    Bindings,
    bind_attributes,
    bind_variable,
    names_of,
    parts,
)
from gopt.rewriting.rules.rule import Rule


class Need(NamedTuple):
    """Two patterns that a rule has as inputs of one sum or product.

    Attributes:
      rule: the rule.
      one: pattern of an operator.
      other: pattern, or variable.
      is_symmetric: whether the patterns differ in the names of variables only.
      has_constant: whether one of them is a variable whose value must be known.
      is_whole: whether the rule reads the sum inside of another operator, so that the patterns must
        match all parts of a sum.
      shared: names of the bindings that both patterns make, sorted.
    """

    rule: Rule
    one: Any
    other: Any
    is_symmetric: bool
    has_constant: bool
    is_whole: bool
    shared: tuple[str, ...]

    @property
    def shared_by(self) -> str | None:
        """Return the commutative operator of both patterns, if one variable is an input of both."""
        if not self.is_symmetric or self.one.operator not in COMMUTATIVE:
            return None
        both = set(self.one.inputs) & set(self.other.inputs)
        return self.one.operator if any(isinstance(each, str) for each in both) else None


def is_order(rule: Rule) -> bool:
    """Return whether a rule only changes the order of a sum or product of three parts."""
    if len(rule.source) > 1 or not isinstance(rule.target[0], Apply):
        return False
    sides = [rule.source[0], rule.target[0]]
    operators = {part.operator for side in sides for part in parts(side)}
    counts = [len(list(parts(side))) for side in sides]
    is_of_three = all(sorted(_leaves(side)) == sorted(side.names()) for side in sides)
    return (
        counts == [2, 2]
        and len(operators) == 1
        and operators <= COMMUTATIVE
        and is_of_three
        and sides[0].names() == sides[1].names()
        and not rule.shapes
        and not rule.constant
    )


def needs_of(rules: Sequence[Rule], operator: str) -> list[Need]:
    """Return the needs that rules have of sums or products, each once.

    Two variables of any value do not count: each sum has them.

    Args:
      rules: rules; those that only change an order have no needs.
      operator: a commutative operator.
    """
    found = list[Need]()
    for rule in rules:
        if is_order(rule):
            continue
        for pattern in rule.source:
            for part in parts(pattern):
                if part.operator != operator:
                    continue
                one, other = sorted(part.inputs, key=lambda each: isinstance(each, str))
                has_constant = any(each in rule.constant for each in part.inputs)
                if isinstance(one, Apply) or has_constant:
                    symmetric = isinstance(other, Apply) and bool(_renaming(one, other, rule))
                    shared = sorted(_bindings(one, rule) & _bindings(other, rule))
                    is_whole = part is not pattern
                    found.append(
                        Need(rule, one, other, symmetric, has_constant, is_whole, tuple(shared))
                    )
    return found


class Symmetric:
    """Rules whose source is a sum or product of two patterns that differ in names only.

    Such a rule matches each sum twice. And if two variables are equal, a special rule may match as
    well: xa + xb = x(a + b), where xa + yb = [x|y][a|b]. Both are applied to sums that the program
    has as they are, and that are not parts of larger ones.
    """

    def __init__(self, rules: Sequence[Rule], terms: Terms, roots: Iterable[int]):
        """Read rules and program.

        Args:
          rules: all rules.
          terms: all terms.
          roots: results of the program.
        """
        self._live = frozenset(terms.live(roots))
        self._inner = {
            i
            for number in self._live
            for i in terms[number].inputs
            if terms[i].operator == terms[number].operator
        }
        # Pairs of variables at the same places, by rule.
        self._pairs: dict[int, list[tuple[str, str]]] = {}
        self._special: dict[int, list[tuple[Rule, set[int]]]] = {}
        for rule in rules:
            pattern = rule.source[0]
            if len(rule.source) == 1 and pattern.operator in COMMUTATIVE:
                names = _renaming(pattern.inputs[0], pattern.inputs[1], rule)
                if names:
                    self._pairs[id(rule)] = list(names.items())
        known = [rule for rule in rules if id(rule) in self._pairs]
        for rule in known:
            self._special[id(rule)] = [
                (other, {k for k, (a, b) in enumerate(self._pairs[id(other)]) if a == b})
                for other in known
                if all(a != b for a, b in self._pairs[id(rule)])
                and _is_like(rule.source[0], other.source[0])
            ]

    def is_needless(self, found: Match, readers: Mapping[int, int]) -> bool:
        """Return whether a match is one that is found twice, or that a special rule finds as well.

        Args:
          found: match of one of the rules that were read.
          readers: number of readers of each term in the program.
        """
        rule, bound = found.rule, found.bound
        pairs = [(bound[a], bound[b]) for a, b in self._pairs.get(id(rule), ())]
        if next((a > b for a, b in pairs if a != b), False):
            return True
        has_all = self._live.issuperset(itertools.chain(found.terms, *pairs))
        if has_all and self._inner.isdisjoint(found.terms):
            return False
        equal = {k for k, (a, b) in enumerate(pairs) if a == b}
        return any(
            shared and shared <= equal and is_alone(other, bound, readers)
            for other, shared in self._special.get(id(rule), ())
        )


class Classes:
    """The e-classes of an e-graph at some time, and the matches of patterns in them.

    Attributes:
      terms: all terms.
    """

    def __init__(self, terms: Terms, numbers: Sequence[int], classes: dict[int, int]):
        """Group terms by e-class and operator.

        Args:
          terms: all terms.
          numbers: terms in the e-graph.
          classes: representative of each of them.
        """
        self.terms, self._classes = terms, classes
        self._members: dict[tuple[int, str], list[int]] = defaultdict(list)
        for number in numbers:
            self._members[classes[number], terms[number].operator].append(number)
        self._known: dict[tuple[int, int, int], list[Bindings]] = {}

    def of(self, number: int) -> int:
        """Return the representative of a term; the term itself if it is not in the e-graph."""
        return self._classes.get(number, number)

    def matches(self, need: Need, side: int, number: int) -> list[Bindings]:
        """Return the bindings under which an e-class matches one side of a need.

        Args:
          need: the need, which must outlive the e-classes.
          side: 0 for its first pattern, 1 for its second one.
          number: representative of the e-class.
        """
        key = id(need), side, number
        if key not in self._known:
            pattern = need.other if side else need.one
            self._known[key] = list(self.match(need.rule, pattern, number, {}))
        return self._known[key]

    def match(self, rule: Rule, pattern: Any, number: int, bound: Bindings) -> Iterator[Bindings]:
        """Yield the bindings under which an e-class matches a pattern.

        Args:
          rule: rule of the pattern.
          pattern: pattern, or variable.
          number: representative of the e-class.
          bound: bindings made before.
        """
        if isinstance(pattern, str):
            found = bind_variable(self.terms, pattern, number, rule.shapes, bound)
            is_known = pattern not in rule.constant or self.terms.constant[number]
            if found is not None and is_known:
                yield found
            return
        for member in self._members.get((number, pattern.operator), ()):
            _, attributes, inputs = self.terms[member]
            if len(inputs) != len(pattern.inputs):
                continue
            then = bind_attributes(self.terms, pattern, member, attributes, bound)
            if then is not None:
                orders = {inputs, inputs[::-1]} if pattern.operator in COMMUTATIVE else {inputs}
                for order in sorted(orders):
                    yield from self._inputs(rule, pattern.inputs, order, then)

    def _inputs(
        self, rule: Rule, patterns: Sequence[Any], numbers: Sequence[int], bound: Bindings
    ) -> Iterator[Bindings]:
        if not patterns:
            yield bound
            return
        for found in self.match(rule, patterns[0], self.of(numbers[0]), bound):
            yield from self._inputs(rule, patterns[1:], numbers[1:], found)


def _leaves(pattern: Any) -> list[str]:
    """Return the variables of a pattern, as often as they are read."""
    if isinstance(pattern, str):
        return [pattern]
    return [name for each in pattern.inputs for name in _leaves(each)]


def _bindings(pattern: Any, rule: Rule) -> set[str]:
    """Return the names of the bindings that a pattern makes, see `patterns`."""
    names = names_of(pattern)
    letters = {x for name in names for x in rule.shapes.get(name, "").split() if not x.isdigit()}
    found = names | {f"size {letter}" for letter in letters}
    for part in parts(pattern):
        found |= {f"like {part.like}"} if part.like else set()
        variables = (value for _, value in part.attributes)
        found |= {f"given {each.name}" for each in variables if isinstance(each, AttributeVariable)}
    return found


def _is_like(one: Any, other: Any) -> bool:
    """Return whether one pattern has all operators and attributes of another one, of any names."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return (
        (one.operator, one.like, len(one.inputs)) == (other.operator, other.like, len(other.inputs))
        and set(one.attributes) >= set(other.attributes)
        and all(map(_is_like, one.inputs, other.inputs))
    )


def _renaming(one: Any, other: Any, rule: Rule) -> dict[str, str] | None:
    """Return the other name of each variable if two patterns differ in the names only, or None."""
    common, names = names_of(one) & names_of(other), dict[str, str]()

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, str) and isinstance(b, str):
            is_kept = a == b or common.isdisjoint((a, b))
            is_as_constant = (a in rule.constant) == (b in rule.constant)
            return is_kept and is_as_constant and names.setdefault(a, b) == b
        if isinstance(a, str) or isinstance(b, str) or len(a.inputs) != len(b.inputs):
            return False
        is_like = (a.operator, a.attributes, a.like) == (b.operator, b.attributes, b.like)
        return is_like and all(map(same, a.inputs, b.inputs))

    return names if same(one, other) else None
