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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.patterns import Apply, Bindings
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.saturation.egraph import EGraph
from gopt.rewriting.search.saturation.needs import Classes, Need, is_order, needs_of
from gopt.rewriting.search.saturation.sums import Form, Sums


def regroupings(
    terms: Terms, readers: Mapping[int, int], rules: Sequence[Rule]
) -> list["Regrouping"]:
    """Return a regrouping for each operator whose order a rule changes.

    Args:
      terms: all terms.
      readers: number of readers of each term in the program.
      rules: all rules.
    """
    orders = dict[str, Rule]()
    for rule in filter(is_order, rules):
        orders.setdefault(rule.source[0].operator, rule)
    return [Regrouping(terms, readers, rules, rule) for rule in orders.values()]


class Regrouping:
    """Orders of the sums of one operator.

    Attributes:
      rule: name of a rule that changes their order.
      sums: the sums.
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
        self.rule, self.sums = order.name, Sums(terms, readers, order)
        self._terms = terms
        self._needs = needs_of(rules, self.sums.operator)
        self._sharing = {need.shared_by for need in self._needs}
        self._is_compared = False  # whether sums of the program were compared with each other

    def of(
        self,
        graph: EGraph,
        others: Sequence["Regrouping"] = (),
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, int]]:
        """Yield sums, each with the term of the same sum in an order that the e-graph lacks.

        Args:
          graph: e-graph; the same one in all calls.
          others: sums of other operators in it.
          is_over: function that says whether to stop; it is called for each form of a sum.
        """
        yield from self.sums.read(graph)
        if not self.sums.forms:
            return
        classes = Classes(self._terms, graph.numbers, graph.classes())
        for root, forms in list(self.sums.forms.items()):
            for form in list(forms):
                if is_over():
                    return
                for groups in chain(self._like(classes, root, form), self._apart(classes, form)):
                    yield from self._regrouped(classes, root, form, groups)
        if not self._is_compared:
            self._is_compared = True
            for root, form, common in list(self._common(others)):
                yield from self._regrouped(classes, root, form, [common])

    def _like(self, classes: Classes, root: int, form: Form) -> Iterator[list[list[int]]]:
        """Yield the groups of parts that go together as wholes, for each reason to group them."""
        for need in self._needs:
            if need.is_symmetric:
                yield from self._whole(classes, need, form)
        if len(set(form)) < len(form):
            yield [list(form)]
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
            for bound in self._matches(classes, need, part):
                key = tuple((name, bound[name]) for name in need.shared if name in bound)
                if position not in keyed[key]:
                    keyed[key].append(position)
        groups = [group for group in keyed.values() if len(group) > 1]
        tried = set[object]()
        for first in groups:
            taken, found = set[int](), list[list[int]]()
            for group in (first, *groups):
                left = [position for position in group if position not in taken]
                if len(left) > 1:
                    taken.update(left)
                    found.append([form[position] for position in left])
            if (division := tuple(map(tuple, sorted(found)))) not in tried:
                tried.add(division)
                yield found

    def _apart(self, classes: Classes, form: Form) -> Iterator[list[list[int]]]:
        """Yield single pairs of parts that other needs have."""
        for need in self._needs:
            if need.is_symmetric or (need.is_whole and need.has_constant):
                continue
            for k, one in enumerate(form):
                bounds = self._matches(classes, need, one)
                rest = [*form[:k], *form[k + 1 :]]
                for other in rest if bounds else ():
                    if self._is_free(need, need.other, other) and any(
                        True
                        for bound in bounds
                        for _ in classes.match(need.rule, need.other, other, bound)
                    ):
                        yield [rest if need.is_whole else [one, other]]

    def _matches(self, classes: Classes, need: Need, part: int) -> list[Bindings]:
        """Return the matches of a need's first pattern with a part."""
        return classes.matches(need, 0, part) if self._is_free(need, need.one, part) else []

    def _is_free(self, need: Need, pattern: Any, part: int) -> bool:
        """Return whether a rule may match a part: some rules need terms without other readers."""
        is_inside = need.rule.alone and isinstance(pattern, Apply)
        return not is_inside or self.sums.readers.get(part, 0) <= 1

    def _common(self, others: Sequence["Regrouping"]) -> Iterator[tuple[int, Form, list[int]]]:
        """Yield sums with the parts that they share with another sum."""
        read_by: dict[int, set[Form]] = defaultdict(set)  # sums that may share one part
        for each in others:
            if self.sums.operator in each._sharing:
                for form in chain(*each.sums.forms.values()):
                    for part in form:
                        read_by[part].add(form)
        reading: dict[int, list[tuple[int, Form]]] = defaultdict(list)
        for root, forms in self.sums.forms.items():
            for form, is_read in forms.items():
                if not is_read:
                    continue
                for other, parts in sorted({each for part in form for each in reading[part]}):
                    shared = list((Counter(form) & Counter(parts)).elements())
                    is_enough = len(shared) > 1 or read_by[root] & read_by[other]
                    if root != other and is_enough:
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
        made = [self.sums.total(group) for group in groups]
        then = tuple(sorted([*left.elements(), *map(classes.of, made)]))
        if len(then) > 1 and then != form and not self.sums.add(root, then, False):
            return
        # What the groups make is added first: rules can use sums of other parts, of no need.
        varying = [part for part in made if not self._terms.constant[part]]
        rest = [part for part in left.elements() if not self._terms.constant[part]]
        constant = [part for part in (*made, *left.elements()) if self._terms.constant[part]]
        whole = reduce(self.sums.plus, [*varying, *sorted(rest), *constant])
        if classes.of(whole) != root:
            yield root, whole
