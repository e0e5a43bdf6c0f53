"""Graphs of the programs of models."""

from typing import Any, NamedTuple

import jax

from gopt.graph.graph import Graph
from gopt.graph.tracing import trace
from gopt.sources.hlo import compiled_graph
from gopt.workloads import WORKLOADS


class Spec(NamedTuple):
    """Program of a model."""

    workload: str
    settings: dict[str, Any]
    is_step: bool  # a training step; else a forward pass
    is_optimised: bool = False  # by XLA, for the CPU: ops are what is left after fusion


def name(spec: Spec, graph: Graph) -> str:
    """Return what a graph is called in tables."""
    program = "step" if spec.is_step else "forward"
    return f"{spec.workload} {program}, {int(graph.num_ops)} ops"


def build(spec: Spec) -> Graph:
    """Return the graph of one specification; a training step donates what it replaces.

    XLA may take a minute to optimise a program; JAX's cache keeps it, if it is on.
    """
    model = WORKLOADS[spec.workload](**spec.settings)
    fn, args = model.train_step() if spec.is_step else model.forward()
    donated = (0, 1) if spec.is_step else ()
    if spec.is_optimised:
        return compiled_graph(jax.jit(fn, donate_argnums=donated).lower(*args).compile())
    return trace(fn, *args, donate_argnums=donated).graph
