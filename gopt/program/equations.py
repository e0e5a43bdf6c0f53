"""Inspect equations of JAX, their variables and bodies, and run one equation."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.experimental.layout import Format
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.sharding import AbstractMesh, Mesh, Sharding

Atom = Var | Literal

_CONTEXT = ("ctx_mesh", "context_mesh")  # parameters with the mesh in context, used or not


def body_of(eqn: JaxprEqn) -> ClosedJaxpr:
    """Return the one jaxpr among the parameters of an equation.

    Raises:
      ValueError: the equation has no jaxpr, or several.
    """
    bodies = [p for p in eqn.params.values() if isinstance(p, Jaxpr | ClosedJaxpr)]
    if len(bodies) != 1:
        raise ValueError(f"equation {eqn.primitive.name} has {len(bodies)} jaxprs, expected 1")
    return bodies[0] if isinstance(bodies[0], ClosedJaxpr) else ClosedJaxpr(bodies[0], ())


def scan_operands(scan: JaxprEqn) -> tuple[int, int]:
    """Return the numbers of loop constants and of carries among the operands of a `scan`.

    Operands are constants, then carries, then scanned arrays. The numbers are inferred from
    shapes, because versions of JAX keep them in different parameters.
    """
    body = body_of(scan).jaxpr
    scanned = sum(map(_has_more_axes, scan.invars, body.invars))
    carry = len(scan.outvars) - sum(map(_has_more_axes, scan.outvars, body.outvars))
    return len(scan.invars) - scanned - carry, carry


def _has_more_axes(outside: Atom, inside: Atom) -> bool:
    return len(aval_of(outside).shape) > len(aval_of(inside).shape)


def all_equations(equations: Iterable[JaxprEqn]) -> Iterator[JaxprEqn]:
    """Yield equations, and recursively the equations of their bodies."""
    for equation in equations:
        yield equation
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
                body = part.jaxpr if isinstance(part, ClosedJaxpr) else part
                if isinstance(body, Jaxpr):
                    yield from all_equations(body.eqns)


def may_not_end(equations: Iterable[JaxprEqn]) -> bool:
    """Return whether a loop among equations has a number of iterations that depends on values."""
    return any(equation.primitive.name == "while" for equation in all_equations(equations))


def aval_of(atom: Atom) -> Any:
    """Return the abstract value (shape, dtype, size) of a variable or literal."""
    return atom.aval


def shape_of(atom: Atom) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a variable or literal, as an argument for tracing."""
    aval = aval_of(atom)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def variables(atoms: Iterable[Atom]) -> Iterable[Var]:
    """Return the variables among atoms, with repetitions."""
    return (atom for atom in atoms if isinstance(atom, Var))


def run_equation(equation: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Return the results of one equation.

    Args:
      equation: equation to run.
      values: one value per operand, literals included.
    """
    inputs = [Var(aval_of(atom)) for atom in equation.invars]
    outputs = [Var(aval_of(variable)) for variable in equation.outvars]
    alone = equation.replace(invars=list[Atom](inputs), outvars=outputs)
    info = DebugInfo("equation", "equation", None, None)
    jaxpr = Jaxpr((), inputs, outputs, [alone], debug_info=info)
    return list(jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*values))


def is_multi_device(equation: JaxprEqn) -> bool:
    """Return whether an equation asks for several devices."""
    asked = {name: x for name, x in equation.params.items() if name not in _CONTEXT}
    return any(map(is_multi_device_placement, jax.tree.leaves(asked, is_leaf=_is_place)))


def is_multi_device_placement(place: Any) -> bool:
    """Return whether a value is a sharding over several devices, or a mesh of several."""
    if isinstance(place, Mesh | AbstractMesh):
        return place.size > 1
    sharding = place.sharding if isinstance(place, Format) else place
    return isinstance(sharding, Sharding) and sharding.num_devices > 1


def _is_place(value: Any) -> bool:
    return isinstance(value, Sharding | Mesh | AbstractMesh | Format)
