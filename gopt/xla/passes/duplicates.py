"""Merge equations that compute equal values, as XLA does."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from gopt.program.equations import Atom, all_equations, variables
from gopt.program.program import Program
from gopt.xla.passes.sums import squeeze_sums
from gopt.xla.passes.transposes import fold_transposes

# Primitives that draw random numbers, or call functions that XLA cannot inspect.
NEVER_MERGED = frozenset(("rng_uniform", "ffi_call", "pure_callback"))
# Fields of an equation's context that affect its computation.
_CONTEXT = ("compute_type", "threefry_partitionable", "xla_metadata", "cur_abstract_mesh")


def merge_duplicates(program: Program) -> Program:
    """Return the program with only the first of several equal equations on equal operands.

    A merged result is held from its first consumer to its last. That can need more memory than
    recomputing it. Recomputation that `jax.checkpoint` asks for is merged too.

    Args:
      program: program to simplify.
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
    if any(inner.primitive.name in NEVER_MERGED for inner in all_equations([equation])):
        return id(equation)
    read = tuple(_literal(a) if isinstance(a, Literal) else a for a in equation.invars)
    made = tuple(v.aval for v in equation.outvars)
    # The printed form distinguishes 1 from True and 0.0 from -0.0, also inside tuples. The value
    # itself is in the key too, because long arrays are printed shortened.
    params = ((name, repr(x), x) for name, x in sorted(equation.params.items(), key=_name))
    context = tuple(repr(getattr(equation.ctx, field, None)) for field in _CONTEXT)
    key = equation.primitive, read, made, tuple(params), context
    try:
        hash(key)
    except TypeError:  # a parameter without a hash, such as an array: never merged
        return id(equation)
    return key


def _name(parameter: tuple[str, object]) -> str:
    return parameter[0]


def _literal(atom: Literal) -> Hashable:
    # Bytes distinguish 0.0 from -0.0, and make identical NaNs equal.
    return atom.aval, np.asarray(atom.val).tobytes()


def simplify(program: Program) -> Program:
    """Return the program after `squeeze_sums`, `merge_duplicates` and `fold_transposes`.

    The passes remove forms that XLA's library runs slowly, and simplify like XLA. Merged results
    are held longer.

    Args:
      program: program to simplify.
    """
    return fold_transposes(merge_duplicates(squeeze_sums(program)))
