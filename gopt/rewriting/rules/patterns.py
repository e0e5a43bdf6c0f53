"""Patterns of terms: the sources and targets of rules.

A pattern is a variable, which matches any term, or an operator applied to patterns:

    matmul("x", concat("a", "b", axis=-1))

A rule gives its variables shapes such as `{"x": "... m k"}`, which name the sizes of axes. The same
letter is the same size everywhere; `...` or `p...` stands for the same leading axes.

Attributes of an operator are values. With `like="c"`, all attributes that are not written are bound
together under the name `c`. A single attribute is bound as `given("groups")`, or computed from a
bound one as `given("groups", by=half)`. In targets, attributes may also be sizes: `size("m")`, sums
and products of these, and tuples. Negative axes count from the end.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gopt.rewriting.ir.operators import Attributes
from gopt.rewriting.ir.terms import Terms

COMMUTATIVE = frozenset(("add", "mul"))
# Terms by variable, sizes by letter, attributes by name, and inner terms as "inside".
Bindings = dict[str, Any]
Attribute = Any  # a `Size`, a `AttributeVariable`, or any hashable value


@dataclass(frozen=True)
class Size:
    """A sum of products of axis sizes.

    Attributes:
      products: letters of the sizes in each product.
    """

    products: tuple[tuple[str, ...], ...]

    def __add__(self, other: "Size") -> "Size":
        return Size(self.products + other.products)

    def __mul__(self, other: "Size") -> "Size":
        return Size(tuple(a + b for a in self.products for b in other.products))

    def of(self, bound: Mapping[str, Any]) -> int:
        """Return the value under given bindings."""
        return sum(
            math.prod(bound[f"size {letter}"] for letter in letters) for letters in self.products
        )


@dataclass(frozen=True)
class AttributeVariable:
    """An attribute that is a variable, or a function of one.

    Attributes:
      name: name of the variable.
      where: condition on the attribute in a source pattern; by default none.
      by: function from the variable to the attribute; by default the identity.
      back: inverse of `by`, needed in source patterns.
    """

    name: str
    where: Callable[[Any], bool] | None = None
    by: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None

    def of(self, bound: Mapping[str, Any]) -> Any:
        """Return the attribute under given bindings."""
        found = bound[f"given {self.name}"]
        return self.by(found) if self.by else found

    def bind(self, attribute: Any, bound: Bindings) -> bool:
        """Bind the variable if it is new; return whether the attribute fits."""
        if self.where and not self.where(attribute):
            return False
        found = self.back(attribute) if self.back else attribute
        return bool(bound.setdefault(f"given {self.name}", found) == found)


@dataclass(frozen=True)
class Apply:
    """An operator applied to patterns.

    Attributes:
      operator: name of the operator.
      inputs: patterns.
      attributes: attributes by name, sorted.
      like: name that binds all other attributes together; None for none.
    """

    operator: str
    inputs: tuple[Any, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    like: str | None = None

    def names(self) -> set[str]:
        """Return the variables of the pattern."""
        return set[str]().union(*map(names_of, self.inputs))


def names_of(pattern: Any) -> set[str]:
    """Return the variables of a pattern, which may itself be one."""
    return {pattern} if isinstance(pattern, str) else pattern.names()


def parts(pattern: Any) -> Iterator[Apply]:
    """Yield all operators of a pattern, each before its inputs."""
    if isinstance(pattern, Apply):
        yield pattern
        for each in pattern.inputs:
            yield from parts(each)


def size(letter: str) -> Size:
    """Return the size of an axis with this letter in the shapes of a rule."""
    return Size(((letter,),))


def given(
    name: str,
    *,
    where: Callable[[Any], bool] | None = None,
    by: Callable[[Any], Any] | None = None,
    back: Callable[[Any], Any] | None = None,
) -> AttributeVariable:
    """Return an attribute that is a variable, or a function of one.

    Args:
      name: name of the variable; it has the same value everywhere in a rule.
      where: condition on the attribute in a source pattern.
      by: function from the variable to the attribute; by default the identity.
      back: inverse of `by`, needed in source patterns.
    """
    return AttributeVariable(name, where, by, back)


def apply(operator: str, *inputs: Any, like: str | None = None, **attributes: Any) -> Apply:
    """Return an operator applied to patterns.

    Args:
      operator: name of the operator.
      *inputs: patterns.
      like: name that binds all other attributes together.
      **attributes: attributes by name.
    """
    return Apply(operator, inputs, tuple(sorted(attributes.items())), like)


matmul = partial(apply, "matmul", like="product")
conv = partial(apply, "conv", like="conv")
concat, part = partial(apply, "concat"), partial(apply, "slice")
add, sub, mul = (partial(apply, name) for name in ("add", "sub", "mul"))
relu = partial(apply, "relu")
transpose, reshape = partial(apply, "transpose"), partial(apply, "reshape")


def match(
    terms: Terms, pattern: Any, number: int, shapes: Mapping[str, str], bound: Bindings
) -> Iterator[Bindings]:
    """Yield the bindings under which a term matches a pattern.

    Args:
      terms: all terms.
      pattern: pattern to match.
      number: term to match.
      shapes: shapes of the variables by name, see the module.
      bound: bindings made before.
    """
    if isinstance(pattern, str):
        found = bind_variable(terms, pattern, number, shapes, bound)
        if found is not None:
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
    """Return the term of a pattern under given bindings.

    Args:
      terms: terms to add to.
      pattern: pattern to build.
      bound: bindings of its variables, sizes and attributes.

    Raises:
      ValueError: an operator does not apply to its inputs.
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
    return value.of(bound) if isinstance(value, Size | AttributeVariable) else value


