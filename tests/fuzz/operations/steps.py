"""All random operations, by how often they are drawn."""

import math

import jax

from tests.fuzz.operations import axes, control_flow, elements, patterns
from tests.fuzz.operations.values import Step, UnsuitableError, Values

NOT_TRACED = (TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)

_SHARES = {
    elements.unary: 2,
    elements.binary: 3,
    elements.choose: 1,
    elements.convert: 2,
    elements.source: 1,
    elements.product: 2,
    elements.convolution: 1,
    elements.decomposition: 1,
    axes.reduction: 2,
    axes.along: 2,
    axes.shape: 2,
    axes.join: 1,
    axes.index: 2,
    axes.draw: 2,
    control_flow.loop: 2,
    control_flow.scan_of_all: 1,
    control_flow.branch: 1,
    control_flow.call: 2,
    control_flow.transformed: 2,
    patterns.products: 2,
    patterns.images: 1,
    patterns.algebra: 1,
    patterns.chain: 1,
}


def random_step(values: Values) -> Step:
    """Return an operation that JAX can trace; the types of its results become values.

    Raises:
      UnsuitableError: there is none.
    """
    for _ in range(50):
        operation = values.rng.choices(list(_SHARES), list(_SHARES.values()))[0]
        try:
            step = operation(values)
            found = jax.eval_shape(step.function, *(values.types[k] for k in step.operands))
        except (UnsuitableError, *NOT_TRACED):
            continue
        leaves = jax.tree.leaves(found)
        if all(math.prod(x.shape) <= 400 and len(x.shape) <= 5 for x in leaves):
            values.types += leaves
            return step
    raise UnsuitableError


def repeated(values: Values, step: Step) -> Step:
    """Return a step once more, on the same values."""
    found = jax.eval_shape(step.function, *(values.types[k] for k in step.operands))
    values.types += jax.tree.leaves(found)
    return step
