"""Graphs of the programs of models."""

from typing import Any, NamedTuple

import jax

from gopt.graph.graph import Graph
from gopt.graph.tracing import trace
from gopt.sources.hlo import compiled_graph
from gopt.workloads import WORKLOADS


class Spec(NamedTuple):
    """Program of a model.

    Attributes:
      workload: name of the workload.
      settings: settings of the workload.
      is_step: whether it is a training step; else a forward pass.
      is_optimised: whether XLA optimises it for the CPU; then ops are fused kernels.
    """

    workload: str
    settings: dict[str, Any]
    is_step: bool
    is_optimised: bool = False


def name(spec: Spec, graph: Graph) -> str:
    """Return the name of a graph in tables."""
    program = "step" if spec.is_step else "forward"
    return f"{spec.workload} {program}, {int(graph.num_ops)} ops"


def build(spec: Spec) -> Graph:
    """Return the graph of one specification; a training step donates arguments that it replaces.

    XLA may take a minute to optimise a program; JAX's cache keeps the result, if it is on.
    """
    model = WORKLOADS[spec.workload](**spec.settings)
    fn, args = model.train_step() if spec.is_step else model.forward()
    donated = (0, 1) if spec.is_step else ()
    if spec.is_optimised:
        return compiled_graph(jax.jit(fn, donate_argnums=donated).lower(*args).compile())
    return trace(fn, *args, donate_argnums=donated).graph
