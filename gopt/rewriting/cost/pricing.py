"""What programs cost: the sum of their terms, without what depends on constants alone."""

import math
from collections.abc import Callable, Mapping, Sequence

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.ir.terms import Terms


class Prices:
    """Costs of the terms and of the programs of some terms, in s."""

    def __init__(self, terms: Terms, cost: OpCost):
        """Takes what an op costs."""
        self._terms, self._cost = terms, cost
        self._known: dict[int, float] = {}

    def term(self, number: int) -> float:
        """Returns the cost of a term; nothing if it is known before the program runs."""
        known = self._known.get(number)
        if known is None:
            terms, known = self._terms, 0.0
            if not terms.constant[number]:
                operator, attributes, inputs = terms[number]
                shapes = tuple(terms.shapes[i] for i in inputs)
                constant = tuple(terms.constant[i] for i in inputs)
                known = self._cost(operator, attributes, shapes, constant)
            self._known[number] = known
        return known

    def program(self, roots: Sequence[int]) -> float:
        """Returns the cost of a program, given its results; it does not depend on their numbers."""
        return math.fsum(map(self.term, self._terms.live(roots)))


class Change:
    """What replacing terms of one program would change, without making the program that results.

    It is the cost of what is new, less that of what nobody needs any more. What reads something
    that was replaced costs the same as before, unless it becomes simpler.
    """

    def __init__(self, terms: Terms, price: Callable[[int], float], roots: Sequence[int]):
        """Counts the readers of all terms of the program.

        Args:
          terms: those of the program, and others.
          price: of a term, as `Prices.term` has it.
          roots: results of the program.
        """
        self._terms, self._price = terms, price
        self._readers = terms.readers(roots)

    def of(self, by: dict[int, int]) -> float:
        """Returns what is added to the cost, given a term for each that is replaced.

        None of these may depend on another.
        """
        new, gone = replaced(by, self._readers, lambda number: self._terms[number].inputs)
        return sum(map(self._price, new)) - sum(map(self._price, gone))


def replaced(
    by: Mapping[int, int], readers: Mapping[int, int], inputs: Callable[[int], Sequence[int]]
) -> tuple[list[int], list[int]]:
    """Returns the terms that a program has anew, and those that it has no longer.

    Args:
      by: a term for each that is replaced, none of which depends on another.
      readers: how often each term of the program is read.
      inputs: of a term.
    """
    new, gone, counts = list[int](), list[int](), dict[int, int]()

    def count(number: int) -> int:
        return counts.get(number, readers.get(number, 0))

    for old, one in by.items():
        stack = [(one, count(old))]
        while stack:  # what is new reads its inputs
            number, more = stack.pop()
            if not count(number):
                new.append(number)
                stack.extend((i, 1) for i in inputs(number))
            counts[number] = count(number) + more
    for old in by:
        stack = [(old, count(old))]
        while stack:
            number, less = stack.pop()
            counts[number] = count(number) - less
            if not counts[number]:
                gone.append(number)
                stack.extend((i, 1) for i in inputs(number))
    return new, gone
