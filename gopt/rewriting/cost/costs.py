"""Cost models for single ops, given the operator, its attributes and its inputs.

For each input, the shape is given, and whether its value is known before the program runs, as a
weight's is.
"""

import functools
import math
from collections.abc import Callable

from gopt.cost.hardware import Hardware, op_seconds, unit_rate_devices
from gopt.graph.op_costs import num_bytes
from gopt.graph.tracing import trace
from gopt.measure.kernel_times import KernelTimes
from gopt.program.equations import aval_of
from gopt.program.program import Program, trace_program
from gopt.rewriting.ir.operators import Attributes, Shapes, run

# Operator, attributes, shapes of the inputs, and whether each input is constant, to seconds.
OpCost = Callable[[str, Attributes, tuple[Shapes, ...], tuple[bool, ...]], float]

# Ops that take no time: their readers read the part or the view in place.
FREE = frozenset(("argument", "number", "result", "reshape", "slice"))


def roofline(hardware: Hardware | None = None) -> OpCost:
    """Return a cost model: the roofline of a device, in s.

    Each op counts as its own kernel, so fused ops cost less in reality. All inputs are read from
    memory, constant or not.

    Args:
      hardware: machine whose first device is used; by default one CPU core with 100 Gflop/s, 10
        GB/s and 1 µs per op, our choice.
    """
    if hardware is None:
        hardware = unit_rate_devices(1, flop_rate=1e11, memory_bandwidth=1e10, launch=1e-6)

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
    """Return the bytes of all arrays that a program reads or computes, each counted once."""
    computed = (v for equation in program.equations for v in equation.outvars)
    return sum(num_bytes(aval_of(v)) for v in (*program.inputs, *program.constants, *computed))


def measured(times: KernelTimes, *, bytes_between: float = math.inf) -> OpCost:
    """Return a cost model that compiles and times each op once on this CPU, in s, as TASO does.

    Each op is its own kernel, as in `roofline`; the call overhead is left out. Constants are read
    from memory, as a model's weights are. This is our choice: TASO's ops find them in the cache.
    Computed inputs are in the cache if one holds them. An op that cannot be timed costs infinity.

    Args:
      times: kernel times measured before, and their store.
      bytes_between: bytes read between two reads of a constant, such as the `footprint` of a
        program. If this is small, a cache may hold the constant; 0 gives TASO's times. Constants of
        less than 16 KiB per op are always in the cache.
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
        return times.of(program, parts, cold=cold, bytes_between=bytes_between)

    return cost
