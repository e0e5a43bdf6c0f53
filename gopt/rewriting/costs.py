"""What terms cost: functions of an operator, its attributes and the shapes that it reads."""

import functools
from collections.abc import Callable

from gopt.hardware import Hardware, homogeneous, op_seconds
from gopt.rewriting.operators import Attributes, Shapes, run
from gopt.sources.jaxpr import trace

OpCost = Callable[[str, Attributes, tuple[Shapes, ...]], float]

# What takes no time: its readers read the part, or the view, in place.
FREE = frozenset(("argument", "number", "result", "reshape", "slice"))


def roofline(hardware: Hardware | None = None) -> OpCost:
    """Returns costs by the roofline of a device, in s.

    Each op counts as a kernel of its own: what a compiler fuses costs less.

    Args:
      hardware: the first device counts; by default a core of a CPU, of 100 Gflop/s and 10 GB/s,
        with 1 µs for each op: our choice.
    """
    if hardware is None:
        hardware = homogeneous(1, flop_rate=1e11, memory_bandwidth=1e10, launch=1e-6)

    @functools.cache
    def cost(operator: str, attributes: Attributes, shapes: tuple[Shapes, ...]) -> float:
        if operator in FREE:
            return 0.0
        graph = trace(lambda *values: run(operator, attributes, values), *shapes).graph
        seconds = op_seconds(graph.flops, graph.bytes, hardware)[:, 0]
        work = (graph.flops > 0) | (graph.bytes > 0)
        return float(seconds[work].sum())

    return cost
