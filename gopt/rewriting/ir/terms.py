"""Terms: tensor programs in which equal parts are shared.

A term applies an operator to other terms. One operator applied to the same terms is always the same
term. So a program is a tuple of terms, its results, and equal programs are equal tuples. Properties
of a term, such as its shape or its matches with a rule, are computed once for all programs.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.rewriting.ir.operators import Shapes, shapes_of


class Term(NamedTuple):
    """An operator applied to terms.

    Attributes:
      operator: key of `gopt.rewriting.ir.operators.OPERATORS`, or "argument".
      attributes: names and values of the operator's attributes, sorted by name.
      inputs: numbers of the input terms.
    """

    operator: str
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[int, ...]

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute."""
        return dict(self.attributes)[name]


class Terms:
    """All terms of a program and of equal programs, by number.

    The inputs of a term have smaller numbers than the term.

    Attributes:
      terms: all terms, by number.
      shapes: shape and dtype of each term; a tuple for an equation with several results.
      constant: whether each term depends on constants alone.
    """

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self.shapes: list[Shapes] = []
        self.constant: list[bool] = []
        self._number: dict[Term, int] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, number: int) -> Term:
        return self.terms[number]

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of a term with one result.

        Raises:
          ValueError: the term has several results.
        """
        shape = self.shapes[number]
        if isinstance(shape, tuple):
            raise ValueError(f"term {number} has {len(shape)} results: expected one array")
        return tuple(shape.shape)

    def argument(self, position: int, shape: jax.ShapeDtypeStruct, *, constant: bool) -> int:
        """Return the term of an argument of the program.

        Args:
          position: position among the flat arguments, followed by captured arrays.
          shape: shape and dtype of the argument.
          constant: whether its value is known before the program runs, as for weights.

        Raises:
          ValueError: an earlier program has the argument with another shape or `constant`.
        """
        term = Term("argument", (("position", position),), ())
        known = self._number.get(term)
        if known is None:
            return self._append(term, shape, constant)
        if (self.shapes[known], self.constant[known]) != (shape, constant):
            raise ValueError(f"argument {position} is {self.shapes[known]}, expected {shape}")
        return known

    def add(self, operator: str, inputs: Sequence[int] = (), **attributes: Any) -> int:
        """Return the term of an operator on inputs: an existing, a new, or a simpler equal term.

        Args:
          operator: key of `gopt.rewriting.ir.operators.OPERATORS`.
          inputs: numbers of the input terms.
          **attributes: attributes of the operator; any hashable values.

        Raises:
          ValueError: the operator does not apply to terms of these shapes.
        """
        term = Term(operator, tuple(sorted(attributes.items())), tuple(inputs))
        known = self._number.get(term)
        if known is not None:
            return known
        found = simpler(self, term)
        if found is None:
            shapes = shapes_of(operator, term.attributes, tuple(self.shapes[i] for i in inputs))
            # Terms without inputs, such as numbers, are constant too; `argument` adds arguments.
            found = self._append(term, shapes, all(self.constant[i] for i in inputs))
        self._number[term] = found
        return found

    def _append(self, term: Term, shapes: Shapes, constant: bool) -> int:
        self._number[term] = len(self.terms)
        self.terms.append(term)
        self.shapes.append(shapes)
        self.constant.append(constant)
        return len(self.terms) - 1

    def live(self, roots: Iterable[int]) -> list[int]:
        """Return the terms that `roots` depend on, including `roots`, inputs first."""
        found, stack = set(), list(roots)
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack.extend(self.terms[number].inputs)
        return sorted(found)

    def readers(self, roots: Iterable[int]) -> Counter[int]:
        """Return the number of reads of each term in a program; each result counts as one read.

        Args:
          roots: results of the program.
        """
        found = Counter(roots := tuple(roots))
        for number in self.live(roots):
            found.update(self.terms[number].inputs)
        return found

    def replace(self, roots: Sequence[int], by: dict[int, int]) -> tuple[int, ...] | None:
        """Return the program after replacing terms everywhere, also inside the replacements.

        Args:
          roots: results of the program.
          by: replacement of each replaced term.

        Returns:
          Results of the new program; None if a term would then depend on itself.
        """
        done: dict[int, int] = {}
        open_: set[int] = set()
        stack = [(root, False) for root in roots]
        while stack:
            number, ready = stack.pop()
            if number in done:
                continue
            term = self.terms[number]
            needs = (by[number],) if number in by else term.inputs
            if not ready:
                if number in open_:
                    return None
                open_.add(number)
                stack.append((number, True))
                stack.extend((i, False) for i in needs if i not in done)
                continue
            open_.discard(number)
            if number in by:
                done[number] = done[by[number]]
            elif all(done[i] == i for i in term.inputs):
                done[number] = number
            else:
                inputs = [done[i] for i in term.inputs]
                done[number] = self.add(term.operator, inputs, **dict(term.attributes))
        return tuple(done[root] for root in roots)


def simpler(terms: Terms, term: Term) -> int | None:
    """Return a simpler term that is equal up to rounding, or None.

    The result computes no more than the term. These cases are simplified:

    - transposes, reshapes and slices of themselves become one, or none; so do nested concats;
    - slices of a concat become slices of one part;
    - reshapes of equal form are joined before they are reshaped;
    - adding 0 and multiplying by 1 are removed;
    - two constant factors become one, in float32 and float64;
    - kernels are scaled before they are padded or paired.

    Args:
      terms: all terms.
      term: term to simplify; its inputs are in `terms`.
    """
    if term.operator not in _SIMPLER:
        return None
    return _SIMPLER[term.operator](terms, *term.inputs, **dict(term.attributes))


def _of_transpose(terms: Terms, x: int, *, permutation: tuple[int, ...]) -> int | None:
    inner = terms[x]
    if permutation == tuple(range(len(permutation))):
        return x
    if inner.operator == "transpose":
        both = tuple(inner.attribute("permutation")[k] for k in permutation)
        return terms.add("transpose", inner.inputs, permutation=both)
    return None


def _of_reshape(terms: Terms, x: int, *, shape: tuple[int, ...]) -> int | None:
    inner = terms[x]
    if shape == terms.shape(x):
        return x
    if inner.operator == "reshape":
        return terms.add("reshape", inner.inputs, shape=shape)
    return None


def _of_slice(terms: Terms, x: int, *, axis: int, start: int, stop: int) -> int | None:
    inner = terms[x]
    if (start, stop) == (0, terms.shape(x)[axis]):
        return x
    if inner.operator == "slice" and inner.attribute("axis") == axis:
        first = inner.attribute("start")
        return terms.add("slice", inner.inputs, axis=axis, start=first + start, stop=first + stop)
    if inner.operator == "concat" and inner.attribute("axis") == axis:
        first = 0
        for part in inner.inputs:
            last = first + terms.shape(part)[axis]
            if first <= start and stop <= last:
                return terms.add("slice", [part], axis=axis, start=start - first, stop=stop - first)
            first = last
    return None


def _of_concat(terms: Terms, *parts: int, axis: int) -> int | None:
    if len(parts) == 1:
        return parts[0]
    inner = [terms[part] for part in parts]
    if all(each.operator == "reshape" for each in inner):
        # Join first, then reshape the leading axes, so that equal kernels become one term.
        before = [terms.shape(each.inputs[0]) for each in inner]
        after = [terms.shape(part) for part in parts]
        if (
            all(a and b and a[-1] == b[-1] for a, b in zip(before, after, strict=True))
            and len({shape[:-1] for shape in before}) == len({shape[:-1] for shape in after}) == 1
            and axis == len(after[0]) - 1
        ):
            kernels = [each.inputs[0] for each in inner]
            joined = terms.add("concat", kernels, axis=len(before[0]) - 1)
            return terms.add("reshape", [joined], shape=(*after[0][:-1], terms.shape(joined)[-1]))
    whole = [each.operator == "concat" and each.attribute("axis") == axis for each in inner]
    if not any(whole):
        return None
    flat = [
        x
        for part, each, is_whole in zip(parts, inner, whole, strict=True)
        for x in (each.inputs if is_whole else (part,))
    ]
    return terms.add("concat", flat, axis=axis)


def _is_number(terms: Terms, x: int, value: float) -> bool:
    """Return whether a term is a scalar literal of this value."""
    operator, attributes, _ = terms[x]
    return (
        operator == "number" and terms.shape(x) == () and dict(attributes)["value"].value == value
    )


def _of_add(terms: Terms, x: int, y: int) -> int | None:
    for each, other in ((x, y), (y, x)):
        if _is_number(terms, other, 0):
            return each
    return None


def _of_mul(terms: Terms, x: int, y: int) -> int | None:
    for each, other in ((x, y), (y, x)):
        if _is_number(terms, other, 1):
            return each
        # Combine constant factors, unless the dtype is too narrow for their product.
        wide = terms.shapes[each].dtype in (np.float32, np.float64)  # type: ignore[union-attr]
        is_known = terms.constant[other] and not terms.constant[each]
        if terms[each].operator == "mul" and wide and is_known:
            first, then = terms[each].inputs
            for factor, rest in ((first, then), (then, first)):
                if terms.constant[factor]:
                    return terms.add("mul", [rest, terms.add("mul", [factor, other])])
    for kernel, scale in ((x, y), (y, x)):
        operator, attributes, inputs = terms[kernel]
        if operator in ("pad", "pair_groups"):
            shape, inner = terms.shape(scale), terms.shape(inputs[0])
            of_last = (*[1] * (len(inner) - 1), *inner[-1:])  # one factor per last-axis entry
            if shape == () or (shape == of_last and inner[-1:] == terms.shape(kernel)[-1:]):
                made = terms.add("mul", [inputs[0], scale])
                return terms.add(operator, [made], **dict(attributes))
    return None


_SIMPLER: dict[str, Any] = {
    "transpose": _of_transpose,
    "reshape": _of_reshape,
    "slice": _of_slice,
    "concat": _of_concat,
    "add": _of_add,
    "mul": _of_mul,
}
