"""Temporary memory that XLA needs while a kernel runs, besides operands and results."""

from collections import Counter
from collections.abc import Mapping, Sequence

import jax
from jax.extend.core import Var

from gopt.graph.op_costs import num_bytes
from gopt.program.equations import aval_of, variables
from gopt.program.program import Program
from gopt.xla import hlo_cost, hlo_text
from gopt.xla.hlo_text import Instruction, Module
from gopt.xla.labels import module_kernels, resolve_views


def workspaces(program: Program, compiled: jax.stages.Compiled) -> dict[Var, float]:
    """Return the workspace of each kernel in bytes, by the kernel's first result.

    XLA may run several steps for one kernel: it copies operands into another layout, or cuts
    gradients of convolutions from larger ones. The workspace is then the largest total of the
    steps' results, without the last result, minus operands freed before that have no other reader.

    Args:
      program: program of kernels.
      compiled: compiled labelled function of the program.
    """
    module = hlo_text.parse(compiled.as_text() or "")
    steps: list[list[Instruction]] = [[] for _ in program.equations]
    for instruction, labels in module_kernels(module):
        for label in labels:
            steps[label].append(instruction)
    freed = _freed(program, steps)
    return {
        kernel.outvars[0]: _workspace(module, instructions, freed)
        for kernel, instructions in zip(program.equations, steps, strict=True)
    }


def _freed(program: Program, steps: Sequence[Sequence[Instruction]]) -> dict[str, float]:
    """Return the bytes of values with a single reader, by the instruction that computes them."""
    readers = Counter(v for e in program.equations for v in set(variables(e.invars)))
    returned = set(variables(program.outputs))
    ends = Counter(instructions[-1].name for instructions in steps if instructions)
    return {
        instructions[-1].name: num_bytes(aval_of(v))
        for kernel, instructions in zip(program.equations, steps, strict=True)
        for v in kernel.outvars[:1]
        if len(kernel.outvars) == 1 and readers[v] == 1 and v not in returned
        if instructions and ends[instructions[-1].name] == 1
    }


def _workspace(module: Module, steps: Sequence[Instruction], freed: Mapping[str, float]) -> float:
    if len(steps) < 2:
        return 0.0
    position = {step.name: k for k, step in enumerate(steps)}
    sizes: list[float] = [sum(map(hlo_cost.array_bytes, step.arrays)) for step in steps]
    last = list(range(len(steps)))
    read: dict[str, int] = {}  # operands without other readers, to the last step that reads them
    for k, step in enumerate(steps):
        for operand in module.entry.operands(step):
            for made in resolve_views(module.entry, operand):
                if made.name in position:
                    last[position[made.name]] = k
                    if step.opcode == "while":  # a loop runs in the buffers of its initial values
                        sizes[position[made.name]] = 0
                elif made.name in freed:
                    read[made.name] = k
    used = [
        sum(size for size, until in zip(sizes[: k + 1], last, strict=False) if until >= k)
        - sum(freed[name] for name, until in read.items() if until < k)
        for k in range(len(steps))
    ]
    return float(max(max(used) - sizes[-1], 0))
