"""Graphs of the programs of models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.progress import track

from experiments.harness import tables
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


def forward(workload: str, **settings: Any) -> Spec:
    """Return the specification of a forward pass."""
    return Spec(workload, settings, False)


def step(workload: str, **settings: Any) -> Spec:
    """Return the specification of a training step."""
    return Spec(workload, settings, True)


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


def show(title: str, splits: Mapping[str, Sequence[Spec]], path: Path) -> None:
    """Build the graphs of all splits, print a table of them, and save it."""
    rows = []
    for split, specs in splits.items():
        for spec in track(specs, split):
            graph = build(spec)
            size = np.asarray(graph.size)
            program = "step" if spec.is_step else "forward"
            sizes = ", ".join(f"{key}={value}" for key, value in spec.settings.items())
            counts = (int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses))
            bytes = (size.sum(), size[np.asarray(graph.pinned)].sum())
            gigabytes = (f"{each / 2**30:.2f}" for each in bytes)
            rows.append((split, spec.workload, sizes, program, *counts, *gigabytes))
    columns = ("split", "family", "settings", "program", "ops", "tensors", "uses")
    tables.show(
        f"{title}; GiB of all tensors, and of those that are never freed",
        (*columns, "GiB", "GiB pinned"),
        rows,
        path,
    )
