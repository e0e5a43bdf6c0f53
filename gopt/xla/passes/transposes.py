"""Fold transposes of products as XLA does."""

from collections import Counter
from dataclasses import replace
from typing import Any

from jax.extend.core import JaxprEqn, Var
from jax.lax import DotAlgorithm, DotAlgorithmPreset, Precision

from gopt.program.equations import shape_of, variables
from gopt.program.program import Program


def fold_transposes(program: Program) -> Program:
    """Replace transposed products by products with exchanged operands.

    A transpose that exchanges the free axes of both operands of a product, and is its only reader,
    equals the product of the exchanged operands. Gradients of weights have this form. A product
    with a precision of unknown type, or with a given output sharding, stays.
    """
    read = [v for equation in program.equations for v in variables(equation.invars)]
    readers = Counter([*read, *variables(program.outputs)])
    made_by: dict[Var, int] = {}
    equations: list[JaxprEqn | None] = []
    for index, equation in enumerate(program.equations):
        equations.append(equation)
        if equation.primitive.name == "dot_general":
            made_by[equation.outvars[0]] = index
        if equation.primitive.name != "transpose":
            continue
        for operand in variables(equation.invars):
            product = equations[made_by[operand]] if operand in made_by else None
            if product is None or readers[operand] > 1 or not _can_be_exchanged(product):
                continue
            if tuple(equation.params["permutation"]) == _exchanged(product):
                equations[made_by[operand]] = None
                equations[index] = _exchange(product, equation)
    return replace(program, equations=tuple(e for e in equations if e is not None))


def _exchanged(product: JaxprEqn) -> tuple[int, ...]:
    """Return the permutation of a product's axes that corresponds to exchanging its operands."""
    (contracted, _), (batch, _) = product.params["dimension_numbers"]
    rank = len(shape_of(product.outvars[0]).shape)
    free = len(shape_of(product.invars[0]).shape) - len(contracted) - len(batch)
    axes = range(len(batch), rank)
    return (*range(len(batch)), *axes[free:], *axes[:free])


def _can_be_exchanged(product: JaxprEqn) -> bool:
    if product.params.get("out_sharding") is not None:
        return False
    precision = product.params["precision"]
    known = Precision, DotAlgorithm, DotAlgorithmPreset
    return precision is None or isinstance(precision, known) or _is_pair(precision)


def _is_pair(precision: Any) -> bool:
    return isinstance(precision, tuple) and all(isinstance(one, Precision) for one in precision)


def _exchange(product: JaxprEqn, transpose: JaxprEqn) -> JaxprEqn:
    (contracted, batch), params = product.params["dimension_numbers"], dict(product.params)
    params["dimension_numbers"] = contracted[::-1], batch[::-1]
    precision = params["precision"]
    if isinstance(precision, DotAlgorithm):
        params["precision"] = precision._replace(
            lhs_precision_type=precision.rhs_precision_type,
            rhs_precision_type=precision.lhs_precision_type,
            lhs_component_count=precision.rhs_component_count,
            rhs_component_count=precision.lhs_component_count,
        )
    elif _is_pair(precision):
        params["precision"] = precision[::-1]
    return product.replace(invars=product.invars[::-1], outvars=transpose.outvars, params=params)
