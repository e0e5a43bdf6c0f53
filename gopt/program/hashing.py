"""Hashes of programs, equations and arrays that are equal in every process."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from gopt.program.program import Program

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest(parts: Iterable[str | bytes]) -> str:
    """Return the SHA-256 hash of texts and bytes in a row: 64 hexadecimal digits."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part)
    return found.hexdigest()


def digest_arrays(tree: Any) -> str:
    """Return a hash of the bytes of a pytree of arrays: 16 hexadecimal digits."""
    return digest(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))[:16]


def fingerprint(program: Program) -> str:
    """Return a hash of a program: equal for functions that are traced to the same equations.

    Captured arrays count by shape and dtype.
    """
    return digest((*_lines(program.jaxpr().jaxpr), repr(program.donated)))[:16]


def check_fingerprint(program: Program, expected: str) -> None:
    """Check that a plan is for a program.

    Raises:
      ValueError: the plan is for another program.
    """
    found = fingerprint(program)
    if found != expected:
        raise ValueError(
            f"the plan is of another program: fn has {len(program.equations)} equations on "
            f"{len(program.inputs)} arrays, fingerprint {found}, expected {expected}"
        )


def parameters(equation: JaxprEqn) -> Iterator[str]:
    """Yield the parameters of an equation as texts, without names and addresses of objects."""
    for key, value in sorted(equation.params.items()):
        if key != "name":  # of the called function
            yield f"\n {key}"
            yield from _value(value)


def _lines(jaxpr: Jaxpr) -> Iterator[str]:
    """Yield a jaxpr as texts, without names and addresses of objects."""
    number: dict[Var, int] = {}

    def name(atom: Any) -> str:
        if isinstance(atom, Literal):
            return f"{atom.val!r}:{atom.aval.str_short()}"
        return f"{number.setdefault(atom, len(number))}:{atom.aval.str_short()}"

    yield " ".join(map(name, (*jaxpr.constvars, *jaxpr.invars)))
    for equation in jaxpr.eqns:
        reads, makes = (" ".join(map(name, atoms)) for atoms in (equation.invars, equation.outvars))
        yield f"\n{makes} = {equation.primitive.name} {reads}"
        yield from parameters(equation)
    yield "\n" + " ".join(map(name, jaxpr.outvars))


def _value(value: Any) -> Iterator[str]:
    """Yield the value of a parameter of an equation."""
    if isinstance(value, ClosedJaxpr):
        value = value.jaxpr
    if isinstance(value, Jaxpr):
        yield from _lines(value)
    elif isinstance(value, tuple | list):
        yield "("
        for part in value:
            yield from _value(part)
        yield ")"
    elif isinstance(value, frozenset):
        yield from sorted(map(repr, value))
    else:
        yield f" {_ADDRESS.sub('', repr(value))}"
