"""Choose orders of sums and products of elements in an e-graph.

A sum of n parts has exponentially many orders. Here a sum is a multiset of parts, and only parts of
use to each other are brought together:

- all that a rule can use with each other, such as products of one input, as a whole;
- two that a rule can use, such as a convolution and its input;
- equal parts, constants, and smaller parts of one shape;
- all that two sums of the program have in common, before any rule is applied.

Their sum is then one part in their place, and so on. "Sum" stands for either operator.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, product
from typing import Any

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.patterns import Apply
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.egraph import EGraph
from gopt.rewriting.search.needs import Classes, Need, is_order, needs_of

_MOST_FORMS = 32  # forms that are tried for one sum

Form = tuple[int, ...]  # a multiset of parts: e-classes, sorted


def regroupings(
    terms: Terms, readers: Mapping[int, int], rules: Sequence[Rule]
) -> list["Regrouping"]:
    """Return a regrouping for each operator whose order a rule changes.

    Args:
      terms: all terms.
      readers: number of readers of each term in the program.
      rules: all rules.
    """
    orders = {rule.source[0].operator: rule for rule in rules if is_order(rule)}
    return [Regrouping(terms, readers, rules, rule) for rule in orders.values()]


class Regrouping:
    """Sums of one operator, as multisets of parts.

    Attributes:
      rule: name of a rule that changes their order.
      left_out: whether a sum was kept as a part of another one because the program reads it
        elsewhere.
    """

    def __init__(
        self, terms: Terms, readers: Mapping[int, int], rules: Sequence[Rule], order: Rule
    ):
        """Read which parts the rules can use.

        Args:
          terms: all terms.
          readers: number of readers of each term in the program.
          rules: all rules.
          order: one of them, which changes the order of sums.
        """
        self.rule, self.left_out = order.name, False
        self._terms, self._readers, self._is_alone = terms, readers, order.alone
        self._operator = order.source[0].operator
        self._needs = needs_of(rules, self._operator)
        self._sharing = {need.shared_by for need in self._needs}
        self._num_read, self._made = 0, set[int]()
        # Forms of each sum, by its e-class. Those of terms that this class has not made are read
        # wherever the sum is a part of another one.
        self._forms: dict[int, dict[Form, bool]] = defaultdict(dict)
        self._new = list[tuple[int, Form]]()  # sums that were read last
        self._partial = dict[int, Form]()  # parts of the sums of some parts
        self._is_compared = False  # whether sums of the program were compared with each other

    def orders(
        self, graph: EGraph, others: Sequence["Regrouping"] = ()
    ) -> Iterator[tuple[int, int]]:
        """Yield sums with an equal term, each in an order that the e-graph lacks.

        Args:
          graph: e-graph, always the same.
          others: sums of other operators in it.
        """
        self._read(graph.numbers[self._num_read :])
        self._num_read = len(graph.numbers)
        if not (self._forms or self._new):
            return
        classes = Classes(self._terms, graph.numbers, graph.classes())
        self._canonize(classes)
        self._expand()
        for root, forms in list(self._forms.items()):
            for form in list(forms):
                for groups in chain(self._like(classes, root, form), self._apart(classes, form)):
                    yield from self._regrouped(classes, root, form, groups)
        if not self._is_compared:
            self._is_compared = True
            for root, form, common in list(self._common(others)):
                if isinstance(common, int):
                    yield root, common
                else:
                    yield from self._regrouped(classes, root, form, [common])

    def _read(self, new: Sequence[int]) -> None:
        """Add the sums among new terms; sums inside of them are parts of them."""
        inner, read = set[int](), dict[int, Form]()
        for number in reversed(new):
            if self._is_sum(number) and not {number} & (inner | self._made):
                parts, stack = list[int](), list(self._terms[number].inputs)
                while stack:
                    i = stack.pop()
                    if self._is_sum(i) and self._may_open(i):
                        inner.add(i)
                        stack.extend(self._terms[i].inputs)
                    else:
                        self.left_out |= self._is_sum(i)
                        parts.append(i)
                read[number] = tuple(sorted(parts))
        for number in sorted(inner):
            self._partial.setdefault(number, self._finest(self._terms[number].inputs))
        self._new.extend(read.items())

    def _is_sum(self, number: int) -> bool:
        return self._terms[number].operator == self._operator and not self._terms.constant[number]

    def _may_open(self, number: int) -> bool:
        """Return whether a sum may be read as its parts."""
        return not self._is_alone or self._readers.get(number, 0) <= 1

    def _canonize(self, classes: Classes) -> None:
        """Replace terms by the representatives of their e-classes, and add new sums."""

        def of(form: Form) -> Form:
            return tuple(sorted(map(classes.of, form)))

        self._partial = {classes.of(part): of(form) for part, form in self._partial.items()}
        before, self._forms = self._forms, defaultdict(dict)
        for root, forms in before.items():
            after = self._forms[classes.of(root)]
            for form, is_read in forms.items():
                after[of(form)] = after.get(of(form), False) or is_read
        for root, form in self._new:
            self._add(classes.of(root), of(form), True)
        self._new = []

    def _finest(self, form: Form) -> Form:
        """Return a form with the parts of its partial sums in their place."""
        return tuple(sorted(chain(*(self._partial.get(part, (part,)) for part in form))))

    def _add(self, root: int, form: Form, is_read: bool) -> bool:
        """Add a form of a sum; return whether it is new.

        If it was read, it must also have other parts than the forms that were added before: they
        were made with all partial sums of use.
        """
        forms = self._forms[root]
        is_new = form not in forms and root not in form and len(forms) < _MOST_FORMS
        if is_new and is_read:
            finest = self._finest(form)
            known = {self._partial.get(root, ()), *map(self._finest, forms)}
            is_new = finest not in known
        if is_new:
            forms[form] = is_read
        return is_new

    def _expand(self) -> None:
        """Replace parts of sums, and partial sums, by other parts that were read."""
        stack = [(root, form) for root, forms in self._forms.items() for form in forms]
        within: dict[int, list[int]] = defaultdict(list)  # sums that have a part, or begin with it
        for number in sorted(self._forms):
            within[self._partial.get(number, (number,))[0]].append(number)
        while stack:
            root, form = stack.pop()
            if not self._forms[root][form]:
                continue
            counts = Counter(form)
            for number in chain(*(within[part] for part in counts)):
                parts = Counter(self._partial.get(number, (number,)))
                if number == root or not parts <= counts or not self._may_open(number):
                    continue
                for inner, is_read in list(self._forms[number].items()):
                    then = tuple(sorted([*(counts - parts).elements(), *inner]))
                    if is_read and number not in inner and self._add(root, then, True):
                        stack.append((root, then))

    def _like(self, classes: Classes, root: int, form: Form) -> Iterator[list[list[int]]]:
        """Yield the groups of parts that go together as wholes, for each reason to group them."""
        for need in self._needs:
            if need.is_symmetric:
                yield from self._whole(classes, need, form)
        if len(set(form)) < len(form):
            yield []
        constant = [part for part in form if self._terms.constant[part]]
        if len(constant) > 1 or (constant and any(need.has_constant for need in self._needs)):
            yield [constant]
        shapes: dict[object, list[int]] = defaultdict(list)
        for part in form:
            shapes[self._terms.shape(part)].append(part)
        shapes.pop(self._terms.shape(root), None)
        if smaller := [group for group in shapes.values() if len(group) > 1]:
            yield smaller

    def _whole(self, classes: Classes, need: Need, form: Form) -> Iterator[list[list[int]]]:
        """Yield disjoint groups of parts that a symmetric need has, with each group first."""
        keyed: dict[object, list[int]] = defaultdict(list)  # positions of parts
        for position, part in enumerate(form):
            if not self._is_free(need, need.one, part):
                continue
            for bound in classes.matches(need, 0, part):
                key = tuple((name, bound[name]) for name in need.shared if name in bound)
                if position not in keyed[key]:
                    keyed[key].append(position)
        groups = [group for group in keyed.values() if len(group) > 1]
        tried = set[str]()
        for first in groups:
            taken, found = set[int](), list[list[int]]()
            for group in (first, *groups):
                left = [position for position in group if position not in taken]
                if len(left) > 1:
                    taken.update(left)
                    found.append([form[position] for position in left])
            if (division := str(sorted(found))) not in tried:
                tried.add(division)
                yield found

    def _apart(self, classes: Classes, form: Form) -> Iterator[list[list[int]]]:
        """Yield single pairs of parts that other needs have."""
        for need in self._needs:
            if need.is_symmetric:
                continue
            for one, other in product(range(len(form)), repeat=2):
                if one == other:
                    continue
                pair = [form[one], form[other]]
                patterns = (need.one, need.other)
                if not all(map(partial(self._is_free, need), patterns, pair)):
                    continue
                if any(
                    True
                    for bound in classes.matches(need, 0, pair[0])
                    for _ in classes.match(need.rule, need.other, pair[1], bound)
                ):
                    yield [pair]

    def _is_free(self, need: Need, pattern: Any, part: int) -> bool:
        """Return whether a rule may match a part: some rules need terms without other readers."""
        is_inside = need.rule.alone and isinstance(pattern, Apply)
        return not is_inside or self._readers.get(part, 0) <= 1

    def _common(
        self, others: Sequence["Regrouping"]
    ) -> Iterator[tuple[int, Form, int | list[int]]]:
        """Yield sums with the parts that they share with another sum, or with an equal sum."""
        read_by: dict[int, set[Form]] = defaultdict(set)  # sums that may share one part
        for each in others:
            if self._operator in each._sharing:
                for form in chain(*each._forms.values()):
                    for part in form:
                        read_by[part].add(form)
        reading: dict[int, list[tuple[int, Form]]] = defaultdict(list)
        for root, forms in self._forms.items():
            for form, is_read in forms.items():
                if not is_read:
                    continue
                for other, parts in sorted({each for part in form for each in reading[part]}):
                    shared = list((Counter(form) & Counter(parts)).elements())
                    is_enough = len(shared) > 1 or read_by[root] & read_by[other]
                    if root != other and len(shared) == len(form) == len(parts):
                        yield root, form, other
                    elif root != other and is_enough:
                        yield root, form, shared
                        yield other, parts, shared
                for part in set(form):
                    reading[part].append((root, form))

    def _regrouped(
        self, classes: Classes, root: int, form: Form, groups: list[list[int]]
    ) -> Iterator[tuple[int, int]]:
        """Yield a sum with an equal term that adds the parts of each group first."""
        if len(form) < 3:
            return
        left = Counter(form) - Counter(chain.from_iterable(groups))
        parts = [*left.elements(), *map(self._total, groups)]
        then = tuple(sorted(map(classes.of, parts)))
        if len(then) > 1 and then != form and not self._add(root, then, False):
            return
        whole = self._total(parts)
        if classes.of(whole) != root:
            yield root, whole

    def _total(self, parts: Sequence[int]) -> int:
        """Return the sum of parts: constants last, and of equal parts twice their half."""
        counts = dict[int, list[int]]()
        for part, count in sorted(Counter(parts).items()):
            counts.setdefault(count, []).append(part)
        times = [self._times(self._balanced(each), count) for count, each in counts.items()]
        varying, constant = list[int](), list[int]()
        for each in times:
            (constant if self._terms.constant[each] else varying).append(each)
        return self._balanced([self._balanced(each) for each in (varying, constant) if each])

    def _times(self, part: int, count: int) -> int:
        if count == 1:
            return part
        half = self._times(part, count // 2)
        twice = self._plus(half, half)
        return self._plus(twice, part) if count % 2 else twice

    def _balanced(self, parts: Sequence[int]) -> int:
        """Return the sum of parts as a tree of the least depth, which few rounds can rewrite."""
        while len(parts) > 1:
            pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
            parts = [self._plus(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
        return parts[0]

    def _plus(self, one: int, other: int) -> int:
        known = len(self._terms)
        number = self._terms.add(self._operator, [one, other])
        if number >= known:
            self._made.add(number)
        self._partial.setdefault(number, self._finest((one, other)))
        return number
