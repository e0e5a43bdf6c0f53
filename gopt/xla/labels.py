"""Labels that equations carry through XLA, so that its instructions tell where they come from."""

import re
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Literal, Var

from gopt.program.equations import Atom, run_equation
from gopt.program.program import Program
from gopt.xla.hlo_text import Computation, Instruction, Module

_LABEL = re.compile(r"\bgopt(\d+)/")
_VIEWS = frozenset(("bitcast", "get-tuple-element", "tuple", "opt-barrier"))
_NO_KERNELS = _VIEWS | {"parameter", "constant", "after-all"}  # listed, and never run

Values = dict[Var, Any]
Tie = Callable[[int, JaxprEqn, Values, Values], list[Any]]


def labelled(program: Program, tie: Tie | None = None) -> Callable[..., Any]:
    """Returns the function of a program, each equation under a label with its position.

    Args:
      program: to be evaluated.
      tie: called before an equation with its position, itself, all values so far, and those that
        stand for some of them since they were tied, to which it may add. Returns what the equation
        reads.
    """

    def function(*args: Any) -> Any:
        values: Values = dict(zip(program.inputs, program.check_arguments(args), strict=True))
        values |= zip(program.constants, program.values, strict=True)
        tied: Values = {}
        for position, equation in enumerate(program.equations):
            with jax.named_scope(f"gopt{position}"):
                if tie is None:
                    operands = [read(atom, values) for atom in equation.invars]
                else:
                    operands = tie(position, equation, values, tied)
                results = run_equation(equation, operands)
            values |= zip(equation.outvars, results, strict=True)
        values |= tied
        return jax.tree.unflatten(program.out_tree, [read(a, values) for a in program.outputs])

    return function


def read(atom: Atom, *values: Values) -> Any:
    """Returns the value of a variable in the first of several that have it, or of a literal."""
    if isinstance(atom, Literal):
        return atom.val
    return next(known[atom] for known in values if atom in known)


def label_of(instruction: Instruction) -> int | None:
    """Returns the position that the label of an instruction names, `None` without one."""
    match = _LABEL.search(instruction.attributes.get("metadata", ""))
    return int(match[1]) if match else None


def kernels_of(module: Module) -> list[tuple[Instruction, set[int]]]:
    """Returns what an optimised module runs, in order, with the labels of what it makes.

    A fusion without a label on its root has that of the last equation in it. What XLA adds, such as
    copies in another layout, has the labels of what reads it.
    """
    found: dict[str, set[int]] = {}
    read_by: dict[str, set[int]] = {}
    for instruction in reversed(module.entry.instructions.values()):
        labels = _written(module, instruction) or read_by.get(instruction.name, set())
        if instruction.opcode not in _NO_KERNELS:
            found[instruction.name] = labels
        for operand in instruction.operands:
            passed = read_by.get(instruction.name, set()) if is_view(instruction) else labels
            read_by.setdefault(operand, set()).update(passed)
    return [(module.entry.instructions[name], found[name]) for name in reversed(found)]


def is_view(instruction: Instruction) -> bool:
    """Returns whether an instruction shows its operands and makes nothing."""
    return instruction.opcode in _VIEWS


def shown(computation: Computation, instruction: Instruction) -> list[Instruction]:
    """Returns what has made what a view shows; of what is no view, itself."""
    if instruction.opcode == "tuple":
        return [
            i for operand in computation.operands(instruction) for i in shown(computation, operand)
        ]
    if not is_view(instruction):
        return [instruction]
    (source,) = computation.operands(instruction)
    if instruction.opcode == "get-tuple-element":
        while source.opcode == "opt-barrier":
            (source,) = computation.operands(source)
        if source.opcode == "tuple":
            source = computation.operands(source)[int(instruction.attributes["index"])]
    return shown(computation, source)


def dependent(module: Module) -> set[str]:
    """Returns the names of what an entry computation makes of anything but constants."""
    found = set[str]()
    for instruction in module.entry.instructions.values():
        if instruction.opcode == "parameter" or not found.isdisjoint(instruction.operands):
            found.add(instruction.name)
    return found


def _written(module: Module, instruction: Instruction) -> set[int]:
    """Returns the labels of the results of an instruction; none if it has none."""
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
