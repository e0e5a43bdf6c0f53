"""The program of a workload: its convolutions, and how large it is."""

import math
from typing import NamedTuple

import jax
import jax.extend

from gopt.workloads.base import Workload


def forward_jaxpr(workload: Workload) -> jax.extend.core.ClosedJaxpr:
    fn, args = workload.forward()
    return jax.make_jaxpr(fn)(*args)


def convolutions(jaxpr: jax.extend.core.ClosedJaxpr) -> list[jax.extend.core.JaxprEqn]:
    return [e for e in jaxpr.eqns if e.primitive is jax.lax.conv_general_dilated_p]


class Size(NamedTuple):
    """What papers publish of the size of a model."""

    parameters: int
    multiplications: int  # of the convolutions and matrix products of a forward pass


def size(workload: Workload) -> Size:
    """The size of a workload, from one trace of its forward pass, which makes its parameters."""
    fn = jax.make_jaxpr(workload.module.init_with_output, return_shape=True)
    jaxpr, (_, variables) = fn(jax.random.key(0), *workload.inputs)
    parameters = sum(x.size for x in jax.tree.leaves(variables["params"]))
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive not in (jax.lax.conv_general_dilated_p, jax.lax.dot_general_p):
            continue
        kernel = eqn.invars[1].aval.shape
        summed = kernel[:-1]  # of a convolution: all but the output channels
        if eqn.primitive is jax.lax.dot_general_p:
            summed = [kernel[axis] for axis in eqn.params["dimension_numbers"][0][1]]
        total += eqn.outvars[0].aval.size * math.prod(summed)
    return Size(parameters, total)
