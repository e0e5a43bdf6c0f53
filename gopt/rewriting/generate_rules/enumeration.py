"""Enumerate all expressions of a few operators, and find those equal on random numbers.

Numbers are 64-bit integers of any value that wrap around. Expressions that are equal for several
draws are equal for all integers, with high probability. All expressions with the same number of
operators are enumerated together. Equal expressions are represented by the first; expressions that
read another one are not enumerated.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.rewriting.generate_rules.domains import AxisEqualities, Domain, Shape, own_letters
from gopt.rewriting.generate_rules.fingerprints import Fingerprints, computed
from gopt.rewriting.rules.patterns import COMMUTATIVE, Apply

_DRAWS = 6
_CHUNK = 2048  # expressions that are computed at once
_BITS = 25  # bits of the number of an expression


class _Kept(NamedTuple):
    """Representative expressions of one level and one shape, as inputs of others.

    Attributes:
      level: number of operators.
      shape: shape, in letters.
      numbers: numbers of the expressions, `[B]`.
      values: their values, int64 `[B, draws, *shape]`.
    """

    level: int
    shape: Shape
    numbers: Any
    values: Any


class _Block(NamedTuple):
    """An operator applied to representative expressions.

    Attributes:
      operator: index of the operator.
      shape: shape of the results, in letters.
      inputs: representative expressions for each input.
      rows: index into each input, `[B, arity]`.
    """

    operator: int
    shape: Shape
    inputs: tuple[_Kept, ...]
    rows: Any


class _Kind:
    """Numbered orders in which the variables of one shape may appear.

    Attributes:
      merged: number of the order of one expression followed by another, by the numbers of both.
      is_canonical: whether the order is the domain's, and none is left out.
      distinct: number of variables.
    """

    def __init__(self, domain: Domain, shape: Shape):
        names = tuple(name for name, other in domain.names.items() if other == shape)
        orders = [
            order
            for length in range(len(names) + 1)
            for order in itertools.permutations(names, length)
        ]
        self._place = {order: k for k, order in enumerate(orders)}
        merged = [[self._place[tuple(dict.fromkeys(a + b))] for b in orders] for a in orders]
        self.merged = np.array(merged)
        self.is_canonical = np.array([order == names[: len(order)] for order in orders])
        self.distinct = np.array(list(map(len, orders)))

    def of(self, name: str) -> int:
        """Return the number of the order of a single variable."""
        return self._place.get((name,), 0)


class Expressions:
    """Numbered expressions: variables in order, then expressions of one operator, and so on.

    Attributes:
      domain: variables and operators.
      operator: operator of each expression, as an index in the domain; -1 for a variable.
      inputs: numbers of the inputs of each, `[B, 2]`; -1 if there are fewer.
      level: number of operators in each.
      first: first expression equal to each. Among those with the fewest operators, a canonical one
        comes first.
      is_canonical: whether the variables of each shape appear in order, with none left out.
      distinct: number of variables in each.
    """

    def __init__(self, domain: Domain, seed: int = 0):
        """Create the variables of a domain.

        Args:
          domain: variables and operators.
          seed: random seed of the numbers.
        """
        count = len(domain.names)
        self.domain, self._rng = domain, np.random.default_rng(seed)
        self._prints_of = Fingerprints(self._rng)
        self._kinds = [_Kind(domain, shape) for shape in dict.fromkeys(domain.names.values())]
        self._kept: list[_Kept] = []
        self.operator, self.inputs = np.full(count, -1), np.full((count, 2), -1)
        self.level = np.zeros(count, int)
        self._order = np.array([[k.of(name) for k in self._kinds] for name in domain.names])
        self._prints = np.zeros(count, np.uint64)
        for shape in dict.fromkeys(domain.names.values()):
            numbers = np.array([k for k, s in enumerate(domain.names.values()) if s == shape])
            size = (len(numbers), _DRAWS, *self._size(shape))
            self._kept.append(_Kept(0, shape, numbers, self._draw(size)))
            self._prints[numbers] = self._prints_of.of(shape, self._kept[-1].values)
        self._find_first()

    def __len__(self) -> int:
        return len(self.operator)

    def grow(self, *, last: bool = False) -> None:
        """Add all expressions with one operator more.

        Args:
          last: whether this is the last call, so that values are not kept.
        """
        level, before = int(self.level.max()) + 1, len(self)
        blocks = [block for k in range(len(self.domain.operators)) for block in self._of(k, level)]
        prints, inputs = [self._prints], [self.inputs]
        for block in blocks:
            values = (self._values(block, rows) for rows in _chunks(block.rows))
            prints += [self._prints_of.of(block.shape, each) for each in values]
            numbers = [kept.numbers[block.rows[:, j]] for j, kept in enumerate(block.inputs)]
            inputs.append(np.stack([*numbers, np.full_like(numbers[0], -1)][:2], 1))
        sizes = [len(block.rows) for block in blocks]
        added = np.repeat([block.operator for block in blocks], sizes)
        self._prints, self.inputs = np.concatenate(prints), np.concatenate(inputs)
        self.operator = np.concatenate([self.operator, added])
        self.level = np.concatenate([self.level, np.full(len(added), level)])
        left, right = self.inputs[before:].T
        right = np.where(right < 0, left, right)
        both = zip(self._kinds, self._order[left].T, self._order[right].T, strict=True)
        order = np.stack([kind.merged[one, other] for kind, one, other in both], 1)
        self._order = np.concatenate([self._order, order])
        self._find_first()
        if not last:
            self._keep(blocks, before, level)

    def find(self, operator: int, inputs: Sequence[int]) -> int | None:
        """Return the number of an expression; None if it was not enumerated."""
        orders = [inputs, inputs[::-1]] if self.commutes(operator) else [inputs]
        for left, right in ((*order, -1)[:2] for order in orders):
            key = _keys(operator, left, right)
            at = int(np.searchsorted(self._sorted_keys, key))
            if at < len(self._sorted_keys) and self._sorted_keys[at] == key:
                return int(self._sorted[at])
        return None

    def commutes(self, operator: int) -> bool:
        """Return whether the inputs of an operator of the domain may be swapped."""
        return self._pattern(operator).operator in COMMUTATIVE

    def reads(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the inputs of an expression."""
        return tuple(int(i) for i in self.inputs[number] if i >= 0)

    def tree(self, number: int) -> Any:
        """Return the pattern of an expression."""
        if self.operator[number] < 0:
            return tuple(self.domain.names)[number]
        inputs = [self.tree(i) for i in self.reads(number)]
        return self.domain.operators[self.operator[number]].pattern(*inputs)

    def shape(self, number: int, letters: AxisEqualities) -> Shape:
        """Return the shape of an expression, in letters.

        Args:
          number: number of the expression.
          letters: equalities between letters, extended by those that the expression requires.
        """
        if self.operator[number] < 0:
            name = tuple(self.domain.names)[number]
            return own_letters(name, self.domain.names[name])
        inputs = [self.shape(i, letters) for i in self.reads(number)]
        found = self.domain.operators[self.operator[number]].shape(*inputs, same=letters.same)
        if found is None:
            raise AssertionError("an expression of one size has no shape")
        return found

    def _of(self, k: int, level: int) -> Iterator[_Block]:
        """Yield the blocks of an operator of the domain for expressions of some level."""
        operator = self.domain.operators[k]
        for places in itertools.product(range(len(self._kept)), repeat=operator.arity):
            inputs = tuple(self._kept[place] for place in places)
            if sum(kept.level for kept in inputs) != level - 1:
                continue
            if self.commutes(k) and places[0] > places[-1]:
                continue
            shape = operator.shape(*(kept.shape for kept in inputs), same=lambda a, b: a == b)
            if shape is None:
                continue
            rows = np.indices([len(kept.numbers) for kept in inputs]).reshape(len(inputs), -1).T
            if self.commutes(k) and places[0] == places[-1]:
                rows = rows[rows[:, 0] <= rows[:, -1]]
            yield _Block(k, shape, inputs, rows)

    def _keep(self, blocks: Sequence[_Block], before: int, level: int) -> None:
        """Keep the values of representative expressions as inputs of others."""
        found: dict[Shape, list[tuple[Any, Any]]] = {}
        for block in blocks:
            numbers = np.arange(before, before := before + len(block.rows))
            is_first = self.first[numbers] == numbers
            for rows in _chunks(block.rows[is_first]):
                found.setdefault(block.shape, []).append((rows, self._values(block, rows)))
            if is_first.any():
                found[block.shape].append((numbers[is_first], None))
        for shape, parts in found.items():
            numbers = np.concatenate([rows for rows, values in parts if values is None])
            values = np.concatenate([values for _, values in parts if values is not None])
            self._kept.append(_Kept(level, shape, numbers, values))

    def _values(self, block: _Block, rows: Any) -> Any:
        padded = np.concatenate([rows, np.zeros((_CHUNK - len(rows), rows.shape[1]), int)])
        values = [kept.values[padded[:, j]] for j, kept in enumerate(block.inputs)]
        with jax.enable_x64(True):
            return np.asarray(computed(self._pattern(block.operator))(*values))[: len(rows)]

    def _find_first(self) -> None:
        every = np.arange(len(self))
        kinds = list(zip(self._kinds, self._order.T, strict=True))
        self.is_canonical = np.all([kind.is_canonical[order] for kind, order in kinds], 0)
        self.distinct = np.sum([kind.distinct[order] for kind, order in kinds], 0)
        by_print = np.lexsort((every, ~self.is_canonical, self.level, self._prints))
        prints = self._prints[by_print]
        starts = np.concatenate([[True], prints[1:] != prints[:-1]])
        self.first = np.empty(len(self), int)
        self.first[by_print] = by_print[starts][np.cumsum(starts) - 1]
        keys = _keys(self.operator, *self.inputs.T)
        self._sorted = np.argsort(keys)
        self._sorted_keys = keys[self._sorted]

    def _pattern(self, k: int) -> Apply:
        operator = self.domain.operators[k]
        return operator.pattern(*"xy"[: operator.arity])

    def _size(self, shape: Shape) -> tuple[int, ...]:
        return tuple(sum(self.domain.sizes[letter] for letter in axis) for axis in shape)

    def _draw(self, size: tuple[int, ...]) -> Any:
        every = np.iinfo(np.int64)
        return self._rng.integers(every.min, every.max, size, np.int64, endpoint=True)


def _chunks(rows: Any) -> Iterator[Any]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _keys(operator: Any, left: Any, right: Any) -> Any:
    """Return a unique number for each expression, by operator and inputs."""
    return ((operator + 1) << 2 * _BITS) + ((left + 1) << _BITS) + right + 1
