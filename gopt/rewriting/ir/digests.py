"""Digests of programs that are stable across processes."""

from collections.abc import Sequence
from typing import Any

from gopt.program import hashing
from gopt.rewriting.ir.operators import Equation, Literal
from gopt.rewriting.ir.terms import Terms


def digest(terms: Terms, roots: Sequence[int]) -> str:
    """Return the digest of a program: 64 hexadecimal digits, equal for equal programs only.

    The digest does not depend on other programs in `terms`. Parameters of primitives count by their
    texts; see `gopt.program.hashing.parameters`. Captured arrays are arguments and count by their
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
        known[number] = _of_lines([*told, *(known[i] for i in inputs)])
    return _of_lines([known[root] for root in roots])


def _text(value: Any) -> str:
    if isinstance(value, Equation):
        return "".join((value.equation.primitive.name, *hashing.parameters(value.equation)))
    if isinstance(value, Literal):
        number = value.value
        return f"{number.dtype} {number.shape} {number.tobytes().hex()}"
    return repr(value)


def _of_lines(lines: Sequence[str]) -> str:
    return hashing.digest(f"{line}\n" for line in lines)
