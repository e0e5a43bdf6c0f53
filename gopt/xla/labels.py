"""Label equations so that XLA's instructions can be traced back to them."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.extend.core import JaxprEqn

from gopt.program.equations import run_equation
from gopt.program.interpret import Values, interpret, operands_of
from gopt.program.program import Program
from gopt.xla.hlo_text import Computation, Instruction, Module

_LABEL = re.compile(r"\bgopt(\d+)/")
_VIEWS = frozenset(("bitcast", "get-tuple-element", "tuple", "opt-barrier"))
_NO_KERNELS = frozenset(("parameter", "constant", "after-all"))  # never executed
# Bring values nearer to a core, beside the kernels.
_MOVES = frozenset(("copy-start", "copy-done", "slice-start", "slice-done"))


def labelled(program: Program) -> Callable[..., Any]:
    """Return the function of a program, with each equation labelled by its position."""

    def evaluate(position: int, equation: JaxprEqn, values: Values) -> list[Any]:
        with label(position):
            return run_equation(equation, operands_of(equation, values))

    def function(*args: Any) -> Any:
        return interpret(program, args, evaluate)

    return function


def label(position: int) -> AbstractContextManager[Any]:
    """Return a scope in which instructions have the label of an equation's position."""
    return jax.named_scope(f"gopt{position}")


def label_of(instruction: Instruction) -> int | None:
    """Return the position that an instruction's label names; None without a label."""
    match = _LABEL.search(instruction.attributes.get("metadata", ""))
    return int(match[1]) if match else None


def module_kernels(module: Module) -> list[tuple[Instruction, set[int]]]:
    """Return the kernels of an optimised module in order, each with the labels of its results.

    A fusion without a label on its root has the label of its last labelled equation. Instructions
    that XLA adds, such as layout copies, have the labels of their readers.
    """
    found: dict[str, set[int]] = {}
    read_by: dict[str, set[int]] = {}
    entry = module.entry
    for instruction in reversed(entry.instructions.values()):
        if is_view(instruction):
            continue
        labels = read_by.get(instruction.name, set())
        if not _is_move(instruction):
            labels = _written(module, instruction) or labels
            if instruction.opcode not in _NO_KERNELS:
                found[instruction.name] = labels
        for operand in entry.operands(instruction):
            for source in resolve_views(entry, operand):
                read_by.setdefault(source.name, set()).update(labels)
    return [(entry.instructions[name], found[name]) for name in reversed(found)]


def is_view(instruction: Instruction) -> bool:
    """Return whether an instruction only shows its operands."""
    return instruction.opcode in _VIEWS


def _is_move(instruction: Instruction) -> bool:
    target = instruction.attributes.get("custom_call_target", "")
    return instruction.opcode in _MOVES or "ConcatBitcast" in target


def resolve_views(computation: Computation, instruction: Instruction) -> list[Instruction]:
    """Return the instructions that produce an instruction's data, looking through views.

    Args:
      computation: computation of the instruction.
      instruction: instruction; a non-view returns itself.
    """
    if instruction.opcode == "tuple":
        return [
            i
            for operand in computation.operands(instruction)
            for i in resolve_views(computation, operand)
        ]
    if not is_view(instruction):
        return [instruction]
    (source,) = computation.operands(instruction)
    if instruction.opcode == "get-tuple-element":
        while source.opcode == "opt-barrier":
            (source,) = computation.operands(source)
        if source.opcode == "tuple":
            source = computation.operands(source)[int(instruction.attributes["index"])]
    return resolve_views(computation, source)


def depends_on_parameters(module: Module) -> set[str]:
    """Return the names of the entry instructions that depend on a parameter."""
    found = set[str]()
    for instruction in module.entry.instructions.values():
        if instruction.opcode == "parameter" or not found.isdisjoint(instruction.operands):
            found.add(instruction.name)
    return found


def _written(module: Module, instruction: Instruction) -> set[int]:
    """Return the labels of an instruction's results; empty without labels."""
    labels = {label_of(instruction)}
    if instruction.opcode == "fusion":
        body = module.called(instruction, "calls")
        root = body.root
        results = body.operands(root) if root.opcode == "tuple" else [root]
        labels |= set(map(label_of, results))
        if labels == {None}:
            inside = set(map(label_of, body.instructions.values())) - {None}
            labels = {max((label for label in inside if label is not None), default=None)}
    return {label for label in labels if label is not None}
