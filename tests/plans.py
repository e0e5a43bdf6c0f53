"""A small plan of each verb, made without a measurement."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

import gopt
from gopt.cost.hardware import unit_rate_devices
from gopt.fusion.plan import Fusion, FusionPlan
from gopt.fusion.plan import make_plan as make_fusion_plan
from gopt.program.program import trace_program
from gopt.rewriting.ir.from_program import terms_of_program
from gopt.rewriting.ir.operators import Literal
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.plan import FOLDED, WHOLE, RewritePlan
from gopt.rewriting.plan import make_plan as make_rewrite_plan
from gopt.xla.ordered import MEMORY_SCHEDULER

X = jnp.linspace(0, 1, 64).reshape(8, 8)


def function(x: Any) -> Any:
    """Return a value with two products that two devices can compute."""
    a, b = jnp.tanh(x @ x), jnp.exp(x @ (x + 1))
    return (a @ b + a) * 2.0


@cache
def schedule_plan(devices: int) -> Any:
    """Return a plan of `schedule` for a number of devices."""
    search = "depth_first" if devices == 1 else "brkga"
    machine = unit_rate_devices(devices)
    return gopt.schedule(function, X, hardware=machine, search=search, evaluations=1).plan


def fusion_plan() -> FusionPlan:
    """Return a plan of `fuse`: every equation is a kernel, but the last two are one."""
    program = trace_program(function, X)
    last = len(program.equations) - 1
    groups = (*((k,) for k in range(last - 1)), (last - 1, last))
    return make_fusion_plan(program, Fusion(False, None, groups, MEMORY_SCHEDULER["cpu"]))


def rewrite_plan() -> RewritePlan:
    """Return a plan of `rewrite`, with attributes of many kinds."""
    program, terms = trace_program(function, X), Terms()
    roots = terms_of_program(terms, program, [False])
    count = len(terms)
    turned = terms.add("transpose", roots, permutation=(1, 0))
    parts = [terms.add("slice", [turned], axis=0, start=k, stop=k + 4) for k in (0, 4)]
    whole = terms.add("concat", parts, axis=0)
    one = terms.add("number", value=Literal(jnp.ones((8, 8))))
    kinds = {"precision": (jax.lax.Precision.HIGHEST,) * 2, "dtype": jnp.dtype("float32")}
    product = terms.add("matmul", [whole, terms.add("mul", [one, whole])], **kinds)
    return make_rewrite_plan(program, (), WHOLE, FOLDED, terms, count, [product])


def plans() -> dict[str, tuple[str, Any]]:
    """Return the verb and the plan of each kind of plan."""
    return {
        "schedule": ("schedule", schedule_plan(1)),
        "placement": ("schedule", schedule_plan(2)),
        "fuse": ("fuse", fusion_plan()),
        "rewrite": ("rewrite", rewrite_plan()),
    }
