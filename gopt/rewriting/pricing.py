"""What programs cost: the sum of their terms, without what depends on constants alone."""

import math
from collections.abc import Callable, Sequence

from gopt.rewriting.costs import OpCost
from gopt.rewriting.terms import Terms


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
                known = self._cost(operator, attributes, tuple(terms.shapes[i] for i in inputs))
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
        change, readers = 0.0, dict[int, int]()

        def count(number: int) -> int:
            return readers.get(number, self._readers[number])

        for old, new in by.items():
            stack = [(new, count(old))]
            while stack:  # what is new reads its inputs
                number, more = stack.pop()
                if not count(number):
                    change += self._price(number)
                    stack.extend((i, 1) for i in self._terms[number].inputs)
                readers[number] = count(number) + more
        for old in by:
            gone = [old]
            readers[old] = 0
            while gone:
                number = gone.pop()
                change -= self._price(number)
                for i in self._terms[number].inputs:
                    readers[i] = count(i) - 1
                    if not readers[i]:
                        gone.append(i)
        return change
