"""Products that are transposed, folded as XLA folds them."""

from collections import Counter
from dataclasses import replace

from jax.extend.core import JaxprEqn, Var

from gopt.program import Program, shape_of, variables


def fold_transposes(program: Program) -> Program:
    """Returns the program with products that make at once what a transpose would make of them.

    A transpose that exchanges the free axes of both operands of a product, which nothing else
    reads, is the product of the exchanged operands. Gradients of weights are such.
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
            if product is None or readers[operand] > 1:
                continue
            if tuple(equation.params["permutation"]) == _exchanged(product):
                equations[made_by[operand]] = None
                equations[index] = _exchange(product, equation)
    return replace(program, equations=tuple(e for e in equations if e is not None))


def _exchanged(product: JaxprEqn) -> tuple[int, ...]:
    """Returns the permutation of a product's axes that exchanging its operands is."""
    (contracted, _), (batch, _) = product.params["dimension_numbers"]
    rank = len(shape_of(product.outvars[0]).shape)
    free = len(shape_of(product.invars[0]).shape) - len(contracted) - len(batch)
    axes = range(len(batch), rank)
    return (*range(len(batch)), *axes[free:], *axes[:free])


def _exchange(product: JaxprEqn, transpose: JaxprEqn) -> JaxprEqn:
    (contracted, batch), params = product.params["dimension_numbers"], dict(product.params)
    params["dimension_numbers"] = contracted[::-1], batch[::-1]
    if isinstance(params.get("precision"), tuple):
        params["precision"] = params["precision"][::-1]
    return product.replace(invars=product.invars[::-1], outvars=transpose.outvars, params=params)
