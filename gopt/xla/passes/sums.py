"""Rewrite sums of products so that XLA's CPU library uses its fast path."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var

from gopt.program.equations import aval_of, shape_of, variables
from gopt.program.program import Program

# Primitives that may stand between a product and its sum.
_PASSED = frozenset(("convert_element_type", "neg", "transpose"))


def squeeze_sums(program: Program) -> Program:
    """Remove dimensions of size 1 from the operands of slow sums of products.

    XLA passes sums of `x * y` to YNNPACK. For float32, it takes 4 to 15 times as long if one axis
    is summed and an earlier one has size 1. In jaxlib 0.10.2, summing the last axis of 1 x 4 x 197
    x 197 takes 3.0 ns per element, 0.5 ns without the first axis. If a later axis has size 1, a sum
    takes as long as without it, or half as long; such sums stay. The product may be negated,
    transposed or rounded before the sum. A reshape next to the sum costs nothing.
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
    """Return whether the sum of a product has the form that is slow in YNNPACK."""
    operand, result = aval_of(equation.invars[0]), aval_of(equation.outvars[0])
    is_sharded = equation.params.get("out_sharding") is not None or not result.sharding.mesh.empty
    if operand.dtype != np.float32 or is_sharded or len(equation.params["axes"]) != 1:
        return False
    (axis,) = equation.params["axes"]
    before, after = operand.shape[:axis], operand.shape[axis + 1 :]
    return operand.size > result.size and 1 in before and 1 not in after


def _squeezed(equation: JaxprEqn) -> Iterator[JaxprEqn]:
    """Yield equations with the same result as a sum, on its operand without dimensions of 1."""
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
