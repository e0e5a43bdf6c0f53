"""What XLA needs beside operands and results while it runs a kernel."""

from collections import Counter
from collections.abc import Mapping, Sequence

import jax
from jax.extend.core import Var

from gopt.graph.op_costs import num_bytes
from gopt.program.equations import aval_of, variables
from gopt.program.program import Program
from gopt.xla import hlo_cost, hlo_text
from gopt.xla.hlo_text import Instruction, Module
from gopt.xla.labels import kernels_of, shown


def workspaces(program: Program, compiled: jax.stages.Compiled) -> dict[Var, float]:
    """Returns for kernels, by the first result, the bytes that they need only while they run.

    Where XLA takes several steps for one (operands are copied in another layout, gradients of
    convolutions are cut from larger ones), that is the most that their results take together, but
    for that of the last, less what operands have freed that nobody else reads.

    Args:
      program: of kernels.
      compiled: its labelled function, compiled.
    """
    module = hlo_text.parse(compiled.as_text() or "")
    steps: list[list[Instruction]] = [[] for _ in program.equations]
    for instruction, labels in kernels_of(module):
        for label in labels:
            steps[label].append(instruction)
    freed = _freed(program, steps)
    return {
        kernel.outvars[0]: _workspace(module, instructions, freed)
        for kernel, instructions in zip(program.equations, steps, strict=True)
    }


def _freed(program: Program, steps: Sequence[Sequence[Instruction]]) -> dict[str, float]:
    """Returns the bytes of what one kernel alone reads, by the instruction that makes it."""
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
    sizes: list[float] = [sum(map(hlo_cost.size, step.arrays)) for step in steps]
    last = list(range(len(steps)))
    read: dict[str, int] = {}  # operands that nobody else reads, and the last step that does
    for k, step in enumerate(steps):
        for operand in module.entry.operands(step):
            for made in shown(module.entry, operand):
                if made.name in position:
                    last[position[made.name]] = k
                    if step.opcode == "while":  # it runs in the buffers of what it starts from
                        sizes[position[made.name]] = 0
                elif made.name in freed:
                    read[made.name] = k
    used = [
        sum(size for size, until in zip(sizes[: k + 1], last, strict=False) if until >= k)
        - sum(freed[name] for name, until in read.items() if until < k)
        for k in range(len(steps))
    ]
    return float(max(max(used) - sizes[-1], 0))
