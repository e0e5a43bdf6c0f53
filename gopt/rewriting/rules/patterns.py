"""Patterns of terms: what rules look for, and what they put there.

A pattern is a name, which stands for any term, or an operator applied to patterns:

    matmul("x", concat("a", "b", axis=-1))

Sizes of axes are named by the shapes that a rule gives its names, such as `{"x": "... m k"}`: the
same letter is the same size everywhere, and `...`, or `p...`, the same axes. Attributes of an
operator are numbers, or, with `like="c"`, all those that are not named, under that name. One alone
has a name as `given("groups")`, or is made of what has it, `given("groups", by=half)`. In what is
put there they may be sizes as well (`size("m")`, sums and products of these, and tuples). Axes
count from the end if they are negative.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gopt.rewriting.ir.operators import Attributes
from gopt.rewriting.ir.terms import Terms

COMMUTATIVE = frozenset(("add", "mul"))
Bound = dict[str, Any]  # terms by name, sizes by letter, attributes by name; terms "inside"
Attribute = Any  # a number, or anything that can be hashed; `Size`, or `Given`


@dataclass(frozen=True)
class Size:
    """A sum of products of sizes of axes."""

    products: tuple[tuple[str, ...], ...]  # letters

    def __add__(self, other: "Size") -> "Size":
        return Size(self.products + other.products)

    def __mul__(self, other: "Size") -> "Size":
        return Size(tuple(a + b for a in self.products for b in other.products))

    def of(self, bound: Mapping[str, Any]) -> int:
        """Returns the sum."""
        return sum(
            math.prod(bound[f"size {letter}"] for letter in letters) for letters in self.products
        )


@dataclass(frozen=True)
class Given:
    """An attribute that has a name, or that is made of what has it."""

    name: str
    where: Callable[[Any], bool] | None = None
    by: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None

    def of(self, bound: Mapping[str, Any]) -> Any:
        """Returns the attribute."""
        found = bound[f"given {self.name}"]
        return self.by(found) if self.by else found

    def bind(self, attribute: Any, bound: Bound) -> bool:
        """Returns whether it can be an attribute, and binds what has the name if that is new."""
        if self.where and not self.where(attribute):
            return False
        found = self.back(attribute) if self.back else attribute
        return bool(bound.setdefault(f"given {self.name}", found) == found)


@dataclass(frozen=True)
class Apply:
    """An operator applied to patterns."""

    operator: str
    inputs: tuple[Any, ...]  # patterns
    attributes: tuple[tuple[str, Attribute], ...] = ()
    like: str | None = None

    def names(self) -> set[str]:
        """Returns the names of terms in it."""
        return set[str]().union(*map(names_of, self.inputs))


def names_of(pattern: Any) -> set[str]:
    """Returns the names of terms in a pattern, which may be one."""
    return {pattern} if isinstance(pattern, str) else pattern.names()


def parts(pattern: Any) -> Iterator[Apply]:
    """Yields all operators of a pattern, each before its inputs."""
    if isinstance(pattern, Apply):
        yield pattern
        for each in pattern.inputs:
            yield from parts(each)


def size(letter: str) -> Size:
    """Returns the size of an axis that has a letter in the shapes of a rule."""
    return Size(((letter,),))


def given(
    name: str,
    *,
    where: Callable[[Any], bool] | None = None,
    by: Callable[[Any], Any] | None = None,
    back: Callable[[Any], Any] | None = None,
) -> Given:
    """Returns an attribute that has a name, or that is made of what has it.

    Args:
      name: of something that is the same everywhere in a rule.
      where: a condition on the attribute, in what is looked for.
      by: makes the attribute; by default it has the name itself.
      back: the inverse, which what is looked for needs.
    """
    return Given(name, where, by, back)


def apply(operator: str, *inputs: Any, like: str | None = None, **attributes: Any) -> Apply:
    """Returns an operator applied to patterns."""
    return Apply(operator, inputs, tuple(sorted(attributes.items())), like)


matmul = partial(apply, "matmul", like="product")
conv = partial(apply, "conv", like="conv")
concat, part = partial(apply, "concat"), partial(apply, "slice")
add, sub, mul = (partial(apply, name) for name in ("add", "sub", "mul"))
relu = partial(apply, "relu")
transpose, reshape = partial(apply, "transpose"), partial(apply, "reshape")


def match(
    terms: Terms, pattern: Any, number: int, shapes: Mapping[str, str], bound: Bound
) -> Iterator[Bound]:
    """Yields what names and sizes stand for where a term has a pattern.

    Args:
      terms: all terms.
      pattern: what is looked for.
      number: the term.
      shapes: of terms by name, see above.
      bound: what is known already.
    """
    if isinstance(pattern, str):
        if pattern in bound:
            if bound[pattern] == number:
                yield bound
            return
        found = {**bound, pattern: number}
        if pattern not in shapes or bind_shape(terms.shapes[number], shapes[pattern], found):
            yield found
        return
    term = terms[number]
    if (term.operator, len(term.inputs)) != (pattern.operator, len(pattern.inputs)):
        return
    known = bind_attributes(terms, pattern, number, term.attributes, bound)
    if known is None:
        return
    orders = [term.inputs]
    if term.operator in COMMUTATIVE and term.inputs[0] != term.inputs[1]:
        orders.append(term.inputs[::-1])
    for inputs in orders:
        yield from _inputs(terms, pattern.inputs, inputs, shapes, known)


def build(terms: Terms, pattern: Any, bound: Mapping[str, Any]) -> int:
    """Returns the term that a pattern is, given what its names stand for.

    Raises:
      ValueError: an operator does not apply to what it is given.
    """
    if isinstance(pattern, str):
        return int(bound[pattern])
    inputs = [build(terms, each, bound) for each in pattern.inputs]
    attributes = dict(bound[f"like {pattern.like}"]) if pattern.like else {}
    for name, value in pattern.attributes:
        put = _attribute(value, bound)
        if name == "axis" and put < 0:
            put += len(terms.shape(inputs[0]))
        attributes[name] = put
    return terms.add(pattern.operator, inputs, **attributes)


def _attribute(value: Attribute, bound: Mapping[str, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_attribute(each, bound) for each in value)
    return value.of(bound) if isinstance(value, Size | Given) else value


def bind_attributes(
    terms: Terms, pattern: Apply, number: int, attributes: Attributes, bound: Bound
) -> Bound | None:
    """Returns what is bound, too, if attributes are those of a pattern; else nothing.

    Args:
      terms: all terms.
      pattern: what is looked for.
      number: a term of the shape that the operator returns; axes are counted by it.
      attributes: of the operator.
      bound: what is known already.

    Raises:
      ValueError: the operator has no attribute of a name that the pattern has.
    """
    found, rest = dict(bound), dict(attributes)
    for name, value in pattern.attributes:
        if name not in rest:
            known = sorted(dict(attributes))
            raise ValueError(f"{pattern.operator} has no {name!r}: expected some of {known}")
        actual = rest.pop(name)
        if isinstance(value, Given):
            if not value.bind(actual, found):
                return None
            continue
        wanted = value
        if name == "axis" and wanted < 0:
            wanted += len(terms.shape(number))
        if actual != wanted:
            return None
    if pattern.like:
        key, others = f"like {pattern.like}", tuple(sorted(rest.items()))
        if found.setdefault(key, others) != others:
            return None
    return found


def bind_shape(shape: Any, letters: str, bound: Bound) -> bool:
    """Returns whether a shape has the letters of a rule, and binds those that are new."""
    if isinstance(shape, tuple):
        return False
    axes, names = tuple(shape.shape), letters.split()
    if names and names[0].endswith("..."):
        first, *names = names
        if len(axes) < len(names):
            return False
        leading, axes = axes[: len(axes) - len(names)], axes[len(axes) - len(names) :]
        if bound.setdefault(f"size {first}", leading) != leading:
            return False
    if len(axes) != len(names):
        return False
    for letter, length in zip(names, axes, strict=True):
        wanted = int(letter) if letter.isdigit() else bound.setdefault(f"size {letter}", length)
        if wanted != length:
            return False
    return True


def _inputs(
    terms: Terms, patterns: Any, numbers: Any, shapes: Mapping[str, str], bound: Bound
) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    if isinstance(patterns[0], Apply):
        bound = {**bound, "inside": (*bound.get("inside", ()), numbers[0])}
    for found in match(terms, patterns[0], numbers[0], shapes, bound):
        yield from _inputs(terms, patterns[1:], numbers[1:], shapes, found)
