"""Place, order, fuse and rewrite computation graphs of JAX functions, by search and learning.

Search for an order of kernels that needs little memory, and run the model in that order:

    import gopt
    from gopt.workloads import nasnet_a

    model, shapes = nasnet_a(cells=1).forward()
    ordering = gopt.schedule(model, *shapes)
    print(ordering)
    infer = ordering.apply()

`gopt.fuse` chooses the ops that XLA runs as one kernel, by measured times. `gopt.rewrite` replaces
ops by cheaper equal ones.

Each part also works alone. `gopt.search.brkga` minimises any function of random keys.
`gopt.learning.losses` has policy-gradient losses. `evaluate` returns the costs of schedules of any
graph, under `jax.jit` and `jax.vmap`.
"""

import importlib
from types import ModuleType

from gopt import cost, heuristics, search
from gopt.cost.hardware import PRESETS, Hardware, unit_rate_devices
from gopt.cost.schedule.decoding import Cost, Decision, Keys, Schedule, decode, keys_shape
from gopt.cost.schedule.execution import evaluate, simulate
from gopt.cost.schedule.objectives import OBJECTIVES, population_cost
from gopt.cost.schedule.problem import Problem, prepare, to_bytes, to_seconds
from gopt.decisions import load
from gopt.fusion.api import fuse
from gopt.graph.graph import Graph, Op, Output, from_arrays, from_ops
from gopt.graph.padding import pad
from gopt.graph.tracing import TracedGraph, trace
from gopt.heuristics import HEURISTICS
from gopt.result import Candidate, Result
from gopt.rewriting.api import rewrite
from gopt.scheduling.api import schedule
from gopt.scheduling.front import memory_front

__version__ = "0.2.0"

__all__ = (
    "HEURISTICS",
    "OBJECTIVES",
    "PRESETS",
    "Candidate",
    "Cost",
    "Decision",
    "Graph",
    "Hardware",
    "Keys",
    "Op",
    "Output",
    "Problem",
    "Result",
    "Schedule",
    "TracedGraph",
    "cost",
    "decode",
    "evaluate",
    "from_arrays",
    "from_ops",
    "fuse",
    "heuristics",
    "keys_shape",
    "load",
    "losses",
    "memory_front",
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
    "unit_rate_devices",
)


def __getattr__(name: str) -> ModuleType:
    """Import `losses` when it is first used: optax is slow to import."""
    if name == "losses":
        return importlib.import_module("gopt.learning.losses")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
