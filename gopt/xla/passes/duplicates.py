"""Equations that compute the same thing, merged as XLA merges them."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from gopt.program.equations import Atom, every_equation, variables
from gopt.program.program import Program
from gopt.xla.passes.sums import squeeze_sums
from gopt.xla.passes.transposes import fold_transposes

# Each of these draws, or calls what XLA does not see into.
_NEVER = frozenset(("rng_uniform", "ffi_call", "pure_callback"))
# Of an equation's context, what says how it is computed.
_CONTEXT = ("compute_type", "threefry_partitionable", "xla_metadata", "cur_abstract_mesh")


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
    if any(inner.primitive.name in _NEVER for inner in every_equation([equation])):
        return id(equation)
    read = tuple(_literal(a) if isinstance(a, Literal) else a for a in equation.invars)
    made = tuple(v.aval for v in equation.outvars)
    # Written out, parameters tell 1 from True and 0.0 from -0.0, within tuples, too; equal ones may
    # look alike where long arrays are cut short.
    params = ((name, repr(x), x) for name, x in sorted(equation.params.items(), key=_name))
    context = tuple(repr(getattr(equation.ctx, field, None)) for field in _CONTEXT)
    key = equation.primitive, read, made, tuple(params), context
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


def simplify(program: Program) -> Program:
    """Returns the program without what XLA's library is slow at, and as XLA simplifies it.

    See `squeeze_sums`, `merge_duplicates` and `fold_transposes`. What is merged is held longer.
    """
    return fold_transposes(merge_duplicates(squeeze_sums(program)))
