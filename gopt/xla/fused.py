"""Configurations as programs, in which each kernel is a call that XLA cannot merge with others."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from gopt.program.equations import body_of, run_equation
from gopt.program.primitives import role_of
from gopt.program.program import Program
from gopt.xla.calls import check_uninlined, uninlined
from gopt.xla.grouping import Group, group
from gopt.xla.labels import Values, value_of


def fused(
    program: Program, parts: Sequence[Group], *, platform: str | None = None
) -> Callable[..., Any]:
    """Returns the function of a program whose groups are kernels, to be jitted.

    On a CPU each is a call that XLA does not inline; what it calls it fuses. What is fused with
    nothing, a product or a loop, is no call: XLA compiles some loops and convolutions better where
    it sees what is around them. A GPU's compiler fuses nothing in calls: there, barriers part the
    kernels.

    Args:
      program: the equations.
      parts: see `groups_of`.
      platform: for which it is compiled; by default that of the default backend.

    Raises:
      ValueError: see `gopt.xla.group`.
      RuntimeError: this version of JAX has no calls that XLA does not inline.
    """
    grouped = group(program, parts)
    is_cpu = (platform or jax.default_backend()) == "cpu"
    if is_cpu:
        check_uninlined()

    def function(*args: Any) -> Any:
        values: Values = dict(zip(grouped.inputs, grouped.check_arguments(args), strict=True))
        values |= zip(grouped.constants, grouped.values, strict=True)
        for equation in grouped.equations:
            operands = [value_of(atom, values) for atom in equation.invars]
            kernel = apart(equation) if is_cpu else _behind_barrier(kernel_of(equation))
            results = kernel(*operands)
            values |= zip(equation.outvars, results, strict=True)
        return jax.tree.unflatten(grouped.out_tree, [value_of(a, values) for a in grouped.outputs])

    return function


def kernel_of(equation: JaxprEqn) -> Callable[..., Any]:
    """Returns what an equation, or a group of them, computes."""
    if equation.primitive.name == "jit":
        return jaxpr_as_fun(body_of(equation))
    return lambda *operands: run_equation(equation, operands)


def apart(equation: JaxprEqn) -> Callable[..., Any]:
    """Returns what an equation, or a group of them, computes, as one kernel on a CPU."""
    last = body_of(equation).jaxpr.eqns[-1] if equation.primitive.name == "jit" else equation
    is_opaque = role_of(last.primitive.name) == "opaque"
    return kernel_of(equation) if is_opaque else uninlined(kernel_of(equation))


def _behind_barrier(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: lax.optimization_barrier(kernel(*operands))