def bind_variable(
    terms: Terms, name: str, number: int, shapes: Mapping[str, str], bound: Bindings
) -> Bindings | None:
    """Return the bindings extended by a variable; None if it does not match.

    Args:
      terms: all terms.
      name: variable.
      number: term to match.
      shapes: shapes of the variables by name, see the module.
      bound: bindings made before.
    """
    if name in bound:
        return bound if bound[name] == number else None
    found = {**bound, name: number}
    if name in shapes and not bind_shape(terms.shapes[number], shapes[name], found):
        return None
    return found


def bind_attributes(
    terms: Terms, pattern: Apply, number: int, attributes: Attributes, bound: Bindings
) -> Bindings | None:
    """Return the bindings extended by attributes that match a pattern; None if they do not match.

    Args:
      terms: all terms.
      pattern: pattern to match.
      number: term with the shape of the result; negative axes count from its end.
      attributes: attributes of the operator.
      bound: bindings made before.

    Raises:
      ValueError: the pattern has an attribute that the operator lacks.
    """
    found, rest = dict(bound), dict(attributes)
    for name, value in pattern.attributes:
        if name not in rest:
            known = sorted(dict(attributes))
            raise ValueError(f"{pattern.operator} has no {name!r}: expected some of {known}")
        actual = rest.pop(name)
        if isinstance(value, AttributeVariable):
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


def bind_shape(shape: Any, letters: str, bound: Bindings) -> bool:
    """Bind the new letters of a shape; return whether the shape matches.

    Args:
      shape: shape of one array, or a tuple of shapes, which never matches.
      letters: letters of a rule, such as `... m k`.
      bound: bindings to extend.
    """
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
    terms: Terms, patterns: Any, numbers: Any, shapes: Mapping[str, str], bound: Bindings
) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    if isinstance(patterns[0], Apply):
        bound = {**bound, "inside": (*bound.get("inside", ()), numbers[0])}
    for found in match(terms, patterns[0], numbers[0], shapes, bound):
        yield from _inputs(terms, patterns[1:], numbers[1:], shapes, found)
