"""Move transposes behind other ops, so that images keep one layout.

An element-wise op on transposed arrays equals the transposed op on the original arrays. An op along
axes does too, with the axes renumbered. Moved transposes meet and cancel.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend.core import JaxprEqn, Var

from gopt.program.equations import Atom, aval_of
from gopt.program.primitives import ELEMENT_WISE
from gopt.rewriting.ir.terms import Terms

# Primitives whose parameters have an entry per axis.
_WINDOWS = frozenset(f"reduce_window{kind}" for kind in ("", "_sum", "_max", "_min"))
_OF_AXES = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
_REDUCTIONS = frozenset(f"reduce_{kind}" for kind in ("sum", "max", "min", "prod", "and", "or"))


class Untransposed(NamedTuple):
    """An equation on arrays before their transposition.

    Attributes:
      equation: the equation, with inputs, results and parameters before transposition.
      inputs: terms that it reads.
      permutation: permutation that turns its results into the original results.
    """

    equation: JaxprEqn
    inputs: list[int]
    permutation: tuple[int, ...]


def add_untransposed(terms: Terms, operator: str, inputs: Sequence[int], **attributes: Any) -> int:
    """Add a term with the transposes of its inputs moved behind it, if that is equal; return it.

    Args:
      terms: terms to add to.
      operator: an element-wise operator, or one along an `axis`.
      inputs: input terms.
      **attributes: attributes of the operator.
    """
    found = _before(terms, inputs)
    if found is None:
        return terms.add(operator, inputs, **attributes)
    permutation, before = found
    if "axis" in attributes:
        attributes["axis"] = permutation[attributes["axis"]]
    made = terms.add(operator, before, **attributes)
    return terms.add("transpose", [made], permutation=permutation)


def untransposed_equation(
    terms: Terms, equation: JaxprEqn, inputs: Sequence[int]
) -> Untransposed | None:
    """Return an equation with the transposes of its inputs moved behind it; None if not possible.

    Args:
      terms: terms to add the new inputs to.
      equation: equation of any primitive.
      inputs: terms that it reads.
    """
    name, params = equation.primitive.name, dict(equation.params)
    if name not in ELEMENT_WISE | _WINDOWS | _REDUCTIONS or params.get("out_sharding") is not None:
        return None
    found = _before(terms, inputs)
    if found is None:
        return None
    permutation, before = found
    # New position of each old axis.
    axes = sorted(range(len(permutation)), key=permutation.__getitem__)
    if name in _WINDOWS:
        params |= {key: tuple(params[key][k] for k in axes) for key in _OF_AXES}
    results = permutation
    if name in _REDUCTIONS:
        gone = {permutation[k] for k in params["axes"]}
        params["axes"] = tuple(sorted(gone))
        # The remaining axes are renumbered in the same order.
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
    return Untransposed(one, before, results)


def _before(terms: Terms, inputs: Sequence[int]) -> tuple[tuple[int, ...], list[int]] | None:
    """Return the common permutation of transposed inputs, and the inputs before transposition.

    A constant counts as transposed, because its transposition runs only once. A scalar needs no
    transposition. The result is None if no other input is transposed, if permutations differ, or if
    an input is not transposed.
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
