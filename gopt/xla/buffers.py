"""Convert a program of kernels to a graph of the buffers that XLA allocates.

XLA writes the result of an element-wise kernel over an operand that has no later reader. It writes
the new value of a donated argument over that argument. Two values that share a buffer are one
tensor of the graph. The first producer makes it, and it is held until the last reader of both. The
second value becomes a tensor of size 0, which its readers wait for. All readers of an overwritten
argument run before the overwrite.

No argument is ever freed: XLA keeps the memory of all arguments to the end, donated or not.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jax.extend.core import JaxprEqn, Var

from gopt.graph.graph import Op, Output
from gopt.graph.op_costs import IN_PLACE, num_bytes
from gopt.graph.tracing import TracedGraph, ops_of, traced
from gopt.program.equations import aval_of, body_of, variables
from gopt.program.primitives import DUPLICATED_BY_XLA, ELEMENT_WISE
from gopt.program.program import Program

Tensor = tuple[int, int]  # (op, output)


def kernel_graph(
    program: Program, workspace: Mapping[Var, float], over: Mapping[int, Var]
) -> TracedGraph:
    """Return the graph of a program of kernels.

    Args:
      program: program of kernels, see `gopt.xla.grouping.group`.
      workspace: bytes that each kernel needs only while it runs, by the kernel's first result.
      over: operand that each kernel overwrites, by equation index; see `overwritten`. The graph is
        valid in every order if the operand has no other reader, and otherwise in program order.

    Raises:
      ValueError: the program has no input, no constant and no equation.
    """
    kept = replace(program, donated=(False,) * len(program.inputs))
    ops, equations = _ops(kept, workspace)
    sharing = _Sharing(program, ops, equations)
    sharing.overwrite_arguments()
    sharing.overwrite_operands(over)
    return traced(program, sharing.ops(), equations)


class RepeatableGraph(NamedTuple):
    """Kernels that may run more than once.

    Attributes:
      traced: graph of the kernels. New values of donated arguments overwrite these.
      waits: pairs of ops: the second overwrites an argument that the first reads, and reads nothing
        that the first makes.
      in_place: pairs of a tensor and an op that reads it. Its result takes the place of the tensor
        if no op reads the tensor later.
    """

    traced: TracedGraph
    waits: set[tuple[int, int]]
    in_place: set[tuple[int, int]]


def repeatable_graph(program: Program, workspace: Mapping[Var, float]) -> RepeatableGraph:
    """Return the graph of kernels that may run more than once.

    Args:
      program: program of kernels.
      workspace: bytes that each kernel needs only while it runs, by the kernel's first result.
    """
    kept = replace(program, donated=(False,) * len(program.inputs))
    sharing = _Sharing(program, *_ops(kept, workspace))
    sharing.overwrite_arguments()
    rows = sharing.ops()
    reads = {
        (maker, op)
        for op, row in enumerate(rows)
        for maker, k in row.inputs
        if (maker, k) not in sharing.signals
    }
    graph = traced(program, rows, sharing.equations)
    first = np.searchsorted(graph.graph.producer, np.arange(len(rows)))
    over = _any_overwritten(program)
    in_place = {
        (int(first[maker]) + k, op)
        for op, index in enumerate(sharing.equations)
        for v in over.get(index, ())
        if v in sharing.tensor
        for maker, k in (sharing.tensor[v],)
        if (maker, k) not in sharing.buffer and (op, 0) not in sharing.buffer
    }
    return RepeatableGraph(graph, sharing.waits - reads, in_place)


def unshared_graph(program: Program, workspace: Mapping[Var, float]) -> TracedGraph:
    """Return the graph of kernels that are functions of their own.

    Every result has its own buffer, including returned views. Donated arguments are freed after
    their last reader. The rest is as in `kernel_graph`.

    Args:
      program: program of kernels.
      workspace: bytes that each kernel needs only while it runs, by the kernel's first result.
    """
    returned = set(variables(program.outputs))
    shown = {k for k, e in enumerate(program.equations) if not returned.isdisjoint(e.outvars)}
    return traced(program, *_ops(program, workspace, shown))


def _ops(
    program: Program, workspace: Mapping[Var, float], made: Collection[int] = ()
) -> tuple[list[Op], list[int]]:
    fills = {k for k, e in enumerate(program.equations) if e.primitive.name == "broadcast_in_dim"}
    ops, equations = ops_of(program, made=fills.union(made))
    for op, index in enumerate(equations):
        if index >= 0:
            needed = workspace.get(program.equations[index].outvars[0], ops[op].workspace)
            ops[op] = replace(ops[op], workspace=needed)
    return ops, equations


def overwritten(program: Program, *, alone: bool, held: Collection[Var] = ()) -> dict[int, Var]:
    """Return the operand that each kernel overwrites: one that it is the last to read.

    Excluded are:

    - values that XLA could recompute, if they have several readers: it would recompute them (see
      `gopt.xla.ordered`);
    - arguments: donated ones are handled separately;
    - products that XLA computes in another shape than the reader's.

    Args:
      program: program of kernels, in execution order.
      alone: whether to return only operands with a single reader. The result then holds in every
        order, except for values that barriers hold; see `gopt.xla.ordered.written_over`.
      held: values that barriers hold; other operands are preferred.

    Returns:
      Operand by index of the equation.
    """
    readers = _readers(program)
    found = {}
    for index, over in _any_overwritten(program).items():
        last = [v for v in over if readers[v][-1] == index]
        single = [v for v in last if len(readers[v]) == 1]
        free = [v for v in single if v not in held]
        if (best := [*free, *single, *last]) and (not alone or best[0] in single):
            found[index] = best[0]
    return found


def _any_overwritten(program: Program) -> dict[int, list[Var]]:
    """Return the operands that a kernel may overwrite if it is the last to read them."""
    readers = _readers(program)
    returned = set(variables(program.outputs))
    dear = {v for kernel in program.equations if not _is_cloned(kernel) for v in kernel.outvars}
    shaped = [kernel for kernel in program.equations if not _is_flattened(kernel)]
    made = {v for kernel in shaped for v in kernel.outvars} - returned
    return {
        index: [
            v for v in _overwritable(kernel) if v in made and (len(readers[v]) == 1 or v in dear)
        ]
        for index, kernel in enumerate(program.equations)
    }


def _readers(program: Program) -> dict[Var, list[int]]:
    """Return the kernels that read each variable, in order."""
    readers: dict[Var, list[int]] = {}
    for index, kernel in enumerate(program.equations):
        for v in dict.fromkeys(variables(kernel.invars)):
            readers.setdefault(v, []).append(index)
    return readers


def _is_cloned(kernel: JaxprEqn) -> bool:
    return _root(kernel).primitive.name in DUPLICATED_BY_XLA


def _is_flattened(kernel: JaxprEqn) -> bool:
    """Return whether XLA merges dimensions of the result, and shows readers a view of it.

    That happens to products with an operand that has several free dimensions.
    """
    root = _root(kernel)
    if root.primitive.name != "dot_general":
        return False
    pairs = zip(*root.params["dimension_numbers"], strict=True)  # contracted and batch, by operand
    own = [
        aval_of(operand).ndim - len(contracted) - len(batch)
        for operand, (contracted, batch) in zip(root.invars, pairs, strict=True)
    ]
    return max(own) > 1


def _root(kernel: JaxprEqn) -> JaxprEqn:
    return body_of(kernel).jaxpr.eqns[-1] if kernel.primitive.name == "jit" else kernel


class _Sharing:
    """Assignment of tensors to the buffers of other tensors."""

    def __init__(self, program: Program, ops: list[Op], equations: list[int]):
        self.program, self._ops, self.equations = program, ops, equations
        self.first = len(ops) - sum(index >= 0 for index in equations)  # first non-argument op
        self.kernels = [program.equations[index] for index in equations[self.first :]]
        sources = (*program.inputs, *program.constants)
        self.tensor: dict[Var, Tensor] = {v: (op, 0) for op, v in enumerate(sources)}
        for op, equation in enumerate(self.kernels, self.first):
            self.tensor |= {v: (op, k) for k, v in enumerate(equation.outvars)}
        self.readers = defaultdict[Tensor, list[int]](list)
        for op, row in enumerate(ops):
            for tensor in row.inputs:
                self.readers[tensor].append(op)
        self.buffer: dict[Tensor, Tensor] = {}  # tensor without its own buffer to its buffer
        self.waits = set[tuple[int, int]]()  # (earlier op, later op)
        self.signals = set[Tensor]()  # tensors without bytes that waits are made of

    def overwrite_arguments(self) -> None:
        """Put the new value of a donated argument into its buffer, if that needs no copy.

        An intermediate value may also take the buffer first, and is then overwritten by the new
        value.
        """
        for source, made in _replacements(self.program):
            result = self.tensor.get(made)
            if result is None or result[0] < self.first or not self._overwrite(source, result):
                continue
            for v in _overwritable(self.kernels[result[0] - self.first]):
                between = self.tensor.get(v)
                if (
                    between
                    and between[0] in self.readers[self.tensor[source]]
                    and self.readers[between] == [result[0]]
                    and not self._output(between).pinned
                    and self._overwrite(source, between)
                ):
                    break

    def _overwrite(self, source: Var, result: Tensor) -> bool:
        """Put a result into the buffer of an argument if all readers come first; return whether."""
        argument, writer = self.tensor[source], result[0]
        readers = self.readers[argument]
        in_place = source in _overwritable(self.kernels[writer - self.first])
        if not all(op < writer or (op == writer and in_place) for op in readers):
            return False
        self.buffer[result] = argument
        self.waits |= {(op, writer) for op in readers if op != writer}
        return True

    def overwrite_operands(self, over: Mapping[int, Var]) -> None:
        """Put the results of kernels into the buffers of their operands."""
        for op, index in enumerate(self.equations):
            operand = over.get(index)
            # A view has no buffer of its own.
            if operand in self.tensor and (op, 0) not in self.buffer:
                tensor = self.tensor[operand]
                self.buffer[op, 0] = self.buffer.get(tensor, tensor)

    def ops(self) -> list[Op]:
        """Return the ops, with tensors as buffers."""
        pinned = {self.buffer[t] for t in self.buffer if self._output(t).pinned}
        rows = []
        for op, row in enumerate(self._ops):
            outputs = [
                replace(
                    output,
                    size=0.0 if (op, k) in self.buffer else output.size,
                    pinned=output.pinned or (op, k) in pinned,
                )
                for k, output in enumerate(row.outputs)
            ]
            held = [self.buffer[t] for t in row.inputs if t in self.buffer]
            rows.append((row, outputs, list(dict.fromkeys((*row.inputs, *held)))))
        for before, after in sorted(self.waits):
            _, outputs, _ = rows[before]
            self.signals.add((before, len(outputs)))
            rows[after][2].append((before, len(outputs)))
            outputs.append(Output(0.0))
        return [
            replace(row, inputs=tuple(inputs), outputs=tuple(outputs))
            for row, outputs, inputs in rows
        ]

    def _output(self, tensor: Tensor) -> Output:
        return self._ops[tensor[0]].outputs[tensor[1]]


def _replacements(program: Program) -> Iterator[tuple[Var, Var]]:
    """Yield donated arguments with the outputs that JAX pairs them with, in order by type.

    Unread arguments, and outputs that no equation computes, are left out.
    """
    read = {v for equation in program.equations for v in variables(equation.invars)}
    made = {v for equation in program.equations for v in equation.outvars}
    waiting = defaultdict[Hashable, deque[Var]](deque)
    for v, donated in zip(program.inputs, program.donated, strict=True):
        if donated and v in read:
            waiting[_type(v)].append(v)
    for v in dict.fromkeys(variables(program.outputs)):
        if v in made and waiting[_type(v)]:
            yield waiting[_type(v)].popleft(), v


def _type(v: Var) -> Hashable:
    return aval_of(v).shape, aval_of(v).dtype


def _overwritable(kernel: JaxprEqn) -> list[Var]:
    """Return the operands of a kernel whose buffer its result may take."""
    if len(kernel.outvars) != 1:
        return []
    result = aval_of(kernel.outvars[0])
    found = []
    for v in dict.fromkeys(variables(kernel.invars)):
        read = aval_of(v)
        fits = read.shape == result.shape and num_bytes(read) == num_bytes(result)
        if fits and _only_in_place(kernel, v):
            found.append(v)
    return found


def _only_in_place(kernel: JaxprEqn, operand: Var) -> bool:
    """Return whether each element of an operand is read only for the same element of the result."""
    if kernel.primitive.name != "jit":
        return _is_in_place(kernel, {operand})
    body = body_of(kernel).jaxpr
    inner = body.invars[list(kernel.invars).index(operand)]
    shown = {inner}
    for equation in body.eqns:
        if not shown.isdisjoint(variables(equation.invars)):
            if not _is_in_place(equation, shown):
                return False
            shown.update(equation.outvars)
    return body.outvars[0] in shown


def _is_in_place(equation: JaxprEqn, operands: set[Var]) -> bool:
    name = equation.primitive.name
    if name in IN_PLACE:
        return operands.isdisjoint(variables(equation.invars[1:]))
    return name in ELEMENT_WISE
