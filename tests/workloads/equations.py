"""Convolutions, matrix products and their multiplications in the program of a workload."""

import math

import jax
import jax.extend

from gopt.workloads.base import Workload


def forward_jaxpr(workload: Workload) -> jax.extend.core.ClosedJaxpr:
    fn, args = workload.forward()
    return jax.make_jaxpr(fn)(*args)


def convolutions(jaxpr: jax.extend.core.ClosedJaxpr) -> list[jax.extend.core.JaxprEqn]:
    return [e for e in jaxpr.eqns if e.primitive is jax.lax.conv_general_dilated_p]


def multiplications(workload: Workload) -> int:
    """Multiplications of the convolutions and matrix products of a forward pass."""
    total = 0
    for eqn in forward_jaxpr(workload).eqns:
        if eqn.primitive not in (jax.lax.conv_general_dilated_p, jax.lax.dot_general_p):
            continue
        kernel = eqn.invars[1].aval.shape
        summed = kernel[:-1]  # of a convolution: all but the output channels
        if eqn.primitive is jax.lax.dot_general_p:
            summed = [kernel[axis] for axis in eqn.params["dimension_numbers"][0][1]]
        total += eqn.outvars[0].aval.size * math.prod(summed)
    return total
