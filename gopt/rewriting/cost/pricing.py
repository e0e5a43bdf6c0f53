"""Costs of programs: the sum over their terms, except terms that depend on constants only."""

import math
from collections.abc import Callable, Mapping, Sequence

from gopt.rewriting.cost.costs import OpCost
from gopt.rewriting.ir.terms import Terms


class TermCosts:
    """Costs of terms and of programs, in s."""

    def __init__(self, terms: Terms, cost: OpCost):
        """Create the costs of `terms` under the cost model `cost`."""
        self._terms, self._cost = terms, cost
        self._known: dict[int, float] = {}

    def term(self, number: int) -> float:
        """Return the cost of a term in s; 0 if its value is known before the program runs."""
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
        """Return the cost of the program with these roots, in s; term numbers do not matter."""
        return math.fsum(map(self.term, self._terms.live(roots)))


class Change:
    """Change of a program's cost when terms are replaced, found without building the new program.

    The change is the cost of the new terms minus the cost of the terms that nobody reads any more.
    Readers of a replaced term keep their cost, even if they become simpler.
    """

    def __init__(self, terms: Terms, price: Callable[[int], float], roots: Sequence[int]):
        """Count the readers of all terms of the program.

        Args:
          terms: terms of the program, and others.
          price: function from a term to its cost, such as `Prices.term`.
          roots: results of the program.
        """
        self._terms, self._price = terms, price
        self._readers = terms.readers(roots)

    def of(self, by: dict[int, int]) -> float:
        """Return the change of the cost in s, given the replacement of each replaced term.

        No replaced term may depend on another.
        """
        new, gone = replaced(by, self._readers, lambda number: self._terms[number].inputs)
        return sum(map(self._price, new)) - sum(map(self._price, gone))


def replaced(
    by: Mapping[int, int], readers: Mapping[int, int], inputs: Callable[[int], Sequence[int]]
) -> tuple[list[int], list[int]]:
    """Return the terms that a program gains, and the terms that it loses.

    Args:
      by: replacement of each replaced term; no replaced term depends on another.
      readers: number of readers of each term of the program.
      inputs: function from a term to its inputs.
    """
    new, gone, counts = list[int](), list[int](), dict[int, int]()

    def count(number: int) -> int:
        return counts.get(number, readers.get(number, 0))

    for old, one in by.items():
        stack = [(one, count(old))]
        while stack:  # a new term reads its inputs
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
