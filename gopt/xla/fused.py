"""Configurations as JAX functions, in which XLA cannot merge one kernel with others."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from gopt.program.equations import body_of, run_equation
from gopt.program.interpret import Values, interpret, operands_of
from gopt.program.primitives import role_of
from gopt.program.program import Program
from gopt.xla.calls import check_uninlined, uninlined
from gopt.xla.grouping import Group, group


def fused(
    program: Program, parts: Sequence[Group], *, platform: str | None = None
) -> Callable[..., Any]:
    """Return a function to jit, in which each group of equations is one kernel.

    On a CPU a group is a call that XLA does not inline; inside the call XLA fuses. Ops that never
    fuse, such as products and loops, are not calls, because XLA compiles some loops and
    convolutions better in context. On a GPU, XLA does not fuse inside calls, so barriers separate
    the kernels.

    Args:
      program: program whose equations are grouped.
      parts: groups, in execution order; see `gopt.fusion.programs.groups_of`.
      platform: platform to compile for; by default the platform of the default backend.

    Returns:
      Function of the program's arguments.

    Raises:
      ValueError: the groups do not make a program; see `gopt.xla.grouping.group`.
      RuntimeError: this version of JAX has no calls that XLA does not inline.
    """
    grouped = group(program, parts)
    is_cpu = (platform or jax.default_backend()) == "cpu"
    if is_cpu:
        check_uninlined()

    def evaluate(position: int, equation: JaxprEqn, values: Values) -> Any:
        kernel = apart(equation) if is_cpu else _behind_barrier(kernel_of(equation))
        return kernel(*operands_of(equation, values))

    def function(*args: Any) -> Any:
        return interpret(grouped, args, evaluate)

    return function


def kernel_of(equation: JaxprEqn) -> Callable[..., Any]:
    """Return the function that an equation, or a group's call, computes."""
    if equation.primitive.name == "jit":
        return jaxpr_as_fun(body_of(equation))
    return lambda *operands: run_equation(equation, operands)


def apart(equation: JaxprEqn) -> Callable[..., Any]:
    """Return the function that an equation, or a group's call, computes, as one kernel on a CPU."""
    last = body_of(equation).jaxpr.eqns[-1] if equation.primitive.name == "jit" else equation
    is_opaque = role_of(last.primitive.name) == "opaque"
    return kernel_of(equation) if is_opaque else uninlined(kernel_of(equation))


def _behind_barrier(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: lax.optimization_barrier(kernel(*operands))
