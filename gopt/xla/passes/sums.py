"""Sums of products, written so that XLA's library for CPUs takes its short way."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var

from gopt.program.equations import aval_of, shape_of, variables
from gopt.program.program import Program

# What may stand between a product and its sum.
_PASSED = frozenset(("convert_element_type", "neg", "transpose"))


def squeeze_sums(program: Program) -> Program:
    """Returns the program with sums of products that read these without their dimensions of 1.

    XLA hands sums of `x * y` to YNNPACK, which takes four to fifteen times as long for float32 if
    one axis is summed and one before it has a size of 1 (seen with jaxlib 0.10.2: the last axis of
    1 x 4 x 197 x 197 takes 3.0 ns an element, and 0.5 without the first). Where one after it has,
    sums take as long as without, or half as long: these stay. A product may be negated, transposed
    or rounded first. A reshape beside the sum costs nothing.
    """
    products = set[Var]()
    equations: list[JaxprEqn] = []
    for equation in program.equations:
        name, read = equation.primitive.name, list(variables(equation.invars))
        is_product = name == "mul" and equation.invars[0] is not equation.invars[1]
        if is_product or (name in _PASSED and not products.isdisjoint(read)):
            products.add(equation.outvars[0])
        if name == "reduce_sum" and not products.isdisjoint(read) and _is_slow(equation):
            equations += _squeezed(equation)
        else:
            equations.append(equation)
    return replace(program, equations=tuple(equations))


def _is_slow(equation: JaxprEqn) -> bool:
    """Returns whether a sum of a product is of the form that YNNPACK is slow at."""
    operand, result = aval_of(equation.invars[0]), aval_of(equation.outvars[0])
    is_sharded = equation.params.get("out_sharding") is not None or not result.sharding.mesh.empty
    if operand.dtype != np.float32 or is_sharded or len(equation.params["axes"]) != 1:
        return False
    (axis,) = equation.params["axes"]
    before, after = operand.shape[:axis], operand.shape[axis + 1 :]
    return operand.size > result.size and 1 in before and 1 not in after


def _squeezed(equation: JaxprEqn) -> Iterator[JaxprEqn]:
    """Yields equations that make what a sum makes, from its operand without dimensions of 1."""
    operand, result = shape_of(equation.invars[0]), shape_of(equation.outvars[0])
    kept = [axis for axis, size in enumerate(operand.shape) if size != 1]
    axes = tuple(kept.index(axis) for axis in equation.params["axes"])

    def squeezed(x: jax.Array) -> jax.Array:
        x = lax.reshape(x, [x.shape[axis] for axis in kept])
        x = equation.primitive.bind(x, **{**equation.params, "axes": axes})
        return lax.reshape(x, result.shape)

    jaxpr = jax.make_jaxpr(squeezed)(operand).jaxpr
    ends = zip([*jaxpr.invars, *jaxpr.outvars], [*equation.invars, *equation.outvars], strict=True)
    same = dict(ends)
    for eqn in jaxpr.eqns:
        yield eqn.replace(
            invars=[same.get(a, a) if isinstance(a, Var) else a for a in eqn.invars],
            outvars=[same.get(v, v) for v in eqn.outvars],  # type: ignore[misc]
            source_info=equation.source_info,
            ctx=equation.ctx,
        )
