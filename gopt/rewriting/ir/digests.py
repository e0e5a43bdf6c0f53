"""Digests: what tells programs apart, in this process and in others."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from gopt.rewriting.ir.operators import Equation, Literal
from gopt.rewriting.ir.terms import Terms


def digest(terms: Terms, roots: Sequence[int]) -> str:
    """Returns a text of 64 letters that equal programs share, and no others.

    It does not depend on which other programs were made before. Parameters of primitives count as
    they are printed, without addresses of functions. Arrays that the program closes over are
    arguments, which count by their shapes.

    Args:
      terms: those of the program, and others.
      roots: its results.
    """
    known: dict[int, str] = {}
    for number in terms.live(roots):
        operator, attributes, inputs = terms[number]
        told = [operator, *(f"{name}={_text(value)}" for name, value in attributes)]
        if operator == "argument":
            told += [str(terms.shapes[number]), str(terms.constant[number])]
        known[number] = _hash([*told, *(known[i] for i in inputs)])
    return _hash([known[root] for root in roots])


def _text(value: Any) -> str:
    if isinstance(value, Equation):
        equation = value.equation
        printed = re.sub(r" at 0x[0-9a-f]+", "", str(sorted(equation.params.items())))
        return f"{equation.primitive.name} {printed}"
    if isinstance(value, Literal):
        number = value.value
        return f"{number.dtype} {number.shape} {number.tobytes().hex()}"
    return repr(value)


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
