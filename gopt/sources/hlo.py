"""Convert XLA modules, before or after optimisation, to computation graphs.

Ops are the instructions of the entry computation:

- A fusion is one op, with the flop of its instructions.
- A loop or conditional is one op. A loop counts its body once per iteration, a conditional its most
  expensive branch. The peak memory of a body is the op's workspace.
- Calls are inlined.
- Tuples and views (reshape, bitcast) are removed: their consumers read the underlying tensors.
- Scalar constants, broadcasts of scalars, and iotas are removed: their consumers make them on the
  fly. They stay ops where they are outputs.

Parameters are ops of kind "input". Outputs are pinned, and so are parameters, except donated ones.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from gopt.graph.graph import DTYPES, Graph, Op, Output, from_ops
from gopt.xla import hlo_cost, hlo_text
from gopt.xla.hlo_shapes import Array, leaf_range
from gopt.xla.hlo_text import Computation, Instruction, Module

Ref = tuple[int, int]  # (op, output)
Refs = Sequence[Ref | None]  # `None`: consumers make the value on the fly

_TRIPS = re.compile(r"known_trip_count\W+n\W+(\d+)")
_DTYPES = {
    **{"pred": "bool", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16"},
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{"c64": "complex64"},
}


def lowered_graph(lowered: jax.stages.Lowered) -> Graph:
    """Return the graph of a program before optimisation, `jax.jit(f).lower(...)`.

    Raises:
      ValueError: see `hlo_graph`.
    """
    return hlo_graph(lowered.as_text("hlo"))


def compiled_graph(compiled: jax.stages.Compiled) -> Graph:
    """Return the graph of a program after optimisation, `jax.jit(f).lower(...).compile()`.

    Ops are numbered in the order in which XLA runs them.

    Raises:
      ValueError: see `hlo_graph`.
    """
    return hlo_graph(compiled.as_text() or "")


def hlo_graph(text: str) -> Graph:
    """Return the graph of an XLA module in text form.

    Raises:
      ValueError: the text is truncated, malformed or not an XLA module (the message names the
        line), or has no ops.
    """
    module = hlo_text.parse(text)
    position = _Position()
    try:
        builder = _Builder(module, position)
        results = builder.emit(module.entry)
        position.instruction = module.entry.root
        returned = set(builder.materialise(results, module.entry.root.arrays))
    except Exception as error:  # malformed attributes and shapes raise errors of any kind
        at = position.instruction
        where = f"line {at.line}: {at.opcode} {at.name!r} is malformed" if at else "no instructions"
        raise ValueError(f"{where}: {type(error).__name__} {error}") from error
    for op, output in returned:
        outputs = list(builder.ops[op].outputs)
        outputs[output] = dataclasses.replace(outputs[output], pinned=True)
        builder.ops[op] = dataclasses.replace(builder.ops[op], outputs=tuple(outputs))
    return from_ops(builder.ops)


@dataclasses.dataclass
class _Position:
    """The instruction that is converted, for messages."""

    instruction: Instruction | None = None


class _Builder:
    """Appends the ops of computations to `ops`; `emit` returns references to the results."""

    def __init__(self, module: Module, position: _Position):
        self.module = module
        self.position = position
        self.ops: list[Op] = []

    def emit(self, computation: Computation, arguments: Sequence[Refs] | None = None) -> Refs:
        """Append the ops of a computation. Without arguments, its parameters become inputs."""
        values: dict[str, Refs] = {}
        for name, written in computation.instructions.items():
            instruction = computation.synchronous(written)
            self.position.instruction = instruction
            operands = [values[operand] for operand in instruction.operands]
            opcode = instruction.opcode
            if opcode == "parameter":
                number = int(instruction.arguments)
                values[name] = (
                    self._input(instruction, number) if arguments is None else arguments[number]
                )
            elif opcode == "tuple":
                values[name] = [ref for operand in operands for ref in operand]
            elif opcode == "get-tuple-element":
                source = computation.operands(instruction)[0].shape
                index = int(instruction.attributes["index"])
                leaves = leaf_range(source, (index,))
                values[name] = operands[0][leaves.start : leaves.stop]
            elif opcode in hlo_cost.VIEWS or opcode.endswith(("-done", "-update")):
                values[name] = operands[0]
            elif opcode in ("call", "async-start"):
                attribute = "to_apply" if opcode == "call" else "calls"
                values[name] = self.emit(self.module.called(instruction, attribute), operands)
            elif opcode == "while":
                values[name] = self._loop(computation, instruction, operands[0])
            elif opcode == "conditional":
                values[name] = self._conditional(instruction, operands)
            elif hlo_cost.is_scalar_constant(instruction) or opcode == "iota":
                values[name] = [None]
            elif opcode == "broadcast" and self._is_free(computation, instruction, operands[0]):
                values[name] = operands[0]
            else:
                values[name] = self._append(
                    hlo_cost.kind_of(self.module, instruction),
                    operands,
                    instruction.arrays,
                    flops=hlo_cost.flops(self.module, computation, instruction),
                    bytes=hlo_cost.bytes_moved(self.module, computation, instruction),
                )
        return values[computation.root.name]

    def _is_free(self, computation: Computation, broadcast: Instruction, operand: Refs) -> bool:
        """Return whether a broadcast is of a scalar or constant, or only adds unit axes."""
        count = hlo_cost.elements(computation.operands(broadcast)[0].arrays[0])
        return operand[0] is None or count in (1, hlo_cost.elements(broadcast.arrays[0]))

    def materialise(self, results: Refs, arrays: list[Array]) -> Iterator[Ref]:
        """Append an op for each result that is not a tensor of its own; yield the results."""
        for ref, array in zip(results, arrays, strict=True):
            if ref is None or self.ops[ref[0]].outputs[ref[1]].size != hlo_cost.array_bytes(array):
                (ref,) = self._append("broadcast_in_dim", [[ref]], [array])
            yield ref

    def _append(
        self,
        kind: str,
        operands: Sequence[Refs],
        arrays: list[Array],
        *,
        flops: float = 0.0,
        bytes: float | None = None,
        workspace: float = 0.0,
    ) -> list[Ref]:
        inputs = dict.fromkeys(ref for operand in operands for ref in operand if ref is not None)
        outputs = tuple(_output(array, pinned=kind == "constant") for array in arrays)
        if bytes is None:
            read = sum(self.ops[op].outputs[k].size for op, k in inputs)
            bytes = read + sum(output.size for output in outputs)
        self.ops.append(Op(kind, tuple(inputs), outputs, flops, bytes, workspace))
        return [(len(self.ops) - 1, k) for k in range(len(outputs))]

    def _input(self, parameter: Instruction, number: int) -> list[Ref]:
        donated = {
            leaf
            for index, path in self.module.donated
            if index == number
            for leaf in leaf_range(parameter.shape, path)
        }
        outputs = [_output(a, pinned=k not in donated) for k, a in enumerate(parameter.arrays)]
        self.ops.append(Op("input", (), tuple(outputs), bytes=0.0))
        return [(len(self.ops) - 1, k) for k in range(len(outputs))]

    def _called(self, computation: Computation) -> tuple["_Builder", Refs]:
        # Parameters are donated in the entry computation only.
        inner = _Builder(dataclasses.replace(self.module, donated=frozenset()), self.position)
        caller = self.position.instruction
        results = inner.emit(computation)
        self.position.instruction = caller
        return inner, results

    def _loop(self, computation: Computation, loop: Instruction, carry: Refs) -> Refs:
        trips = _trip_count(self.module, computation, loop)
        body, results = self._called(self.module.called(loop, "body"))
        condition, _ = self._called(self.module.called(loop, "condition"))
        # A value that the body returns unchanged is not a new tensor.
        state = next(i for i, op in enumerate(body.ops) if op.kind == "input")
        changed = [k for k, ref in enumerate(results) if ref != (state, k)]
        flops, bytes = trips * (_cost(body.ops) + _cost(condition.ops))
        made = self._append(
            "while",
            [carry],
            [loop.arrays[k] for k in changed],
            flops=flops,
            bytes=bytes,
            workspace=max(_peak(body.ops, results), _peak(condition.ops, [])),
        )
        values = list(carry)
        for k, ref in zip(changed, made, strict=True):
            values[k] = ref
        return values

    def _conditional(self, instruction: Instruction, operands: Sequence[Refs]) -> list[Ref]:
        attributes = instruction.attributes
        names = hlo_text.names(attributes.get("branch_computations", "")) or [
            attributes[branch].lstrip("%") for branch in ("true_computation", "false_computation")
        ]
        branches = [self._called(self.module.computations[name]) for name in names]
        flops, bytes = np.max([_cost(branch.ops) for branch, _ in branches], axis=0)
        return self._append(
            "cond",
            operands,
            instruction.arrays,
            flops=flops,
            bytes=bytes,
            workspace=max(_peak(branch.ops, results) for branch, results in branches),
        )


def _output(array: Array, *, pinned: bool) -> Output:
    dtype = "float8" if array.dtype.startswith("f8") else _DTYPES.get(array.dtype, DTYPES[0])
    return Output(hlo_cost.array_bytes(array), array.dims, dtype, pinned)


def _cost(ops: list[Op]) -> np.ndarray:
    return np.sum([(float(op.flops), float(op.bytes or 0)) for op in ops], axis=0)


def _peak(ops: list[Op], results: Refs) -> float:
    """Return the most bytes that tensors of a computation hold at once, in the order of `ops`.

    Arguments and results are not counted: they belong to the caller.
    """
    last = {ref: i for i, op in enumerate(ops) for ref in op.inputs}
    outside = set(results)
    change = np.zeros(len(ops) + 1)
    for i, op in enumerate(ops):
        for k, output in enumerate(op.outputs):
            if op.kind != "input" and (i, k) not in outside:
                change[i] += output.size
                change[last.get((i, k), i) + 1] -= output.size
    held = np.cumsum(change)[:-1] + [op.workspace for op in ops]
    return float(held.max(initial=0.0))  # type: ignore[call-overload]


def _trip_count(module: Module, computation: Computation, loop: Instruction) -> int:
    """Return the trip count of a loop: as XLA states it, or by the pattern of a JAX scan, else 1.

    The pattern is a counter that starts at a constant, grows by a constant and stays below a
    constant.
    """
    if known := _TRIPS.search(loop.attributes.get("backend_config", "")):
        return int(known[1])
    condition, body = module.called(loop, "condition"), module.called(loop, "body")
    carry, test, state = computation.operands(loop)[0], condition.root, body.root
    if (carry.opcode, test.attributes.get("direction"), state.opcode) != ("tuple", "LT", "tuple"):
        return 1
    counter, limit = condition.operands(test)
    if counter.opcode != "get-tuple-element":
        return 1
    index = int(counter.attributes["index"])
    update = body.operands(state)[index]
    grown = body.operands(update)
    if update.opcode != "add" or grown[0].attributes.get("index") != counter.attributes["index"]:
        return 1
    start, stop = _integer(computation.operands(carry)[index]), _integer(limit)
    step = _integer(grown[1])
    if start is None or stop is None or not step or step < 0:
        return 1
    return max(0, -((start - stop) // step))


def _integer(instruction: Instruction) -> int | None:
    is_number = instruction.opcode == "constant" and instruction.arrays[0].dtype[0] in "su"
    return int(instruction.arguments) if is_number and not instruction.arrays[0].dims else None
