"""What terms cost: functions of an operator, its attributes, and what it reads.

That is the shape of each, and whether it is known before the program runs, as weights are.
"""

import functools
import math
from collections.abc import Callable

import jax

from gopt.fusion.timing import KernelTimes
from gopt.hardware import Hardware, homogeneous, op_seconds
from gopt.program import trace_program
from gopt.rewriting.operators import Attributes, Shapes, run
from gopt.sources.jaxpr import trace

OpCost = Callable[[str, Attributes, tuple[Shapes, ...], tuple[bool, ...]], float]

# What takes no time: its readers read the part, or the view, in place.
FREE = frozenset(("argument", "number", "result", "reshape", "slice"))


def roofline(hardware: Hardware | None = None) -> OpCost:
    """Returns costs by the roofline of a device, in s.

    Each op counts as a kernel of its own: what a compiler fuses costs less. All that it reads comes
    from memory, constant or not.

    Args:
      hardware: the first device counts; by default a core of a CPU, of 100 Gflop/s and 10 GB/s,
        with 1 µs for each op: our choice.
    """
    if hardware is None:
        hardware = homogeneous(1, flop_rate=1e11, memory_bandwidth=1e10, launch=1e-6)

    @functools.cache
    def cost(
        operator: str,
        attributes: Attributes,
        shapes: tuple[Shapes, ...],
        constant: tuple[bool, ...],
    ) -> float:
        if operator in FREE:
            return 0.0
        graph = trace(lambda *values: run(operator, attributes, values), *shapes).graph
        seconds = op_seconds(graph.flops, graph.bytes, hardware)[:, 0]
        work = (graph.flops > 0) | (graph.bytes > 0)
        return float(seconds[work].sum())

    return cost


def measured(times: KernelTimes, *, constants: float = math.inf) -> OpCost:
    """Returns costs as this CPU has them, in s: each op is compiled and timed once, as TASO has it.

    An op is a kernel of its own, as in `roofline`; what a call of one takes is left out. Constants
    come from where those of a model come from, which reads all others before it reads one again:
    our choice, TASO has them in the cache. What cannot be timed costs infinitely much.

    Args:
      times: what was measured before, and where it is kept.
      constants: of the program, in B; by default more than a cache holds.
    """

    @functools.cache
    def cost(
        operator: str,
        attributes: Attributes,
        shapes: tuple[Shapes, ...],
        constant: tuple[bool, ...],
    ) -> float:
        if operator in FREE:
            return 0.0
        program = trace_program(lambda *values: run(operator, attributes, values), *shapes)
        if not program.equations:
            return 0.0
        inputs = [c for c, x in zip(constant, shapes, strict=True) for _ in jax.tree.leaves(x)]
        cold = [number for number, is_constant in enumerate(inputs) if is_constant]
        parts = [tuple(range(len(program.equations)))]
        return times.of(program, parts, cold=cold, between=constants)

    return cost
