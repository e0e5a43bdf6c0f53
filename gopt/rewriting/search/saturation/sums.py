"""Sums of an e-graph, and products of elements, as multisets of parts."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.rules.rule import Rule
from gopt.rewriting.search.saturation.egraph import EGraph

_MOST_FORMS = 32  # forms that are kept of one sum

Form = tuple[int, ...]  # a multiset of parts: e-classes, sorted


class Sums:
    """Sums of one operator in an e-graph, each with several multisets of parts: its forms.

    Attributes:
      operator: commutative operator.
      readers: number of readers of each term in the program.
      forms: forms of each sum, by its e-class. True for those that were read in the e-graph: they
        are tried wherever the sum is a part of another one.
      left_out: whether a sum was kept as a part of another one because the program reads it
        elsewhere.
    """

    def __init__(self, terms: Terms, readers: Mapping[int, int], order: Rule):
        """Create an empty collection.

        Args:
          terms: all terms.
          readers: number of readers of each term in the program.
          order: rule that changes the order of sums.
        """
        self.operator, self.readers = order.source[0].operator, readers
        self.forms: dict[int, dict[Form, bool]] = defaultdict(dict)
        self.left_out = False
        self._terms, self._is_alone = terms, order.alone
        self._seen, self._made = set[int](), set[int]()  # terms that were read, or made here
        self._new = list[tuple[int, Form]]()  # sums that were read last
        self._partial = dict[int, Form]()  # parts of the sums of some parts

    def read(self, graph: EGraph) -> Iterator[tuple[int, int]]:
        """Read what is new in an e-graph; yield pairs of sums of the same parts.

        Args:
          graph: e-graph, always the same.
        """
        new = graph.numbers[len(self._seen) :]
        self._seen.update(new)
        self._open(new)
        if self.forms or self._new:
            self._canonize(graph.classes())
            self._expand()
        first = dict[Form, int]()
        for root, forms in self.forms.items():
            for form in forms:
                if first.setdefault(form, root) != root:
                    yield root, first[form]

    def _open(self, new: Sequence[int]) -> None:
        """Add the sums among new terms; sums inside of them do not count."""
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
        return self._terms[number].operator == self.operator and not self._terms.constant[number]

    def _may_open(self, number: int) -> bool:
        """Return whether a sum may be read as its parts."""
        return not self._is_alone or self.readers.get(number, 0) <= 1

    def _canonize(self, classes: Mapping[int, int]) -> None:
        """Replace terms by the representatives of their e-classes, and add new sums."""

        def of(form: Form) -> Form:
            return tuple(sorted(classes.get(part, part) for part in form))

        self._partial = {classes.get(part, part): of(form) for part, form in self._partial.items()}
        before, self.forms = self.forms, defaultdict(dict)
        for root, forms in before.items():
            after = self.forms[classes[root]]
            for form, is_read in forms.items():
                after[of(form)] = after.get(of(form), False) or is_read
        for root, form in self._new:
            self.add(classes[root], of(form), True)
        self._new = []

    def _finest(self, form: Form) -> Form:
        """Return a form with the parts of its partial sums in their place."""
        return tuple(sorted(chain(*(self._partial.get(part, (part,)) for part in form))))

    def add(self, root: int, form: Form, is_read: bool) -> bool:
        """Add a form of a sum; return whether it is new.

        If it was read, it must also have other parts than the forms that were added before: they
        were made with all partial sums of use.
        """
        forms = self.forms[root]
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
        stack = [(root, form) for root, forms in self.forms.items() for form in forms]
        within: dict[int, list[int]] = defaultdict(list)  # sums that have a part, or begin with it
        for number in sorted(self.forms):
            within[self._partial.get(number, (number,))[0]].append(number)
        while stack:
            root, form = stack.pop()
            if not self.forms[root][form]:
                continue
            counts = Counter(form)
            for number in chain(*(within[part] for part in counts)):
                parts = Counter(self._partial.get(number, (number,)))
                if number == root or not parts <= counts or not self._may_open(number):
                    continue
                for inner, is_read in list(self.forms[number].items()):
                    then = tuple(sorted([*(counts - parts).elements(), *inner]))
                    if is_read and number not in inner and self.add(root, then, True):
                        stack.append((root, then))

    def total(self, parts: Sequence[int]) -> int:
        """Return the sum of parts: constants last, and of equal parts twice their half."""
        counts = dict[tuple[bool, int], list[int]]()
        for part, count in sorted(Counter(parts).items()):
            counts.setdefault((self._terms.constant[part], count), []).append(part)
        times = [self._times(self._balanced(counts[key]), key[1]) for key in sorted(counts)]
        return self._balanced(times)

    def _times(self, part: int, count: int) -> int:
        if count == 1:
            return part
        half = self._times(part, count // 2)
        twice = self.plus(half, half)
        return self.plus(twice, part) if count % 2 else twice

    def _balanced(self, parts: Sequence[int]) -> int:
        """Return the sum of parts as a tree of the least depth, which few rounds can rewrite."""
        while len(parts) > 1:
            pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
            parts = [self.plus(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
        return parts[0]

    def plus(self, one: int, other: int) -> int:
        """Return the sum of two terms."""
        number = self._terms.add(self.operator, [one, other])
        if number not in self._seen:
            self._made.add(number)
        self._partial.setdefault(number, self._finest((one, other)))
        return number
