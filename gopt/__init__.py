"""Placement and scheduling of computation graphs, learned and searched, in JAX.

What happens to the ops of a training step on two GPUs, and how it could be better:

    import gopt, jax, jax.numpy as jnp

    step = jax.grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) @ w.T))
    result = gopt.schedule(step, jnp.ones((512, 512)), jnp.ones((64, 512)))
    print(result)
    result.plot().savefig("schedule.png")

The parts work on their own too: `gopt.search.brkga` minimises any function of random keys,
`gopt.losses` has policy-gradient losses, and `evaluate` costs schedules of any graph under
`jax.jit` and `jax.vmap`.
"""

from gopt import classical, cost, losses, search
from gopt.classical import HEURISTICS
from gopt.cost.execution import (
    OBJECTIVES,
    Cost,
    Decision,
    Keys,
    Schedule,
    decode,
    evaluate,
    keys_shape,
    population_cost,
    simulate,
)
from gopt.graph import Graph, Op, Output, from_arrays, from_ops
from gopt.hardware import PRESETS, Hardware, homogeneous
from gopt.padding import pad
from gopt.problem import Problem, prepare, to_bytes, to_seconds
from gopt.scheduling import Scheduling, schedule
from gopt.sources.jaxpr import Traced, trace

__all__ = (
    "HEURISTICS",
    "OBJECTIVES",
    "PRESETS",
    "Cost",
    "Decision",
    "Graph",
    "Hardware",
    "Keys",
    "Op",
    "Output",
    "Problem",
    "Schedule",
    "Scheduling",
    "Traced",
    "classical",
    "cost",
    "decode",
    "evaluate",
    "from_arrays",
    "from_ops",
    "homogeneous",
    "keys_shape",
    "losses",
    "pad",
    "population_cost",
    "prepare",
    "schedule",
    "search",
    "simulate",
    "to_bytes",
    "to_seconds",
    "trace",
)
