"""Transposes behind what can do without them, so that images keep one layout all the way.

What is done to each element of a transposed array may be done before that is transposed, and what
is done along its axes, along those that they were. Then transposes meet, and undo each other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend.core import JaxprEqn, Var

from gopt.program.equations import Atom, aval_of
from gopt.program.primitives import ELEMENT_WISE
from gopt.rewriting.ir.terms import Terms

# Their parameters have an entry for each axis.
_WINDOWS = frozenset(f"reduce_window{kind}" for kind in ("", "_sum", "_max", "_min"))
_OF_AXES = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
_REDUCTIONS = frozenset(f"reduce_{kind}" for kind in ("sum", "max", "min", "prod", "and", "or"))


class Moved(NamedTuple):
    """An equation of arrays as they were before they were transposed."""

    equation: JaxprEqn
    inputs: list[int]
    permutation: tuple[int, ...]  # by which its results are to be transposed


def behind(terms: Terms, operator: str, inputs: Sequence[int], **attributes: Any) -> int:
    """Returns a term, whose inputs are transposed after it if that gives the same.

    Args:
      terms: to which it is added.
      operator: of elements, or along an `axis`.
      inputs: terms.
      **attributes: of the operator.
    """
    found = _before(terms, inputs)
    if found is None:
        return terms.add(operator, inputs, **attributes)
    permutation, before = found
    if "axis" in attributes:
        attributes["axis"] = permutation[attributes["axis"]]
    made = terms.add(operator, before, **attributes)
    return terms.add("transpose", [made], permutation=permutation)


def moved(terms: Terms, equation: JaxprEqn, inputs: Sequence[int]) -> Moved | None:
    """Returns an equation whose inputs are transposed after it; nothing if that is not the same.

    Args:
      terms: to which what it reads is added.
      equation: of any primitive.
      inputs: terms that it reads.
    """
    name, params = equation.primitive.name, dict(equation.params)
    if name not in ELEMENT_WISE | _WINDOWS | _REDUCTIONS or params.get("out_sharding") is not None:
        return None
    found = _before(terms, inputs)
    if found is None:
        return None
    permutation, before = found
    axes = sorted(range(len(permutation)), key=permutation.__getitem__)  # after, of those before
    if name in _WINDOWS:
        params |= {key: tuple(params[key][k] for k in axes) for key in _OF_AXES}
    results = permutation
    if name in _REDUCTIONS:
        gone = {permutation[k] for k in params["axes"]}
        params["axes"] = tuple(sorted(gone))
        # Axes that stay have new numbers, in the same order.
        stay = [k for k in range(len(permutation)) if k not in gone]
        results = tuple(stay.index(k) for k in permutation if k not in gone)
    order = sorted(range(len(results)), key=results.__getitem__)
    outputs = [
        Var(aval.update(shape=tuple(aval.shape[k] for k in order)))
        for aval in map(aval_of, equation.outvars)
    ]
    variables: list[Atom] = [
        Var(aval_of(atom).update(shape=terms.shape(k)))
        for atom, k in zip(equation.invars, before, strict=True)
    ]
    one = equation.replace(invars=variables, outvars=outputs, params=params)
    return Moved(one, before, results)


def _before(terms: Terms, inputs: Sequence[int]) -> tuple[tuple[int, ...], list[int]] | None:
    """Returns the one permutation by which inputs are transposed, and what they were before.

    Constants count as transposed, for that is done once; scalars have nothing to be transposed.
    There is nothing to return if none is transposed otherwise, or one is not.
    """
    permutations = {
        terms[k].attribute("permutation")
        for k in inputs
        if terms[k].operator == "transpose" and not terms.constant[k]
    }
    if len(permutations) != 1:
        return None
    (permutation,) = permutations
    back = tuple(sorted(range(len(permutation)), key=permutation.__getitem__))
    before = []
    for k in inputs:
        if not terms.shape(k):
            before.append(k)
        elif terms.constant[k] or terms[k].operator == "transpose":
            before.append(terms.add("transpose", [k], permutation=back))
        else:
            return None
    return permutation, before
