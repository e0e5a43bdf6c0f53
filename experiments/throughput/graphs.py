"""The graphs that throughput is measured on: about 1000 ops, and random ones of any size."""

from collections.abc import Callable
from typing import Any

from gopt.graph.graph import Graph
from gopt.graph.tracing import trace
from gopt.sources import synthetic
from gopt.workloads import WORKLOADS


def _workload(name: str, *, train: bool, **sizes: Any) -> Graph:
    workload = WORKLOADS[name](**sizes)
    fn, args = workload.train_step() if train else workload.forward()
    return trace(fn, *args, donate_argnums=(0, 1) if train else ()).graph


# The weights of the unrolled forward passes are read at every step.
GRAPHS: dict[str, Callable[[], Graph]] = {
    "ResNeXt step": lambda: _workload("resnext", train=True, blocks=(1, 2, 2, 1)),
    "LSTM step": lambda: _workload("rnnlm", train=True, length=10),
    "LSTM forward, 100": lambda: _workload("rnnlm", train=False, length=100, layers=1),
    "LSTM forward, 250": lambda: _workload("rnnlm", train=False, length=250, layers=1),
    "Erdős-Rényi": lambda: synthetic.erdos_renyi(0, 1000, density=0.004),
    "Barabási-Albert": lambda: synthetic.barabasi_albert(0, 1000),
    "layered": lambda: synthetic.layered(0, 1000),
}

# About two to three uses for each op at every size.
FAMILIES: dict[str, Callable[[int, int], Graph]] = {
    "Erdős-Rényi": lambda seed, ops: synthetic.erdos_renyi(seed, ops, density=4 / ops),
    "layered": synthetic.layered,
}
