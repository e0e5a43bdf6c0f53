"""Equations of JAX: what they read and make, their bodies, and one alone."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.experimental.layout import Format
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.sharding import AbstractMesh, Mesh, Sharding

Atom = Var | Literal

_CONTEXT = ("ctx_mesh", "context_mesh")  # parameters: the mesh that was set, asked for or not


def body_of(eqn: JaxprEqn) -> ClosedJaxpr:
    """Returns the one jaxpr among the parameters of an equation.

    Raises:
      ValueError: there is none, or there are several.
    """
    bodies = [p for p in eqn.params.values() if isinstance(p, Jaxpr | ClosedJaxpr)]
    if len(bodies) != 1:
        raise ValueError(f"equation {eqn.primitive.name} has {len(bodies)} jaxprs, expected 1")
    return bodies[0] if isinstance(bodies[0], ClosedJaxpr) else ClosedJaxpr(bodies[0], ())


def scan_operands(scan: JaxprEqn) -> tuple[int, int]:
    """Returns how many operands of a `scan` are constants of the loop, and how many its carry.

    The operands are the constants, the carry, and then the arrays that are scanned over. Versions
    of JAX keep these numbers in different parameters, so they are read off the shapes.
    """
    body = body_of(scan).jaxpr
    scanned = sum(map(_has_more_axes, scan.invars, body.invars))
    carry = len(scan.outvars) - sum(map(_has_more_axes, scan.outvars, body.outvars))
    return len(scan.invars) - scanned - carry, carry


def _has_more_axes(outside: Atom, inside: Atom) -> bool:
    return len(aval_of(outside).shape) > len(aval_of(inside).shape)


def every_equation(equations: Iterable[JaxprEqn]) -> Iterator[JaxprEqn]:
    """Yields equations, and those of all bodies in them."""
    for equation in equations:
        yield equation
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
                body = part.jaxpr if isinstance(part, ClosedJaxpr) else part
                if isinstance(body, Jaxpr):
                    yield from every_equation(body.eqns)


def aval_of(atom: Atom) -> Any:
    """Returns the abstract value of a variable or literal: shape, dtype, size."""
    return atom.aval


def shape_of(atom: Atom) -> jax.ShapeDtypeStruct:
    """Returns the shape and the dtype of a variable or literal, to trace with."""
    aval = aval_of(atom)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def variables(atoms: Iterable[Atom]) -> Iterable[Var]:
    """Returns the variables among atoms, with repetitions."""
    return (atom for atom in atoms if isinstance(atom, Var))


def run_equation(equation: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Returns the results of one equation; `values` has one for each variable and literal read."""
    inputs = [Var(aval_of(atom)) for atom in equation.invars]
    outputs = [Var(aval_of(variable)) for variable in equation.outvars]
    alone = equation.replace(invars=list[Atom](inputs), outvars=outputs)
    info = DebugInfo("equation", "equation", None, None)
    jaxpr = Jaxpr((), inputs, outputs, [alone], debug_info=info)
    return list(jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*values))


def is_spread(equation: JaxprEqn) -> bool:
    """Returns whether an equation asks for several devices."""
    asked = {name: x for name, x in equation.params.items() if name not in _CONTEXT}
    return any(map(is_on_several, jax.tree.leaves(asked, is_leaf=_is_place)))


def is_on_several(place: Any) -> bool:
    """Returns whether this is a sharding over several devices, or a mesh of them."""
    if isinstance(place, Mesh | AbstractMesh):
        return place.size > 1
    sharding = place.sharding if isinstance(place, Format) else place
    return isinstance(sharding, Sharding) and sharding.num_devices > 1


def _is_place(value: Any) -> bool:
    return isinstance(value, Sharding | Mesh | AbstractMesh | Format)
