"""What terms cost: functions of an operator, its attributes, and what it reads.

That is the shape of each, and whether it is known before the program runs, as weights are.
"""

import functools
import math
from collections.abc import Callable

from gopt.cost.hardware import Hardware, homogeneous, op_seconds
from gopt.graph.op_costs import num_bytes
from gopt.graph.tracing import trace
from gopt.measure.kernel_times import KernelTimes
from gopt.program.equations import aval_of
from gopt.program.program import Program, trace_program
from gopt.rewriting.ir.operators import Attributes, Shapes, run

# Of an operator, its attributes, the shapes of its inputs, and whether each of these is constant.
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
    def cost(operator: str, attributes: Attributes, shapes: tuple[Shapes, ...]) -> float:
        if operator in FREE:
            return 0.0
        graph = trace(lambda *values: run(operator, attributes, values), *shapes).graph
        seconds = op_seconds(graph.flops, graph.bytes, hardware)[:, 0]
        work = (graph.flops > 0) | (graph.bytes > 0)
        return float(seconds[work].sum())

    return lambda operator, attributes, shapes, _: cost(operator, attributes, shapes)


def footprint(program: Program) -> float:
    """Returns the bytes of all that a program reads and computes, each once."""
    computed = (v for equation in program.equations for v in equation.outvars)
    return sum(num_bytes(aval_of(v)) for v in (*program.inputs, *program.constants, *computed))


def measured(times: KernelTimes, *, between: float = math.inf) -> OpCost:
    """Returns costs as this CPU has them, in s: each op is compiled and timed once, as TASO has it.

    An op is a kernel of its own, as in `roofline`; what a call of one takes is left out. Its
    constants are read from memory, as those of a model are: our choice, as TASO's ops find them in
    the cache. What is computed is in the cache if one holds it. What cannot be timed costs
    infinitely much.

    Args:
      times: what was measured before, and where it is kept.
      between: bytes that are read from one read of a constant to the next, as the `footprint` of a
        program, which a cache may hold if it is small; 0 for TASO's times. Constants of less than
        16 KiB, of an op together, are in the cache in any case.
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
        parts = [tuple(range(len(program.equations)))]
        cold = [number for number, is_constant in enumerate(constant) if is_constant]
        return times.of(program, parts, cold=cold, between=between)

    return cost
