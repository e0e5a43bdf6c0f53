"""Fingerprints: hashes by which programs with the same equations are recognised."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from gopt.program.program import Program

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(program: Program) -> str:
    """Return a hash of a program: equal for functions that are traced to the same equations.

    Captured arrays count by shape and dtype.
    """
    digest = hashlib.sha256()
    for line in _lines(program.jaxpr().jaxpr):
        digest.update(line.encode())
    digest.update(repr(program.donated).encode())
    return digest.hexdigest()[:16]


def _lines(jaxpr: Jaxpr) -> Iterator[str]:
    """Yield what makes a jaxpr what it is: no names, no addresses of objects."""
    number: dict[Var, int] = {}

    def name(atom: Any) -> str:
        if isinstance(atom, Literal):
            return f"{atom.val!r}:{atom.aval.str_short()}"
        return f"{number.setdefault(atom, len(number))}:{atom.aval.str_short()}"

    yield " ".join(map(name, (*jaxpr.constvars, *jaxpr.invars)))
    for equation in jaxpr.eqns:
        reads, makes = (" ".join(map(name, atoms)) for atoms in (equation.invars, equation.outvars))
        yield f"\n{makes} = {equation.primitive.name} {reads}"
        for key, value in sorted(equation.params.items()):
            if key != "name":  # of what is called
                yield f"\n {key}"
                yield from _value(value)
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


def check_fingerprint(program: Program, expected: str) -> None:
    """Check that a plan is for a program.

    Raises:
      ValueError: it is for another one.
    """
    found = fingerprint(program)
    if found != expected:
        raise ValueError(
            f"the plan is of another program: fn has {len(program.equations)} equations on "
            f"{len(program.inputs)} arrays, fingerprint {found}, expected {expected}"
        )
