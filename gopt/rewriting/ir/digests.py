"""Digests of programs that are stable across processes."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from gopt.rewriting.ir.operators import Equation, Literal
from gopt.rewriting.ir.terms import Terms


def digest(terms: Terms, roots: Sequence[int]) -> str:
    """Return the digest of a program: 64 hexadecimal digits, equal for equal programs only.

    The digest does not depend on other programs in `terms`. Parameters of primitives count by their
    printed form, without function addresses. Captured arrays are arguments and count by their
    shapes.

    Args:
      terms: terms of the program, and others.
      roots: results of the program.
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
