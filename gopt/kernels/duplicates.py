"""Equations that compute the same thing, merged as XLA merges them."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from gopt.program import Atom, Program, variables


def merge_duplicates(program: Program) -> Program:
    """Returns the program with the first of all equations that do the same to the same values.

    What is merged is held from its first reader to its last. That can take more memory than to
    compute it again, which is what `jax.checkpoint` asks for.
    """
    kept: dict[Hashable, JaxprEqn] = {}
    same: dict[Var, Var] = {}

    def merged(atom: Atom) -> Atom:
        return same.get(atom, atom) if isinstance(atom, Var) else atom

    for equation in program.equations:
        if not same.keys().isdisjoint(variables(equation.invars)):
            equation = equation.replace(invars=[merged(atom) for atom in equation.invars])
        key = _key(equation)
        if key in kept:
            same |= zip(equation.outvars, kept[key].outvars, strict=True)
        else:
            kept[key] = equation
    return replace(
        program,
        equations=tuple(kept.values()),
        outputs=tuple(merged(atom) for atom in program.outputs),
    )


def _key(equation: JaxprEqn) -> Hashable:
    read = tuple(_literal(a) if isinstance(a, Literal) else a for a in equation.invars)
    made = tuple(v.aval for v in equation.outvars)
    key = equation.primitive, read, made, tuple(sorted(equation.params.items(), key=_name))
    try:
        hash(key)
    except TypeError:  # a parameter such as an array: not compared
        return id(equation)
    return key


def _name(parameter: tuple[str, object]) -> str:
    return parameter[0]


def _literal(atom: Literal) -> Hashable:
    # Bytes tell 0.0 from -0.0, and a NaN from itself no more than another.
    return atom.aval, np.asarray(atom.val).tobytes()
