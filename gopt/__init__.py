"""Placement and scheduling of computation graphs, learned and searched, in JAX.

The order of kernels in which a model needs least memory, and the model in that order:

    import gopt
    from gopt.workloads import nasnet_a

    model, shapes = nasnet_a(cells=1).forward()
    ordering = gopt.schedule(model, *shapes)
    print(ordering)
    infer = ordering.apply()

`gopt.fuse` does the same for which ops are one kernel, by measured times; `gopt.rewrite` puts equal
ops in the place of others.

The parts work on their own too: `gopt.search.brkga` minimises any function of random keys,
`gopt.losses` has policy-gradient losses, and `evaluate` costs schedules of any graph under
`jax.jit` and `jax.vmap`.
"""

from gopt import classical, cost, losses, search
from gopt.candidates import Candidate
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
from gopt.fusing import fuse
from gopt.fusion.comparison import Fusing
from gopt.graph import Graph, Op, Output, from_arrays, from_ops
from gopt.hardware import PRESETS, Hardware, homogeneous
from gopt.padding import pad
from gopt.placement import Staged
from gopt.plans import Plan, load_plan
from gopt.problem import Problem, prepare, to_bytes, to_seconds
from gopt.rewriting.verb import Rewriting, rewrite
from gopt.scheduling import Scheduling, schedule
from gopt.sources.jaxpr import Traced, trace

__version__ = "0.2.0"

__all__ = (
    "HEURISTICS",
    "OBJECTIVES",
    "PRESETS",
    "Candidate",
    "Cost",
    "Decision",
    "Fusing",
    "Graph",
    "Hardware",
    "Keys",
    "Op",
    "Output",
    "Plan",
    "Problem",
    "Rewriting",
    "Schedule",
    "Scheduling",
    "Staged",
    "Traced",
    "classical",
    "cost",
    "decode",
    "evaluate",
    "from_arrays",
    "from_ops",
    "fuse",
    "homogeneous",
    "keys_shape",
    "load_plan",
    "losses",
    "pad",
    "population_cost",
    "prepare",
    "rewrite",
    "schedule",
    "search",
    "simulate",
    "to_bytes",
    "to_seconds",
    "trace",
)
