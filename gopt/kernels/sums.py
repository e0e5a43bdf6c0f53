"""Sums of products, written so that XLA's library for CPUs takes its short way."""

from collections.abc import Iterator
from dataclasses import replace

import jax
from jax import lax
from jax.extend.core import JaxprEqn, Var

from gopt.program import Program, shape_of


def squeeze_sums(program: Program) -> Program:
    """Returns the program with sums of products that read these without their dimensions of 1.

    XLA hands `sum(x * y)` to YNNPACK, which takes ten times as long if the product has a dimension
    of 1 (seen with jaxlib 0.10.2: float32 of 1 x 4 x 197 x 197). A reshape beside it costs nothing.
    """
    products = {e.outvars[0] for e in program.equations if e.primitive.name == "mul"}

    def is_slow(equation: JaxprEqn) -> bool:
        if equation.primitive.name != "reduce_sum" or equation.params.get("out_sharding"):
            return False
        (operand,) = equation.invars
        shape = shape_of(operand).shape
        sums = any(shape[axis] > 1 for axis in equation.params["axes"])
        return sums and 1 in shape and operand in products

    equations = (
        found
        for equation in program.equations
        for found in (_squeezed(equation) if is_slow(equation) else (equation,))
    )
    return replace(program, equations=tuple(equations))


def _squeezed(equation: JaxprEqn) -> Iterator[JaxprEqn]:
    """Yields equations that make what a sum makes, from its operand without dimensions of 1."""
    operand, result = shape_of(equation.invars[0]), shape_of(equation.outvars[0])
    kept = [axis for axis, size in enumerate(operand.shape) if size != 1]
    axes = tuple(kept.index(axis) for axis in equation.params["axes"] if axis in kept)

    def squeezed(x: jax.Array) -> jax.Array:
        x = lax.reshape(x, [x.shape[axis] for axis in kept])
        x = equation.primitive.bind(x, **{**equation.params, "axes": axes})
        return x if x.shape == result.shape else lax.reshape(x, result.shape)

    jaxpr = jax.make_jaxpr(squeezed)(operand).jaxpr
    ends = zip([*jaxpr.invars, *jaxpr.outvars], [*equation.invars, *equation.outvars], strict=True)
    same = dict(ends)
    for eqn in jaxpr.eqns:
        yield eqn.replace(
            invars=[same.get(a, a) if isinstance(a, Var) else a for a in eqn.invars],
            outvars=[same.get(v, v) for v in eqn.outvars],
        )
