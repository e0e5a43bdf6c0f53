"""Temporary memory that XLA needs while a kernel runs, besides operands and results."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import jax
from jax.extend.core import Var

from gopt.graph.op_costs import num_bytes
from gopt.graph.tracing import ops_of
from gopt.program.equations import aval_of, variables
from gopt.program.program import Program
from gopt.xla import hlo_cost, hlo_text
from gopt.xla.hlo_text import Computation, Instruction, Module
from gopt.xla.labels import is_view, module_kernels, resolve_views

_RUNS_A_BODY = frozenset(("while", "conditional", "call", "async-start"))
_NO_BUFFERS = frozenset(("parameter", "constant", "after-all"))


def workspaces(program: Program, compiled: jax.stages.Compiled | None) -> dict[Var, float]:
    """Return the workspace of each kernel in bytes, by the kernel's first result.

    XLA may run several steps for one kernel: it copies operands into another layout, or cuts
    gradients of convolutions from larger ones. The workspace is then the largest total of the
    steps' results, without the last result, minus operands freed before that have no other reader.
    The results inside the body of a loop or of a branch count, too, in XLA's order.

    Args:
      program: program of kernels.
      compiled: compiled labelled function of the program; `None` for a machine that is only
        described. A kernel without an XLA instruction has the workspace of its trace.
    """
    ops, equations = ops_of(program)
    found = dict.fromkeys((e.outvars[0] for e in program.equations), 0.0)
    for op, k in zip(ops, equations, strict=True):
        if k >= 0:
            found[program.equations[k].outvars[0]] = op.workspace
    if compiled is None:
        return found
    module = hlo_text.parse(compiled.as_text() or "")
    steps: list[list[Instruction]] = [[] for _ in program.equations]
    for instruction, labels in module_kernels(module):
        for label in labels:
            steps[label].append(instruction)
    freed = _freed(program, steps)
    for kernel, instructions in zip(program.equations, steps, strict=True):
        if instructions:
            made = sum(num_bytes(aval_of(v)) for v in kernel.outvars)
            found[kernel.outvars[0]] = _workspace(module, instructions, freed, made)
    return found


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


def _workspace(
    module: Module, steps: Sequence[Instruction], freed: Mapping[str, float], made: float
) -> float:
    """Return the workspace of a kernel with some steps and so many bytes of results."""
    entry = module.entry
    last = _last_readers(module, entry, steps)
    others = freed.keys() - {step.name for step in steps}
    read: dict[str, int] = {}  # operands without other readers, to the last step that reads them
    for k, step in enumerate(steps):
        read |= {s.name: k for s in _sources(entry, step) if s.name in others}
    sizes = [_own_bytes(module, entry, step) for step in steps]
    used = [
        sum(size for size, until in zip(sizes[: k + 1], last, strict=False) if until >= k)
        - sum(freed[name] for name, until in read.items() if until < k)
        + _inside(module, step)
        for k, step in enumerate(steps)
    ]
    if _is_in_place(module, steps[-1]):
        begins = {source.name for source in _sources(entry, steps[-1])}
        made = min(made, sum(_bytes(step) for step in steps if step.name in begins))
    else:
        made = sizes[-1]
    return float(max(max(used) - made, 0))


def _inside(module: Module, step: Instruction) -> float:
    """Return the bytes inside the bodies that a step runs."""
    if step.opcode not in _RUNS_A_BODY:
        return 0.0
    body = step.attributes.get("body", "").lstrip("%")
    return max(
        (_peak(module, module.computations[n], n == body) for n in step.callees), default=0.0
    )


def _peak(module: Module, body: Computation, is_loop: bool) -> float:
    """Return the most bytes that a body holds at once, besides its arguments and its results.

    A member of a loop's state has one buffer, which holds the old value until its last reader, or
    until the new value is there.
    """
    body = _untupled(body)
    steps = [i for i in body.instructions.values() if not is_view(i)]
    position = {step.name: k for k, step in enumerate(steps)}
    members = body.operands(body.root) if body.root.opcode == "tuple" else [body.root]
    results = [[position[i.name] for i in _origins(body, member)] for member in members]
    is_result = {k for made in results for k in made}
    returned = 0.0
    changes = [0.0] * (len(steps) + 1)
    for k, (step, until) in enumerate(zip(steps, _last_readers(module, body, steps), strict=True)):
        size = _own_bytes(module, body, step)
        if step.opcode not in _NO_BUFFERS:
            changes[k] += size
            changes[len(steps) if k in is_result else until + 1] -= size
            returned += size * (k in is_result)
        elif is_loop and body.root.opcode == "tuple" and "index" in step.attributes:
            made = results[int(step.attributes["index"])]
            if k not in made:  # the loop changes it
                changes[0] += size
                changes[min([until + 1, *made])] -= size
    held = itertools.accumulate(changes)
    inside = (_inside(module, step) for step in steps)
    most = max((now + more for now, more in zip(held, inside, strict=False)), default=0.0)
    return max(most - returned, 0.0)


def _untupled(body: Computation) -> Computation:
    """Return a body in which each member of a tuple among the parameters is a parameter itself."""
    found = {
        name: replace(i, opcode="parameter", operands=())
        for name, i in body.instructions.items()
        if i.opcode == "get-tuple-element" and body.operands(i)[0].opcode == "parameter"
    }
    return Computation({**body.instructions, **found}, found.get(body.root.name, body.root))


def _origins(body: Computation, instruction: Instruction) -> Iterator[Instruction]:
    """Yield what makes the data of an instruction, also through loops, which run in place."""
    operands = body.operands(instruction)
    if instruction.opcode == "get-tuple-element":
        (source,) = operands
        while source.opcode in ("opt-barrier", "while"):
            (source,) = body.operands(source)
        if source.opcode == "tuple":
            source = body.operands(source)[int(instruction.attributes["index"])]
        operands = [source]
    elif not is_view(instruction) and instruction.opcode != "while":
        yield instruction
        return
    for operand in operands:
        yield from _origins(body, operand)


def _last_readers(
    module: Module, computation: Computation, steps: Sequence[Instruction]
) -> list[int]:
    """Return the last step that reads what each step makes, or itself."""
    position = {step.name: k for k, step in enumerate(steps)}
    last = list(range(len(steps)))
    for k in reversed(range(len(steps))):
        until = last[k] if _is_in_place(module, steps[k]) else k
        for source in _sources(computation, steps[k]):
            if source.name in position:
                last[position[source.name]] = max(last[position[source.name]], until)
    return last


def _own_bytes(module: Module, computation: Computation, step: Instruction) -> float:
    """Return the bytes of the buffers that a step's results need."""
    return 0.0 if _is_in_place(module, step) else _bytes(computation.synchronous(step))


def _is_in_place(module: Module, step: Instruction) -> bool:
    """Return whether results are in the operands' buffers: of loops, and of what only ends."""
    if step.opcode == "call":
        return _is_in_place(module, module.called(step, "to_apply").root)
    return step.opcode == "while" or step.opcode.endswith(("-update", "-done"))


def _sources(computation: Computation, step: Instruction) -> Iterator[Instruction]:
    for operand in computation.operands(step):
        yield from resolve_views(computation, operand)


def _bytes(step: Instruction) -> float:
    return sum(map(hlo_cost.array_bytes, step.arrays))
