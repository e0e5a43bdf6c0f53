"""Graphs for the throughput measurements: about 1000 ops, and random ones of any size."""

from collections.abc import Callable
from functools import partial

from experiments.harness.graphs import Spec, build
from gopt.graph.graph import Graph
from gopt.sources import synthetic

# An unrolled forward pass reads its weights at every step.
GRAPHS: dict[str, Callable[[], Graph]] = {
    "ResNeXt step": partial(build, Spec("resnext", {"blocks": (1, 2, 2, 1)}, is_step=True)),
    "LSTM step": partial(build, Spec("rnnlm", {"length": 10}, is_step=True)),
    "LSTM forward, 100": partial(build, Spec("rnnlm", {"length": 100, "layers": 1}, is_step=False)),
    "Erdős-Rényi": partial(synthetic.erdos_renyi, 0, 1000, density=0.004),
}

# About two to three uses for each op at every size.
FAMILIES: dict[str, Callable[[int, int], Graph]] = {
    "Erdős-Rényi": lambda seed, ops: synthetic.erdos_renyi(seed, ops, density=4 / ops),
    "layered": synthetic.layered,
}
