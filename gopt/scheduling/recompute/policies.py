"""The policies of `jax.checkpoint` over a whole differentiated function, on a traced program.

JAX names what `jax.grad` adds: the scope of a forward equation has `jvp(`, of a backward equation
`transpose(`. A residual is a value that a forward kernel makes and a backward kernel reads. A
policy says which residuals are held; the others are computed again.

Kernels run again as late as possible, and each once. `jax.checkpoint` runs all of them again before
the first backward equation.
"""

from collections.abc import Callable

import numpy as np
from jax.extend.core import JaxprEqn

from gopt.cost.recompute.runs import Choices
from gopt.scheduling.recompute.names import is_backward
from gopt.scheduling.recompute.program import Repeatable

Policy = Callable[[JaxprEqn], bool]  # the equation that makes a residual to whether it is held


def _is_product(equation: JaxprEqn) -> bool:
    return equation.primitive.name in ("dot_general", "conv_general_dilated")


def _has_no_batch(equation: JaxprEqn) -> bool:
    if equation.primitive.name != "dot_general":
        return False
    _, (batch, _) = equation.params["dimension_numbers"]
    return not batch


# What is held. The first three are `nothing_saveable`, `dots_saveable` and
# `dots_with_no_batch_dims_saveable`; the last one also holds convolutions.
POLICIES: dict[str, Policy] = {
    "nothing": lambda equation: False,
    "dots": lambda equation: equation.primitive.name == "dot_general",
    "dots without batch": _has_no_batch,
    "products": _is_product,
}


def backward_ops(found: Repeatable) -> np.ndarray:
    """Return which ops of a graph of kernels have a backward equation, bool `[N]`."""
    backward = np.zeros(found.problem.num_rows, bool)
    for op, k in enumerate(found.traced.equations):
        if k >= 0:
            backward[op] = is_backward(found.kernels.source, found.kernels.groups[k])
    return backward


def choices_of(found: Repeatable, policy: Policy) -> Choices | None:
    """Return the candidate in which a policy says what is held; `None` without residuals.

    Args:
      found: kernels that may run more than once.
      policy: one of `POLICIES`, or a function like them.
    """
    problem, backward = found.problem, backward_ops(found)
    splits = np.zeros((problem.num_rows, 1), np.int32)
    has_residuals = False
    for op, k in enumerate(found.traced.equations):
        readers = problem.readers[problem.first_reader[op] : problem.first_reader[op + 1]]
        if k < 0 or backward[op] or not problem.may_repeat[op] or not len(readers):
            continue
        late = np.flatnonzero(backward[readers])
        has_residuals |= late.size > 0
        root = found.kernels.source.equations[found.kernels.groups[k][-1]]
        if not policy(root):
            splits[op] = late[0] if late.size and late[0] else len(readers)
    return Choices(None, splits) if has_residuals else None
