"""Equations with bodies: how often each body runs, and the flop of bodies that are not pure."""

import math
from collections.abc import Callable

from jax.extend.core import ClosedJaxpr, JaxprEqn

from gopt.graph.op_costs import flops
from gopt.program.equations import body_of
from gopt.program.inlining import CALLS

Body = ClosedJaxpr
Runs = list[tuple[Body, float]]  # bodies, each with its number of runs


def _only(eqn: JaxprEqn) -> list[Body]:
    return [body_of(eqn)]


def _shards(eqn: JaxprEqn) -> float:
    """Return the number of devices that run the body: those along the manual axes."""
    params = eqn.params
    axes = params.get("newly_manual_axes", params.get("manual_axes", params["mesh"].axis_names))
    return math.prod(params["mesh"].shape[axis] for axis in axes)


def _steps(eqn: JaxprEqn) -> float:
    """Return the number of steps of a grid; an axis of unknown size has one step."""
    return math.prod(size for size in eqn.params["grid_mapping"].grid if isinstance(size, int))


# Loops: bodies with their numbers of runs.
LOOPS: dict[str, Callable[[JaxprEqn], Runs]] = {
    "scan": lambda eqn: [(eqn.params["jaxpr"], eqn.params["length"])],
    "while": lambda eqn: [(eqn.params["cond_jaxpr"], 1), (eqn.params["body_jaxpr"], 1)],
}

# Branches: one of the bodies runs, once.
BRANCHES: dict[str, Callable[[JaxprEqn], list[Body]]] = {
    "composite": _only,
    "cond": lambda eqn: list(eqn.params["branches"]),
    "custom_linear_solve": lambda eqn: [eqn.params["jaxprs"].solve],
    "custom_partitioning": _only,
    "linear_call": _only,
    "remat_opt": lambda eqn: [eqn.params["fwd_jaxpr"]],
}

# Kernels: only operands and results are in memory. Their bodies may use references and devices.
KERNELS: dict[str, Callable[[JaxprEqn], float]] = {
    "core_map": lambda eqn: 1,
    "cudnn_fusion": lambda eqn: 1,
    "pallas_call": _steps,
    "run_scoped": lambda eqn: 1,
    "run_state": lambda eqn: 1,
    "shard_map": _shards,
}

# Primitives with bodies, all together.
WITH_BODIES = frozenset((*LOOPS, *BRANCHES, *KERNELS)) | CALLS


def kernel_flops(eqn: JaxprEqn) -> float:
    """Return the flop of an equation, bodies included, whatever effects they have."""
    name = eqn.primitive.name
    if name in LOOPS:
        return sum(runs * _body_flops(body) for body, runs in LOOPS[name](eqn))
    if name in BRANCHES:
        return max(_body_flops(body) for body in BRANCHES[name](eqn))
    if name in CALLS or name in KERNELS:
        return KERNELS.get(name, lambda _: 1)(eqn) * _body_flops(body_of(eqn))
    return flops(eqn)


def _body_flops(body: Body) -> float:
    return sum(map(kernel_flops, body.jaxpr.eqns))
