"""Graphs for the throughput measurements: about 1000 ops, and random ones of any size."""

from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.harness.graphs import Spec, build
from gopt.graph.graph import Graph
from gopt.sources import synthetic


def _program(workload: str, is_step: bool, **sizes: Any) -> Callable[[], Graph]:
    return partial(build, Spec(workload, sizes, is_step))


# Unrolled forward passes read their weights at every step.
GRAPHS: dict[str, Callable[[], Graph]] = {
    "ResNeXt step": _program("resnext", True, blocks=(1, 2, 2, 1)),
    "LSTM step": _program("rnnlm", True, length=10),
    "LSTM forward, 100": _program("rnnlm", False, length=100, layers=1),
    "LSTM forward, 250": _program("rnnlm", False, length=250, layers=1),
    "Erdős-Rényi": lambda: synthetic.erdos_renyi(0, 1000, density=0.004),
    "Barabási-Albert": lambda: synthetic.barabasi_albert(0, 1000),
    "layered": lambda: synthetic.layered(0, 1000),
}

# About two to three uses for each op at every size.
FAMILIES: dict[str, Callable[[int, int], Graph]] = {
    "Erdős-Rényi": lambda seed, ops: synthetic.erdos_renyi(seed, ops, density=4 / ops),
    "layered": synthetic.layered,
}
