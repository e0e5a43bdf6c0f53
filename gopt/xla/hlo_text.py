"""Parse the text of an XLA module: computations, instructions, shapes, attributes.

The text comes from `jax.stages.Lowered.as_text("hlo")` or `jax.stages.Compiled.as_text()`. The
Python bindings are not used, because they give no shapes, attributes or root.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gopt.xla.hlo_shapes import Array, Shape, expect, leaves, read_shape

_HEADER = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*(\(.*->.*)?\{$")
_NAME = re.compile(r"\s*(ROOT\s+)?%?([\w.\-]+)\s*=\s*")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_COMMENT = re.compile(r"/\*index=\d+\*/")
_MARK = re.compile(r'"(?:\\.|[^"\\])*"|[(){}\[\],]')
_ALIAS = re.compile(r"\((\d{1,9}), \{([\d, ]{0,99})\}")
_CALLEES = (
    *("to_apply", "calls", "body", "condition", "select", "scatter"),
    *("true_computation", "false_computation", "branch_computations"),
)
_MAX_DEPTH = 100  # of computations that call others
_MAX_STEPS = 2**22  # instructions, if each call stands for its computation


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Parameters and constants have arguments and no operands.

    Attributes:
      name: name of the instruction.
      line: line of the instruction in the text.
      opcode: XLA's opcode.
      shape: shape of the result.
      arguments: text between the parentheses.
      operands: names of the operands.
      attributes: attributes by name, as text.
    """

    name: str
    line: int
    opcode: str
    shape: Shape
    arguments: str
    operands: tuple[str, ...]
    attributes: dict[str, str]

    @property
    def arrays(self) -> list[Array]:
        """Arrays of the result, with tuples flattened."""
        return leaves(self.shape)

    @property
    def callees(self) -> list[str]:
        """Names of the computations that the instruction calls."""
        found = (self.attributes.get(attribute, "") for attribute in _CALLEES)
        return [name for text in found for name in names(text)]


@dataclass(frozen=True)
class Computation:
    """A list of instructions with a result.

    Attributes:
      instructions: instructions by name, every operand before its users.
      root: instruction of the result.
    """

    instructions: dict[str, Instruction]
    root: Instruction

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """Return the operands of one of the instructions."""
        return [self.instructions[name] for name in instruction.operands]

    def synchronous(self, instruction: Instruction) -> Instruction:
        """Return the start of an asynchronous instruction as the instruction that it starts.

        The shape of a start lists its operands, too; the shape of its end is the result alone.
        Other instructions, and "async-start", which names a computation, keep their opcode.
        """
        shape = self._ends.get(instruction.name)
        if shape is None:
            return instruction
        opcode = instruction.opcode
        if opcode != "async-start":
            opcode = opcode.removesuffix("-start")
        return replace(instruction, opcode=opcode, shape=shape)

    @cached_property
    def _ends(self) -> dict[str, Shape]:
        """Results of asynchronous instructions, by the names of their starts."""
        start: dict[str, str] = {}
        ends: dict[str, Shape] = {}
        for instruction in self.instructions.values():
            if instruction.opcode.endswith(("-update", "-done")) and instruction.operands:
                before = instruction.operands[0]
                start[instruction.name] = start.get(before, before)
                if instruction.opcode.endswith("-done"):
                    ends[start[instruction.name]] = instruction.shape
        return ends


@dataclass(frozen=True)
class Module:
    """A parsed XLA module.

    Attributes:
      computations: computations by name.
      entry: entry computation.
      donated: (parameter, index path into its tuple) pairs of donated buffers.
    """

    computations: dict[str, Computation]
    entry: Computation
    donated: frozenset[tuple[int, tuple[int, ...]]]

    def called(self, instruction: Instruction, attribute: str) -> Computation:
        """Return the computation that an attribute of an instruction names.

        Raises:
          ValueError: the instruction has no such attribute.
        """
        if attribute not in instruction.attributes:
            raise ValueError(f"{instruction.opcode} has no {attribute}")
        return self.computations[instruction.attributes[attribute].lstrip("%")]


def names(text: str) -> list[str]:
    """Return the names in an attribute such as `{%a, %b}` or `%a`."""
    return [name.strip().lstrip("%") for name in text.strip("{}").split(",") if name.strip()]


def parse(text: str) -> Module:
    """Parse the text of an XLA module.

    Raises:
      ValueError: the text is truncated or is not an XLA module; the message names the line.
    """
    computations: dict[str, Computation] = {}
    costs: dict[str, tuple[int, int]] = {}
    donated: set[tuple[int, tuple[int, ...]]] = set()
    entry = None
    lines = enumerate(text.split("\n"), 1)
    for number, line in lines:
        if line.startswith("HloModule "):
            donated = _donated(line, number)
        elif line.rstrip().endswith("{") and (header := _HEADER.match(line.rstrip())):
            if header[2] in computations or (header[1] and entry is not None):
                raise ValueError(f"line {number}: computation {header[2]!r} is a second one")
            computation = _computation(lines, number, computations)
            costs[header[2]] = _cost(computation, costs, number)
            computations[header[2]] = computation
            entry = computation if header[1] else entry
        elif _NAME.match(line):
            raise ValueError(f"line {number}: an instruction outside of any computation")
    if entry is None:
        raise ValueError("the text has no ENTRY computation: expected a whole XLA module")
    count = sum(i.opcode == "parameter" for i in entry.instructions.values())
    if any(parameter >= count for parameter, _ in donated):
        raise ValueError(f"a donated parameter is missing: expected parameters in 0..{count - 1}")
    return Module(computations, entry, frozenset(donated))


def _cost(
    computation: Computation, costs: dict[str, tuple[int, int]], start: int
) -> tuple[int, int]:
    """Return the depth of calls in a computation, and its instructions with those it calls."""
    callees = [name for i in computation.instructions.values() for name in i.callees]
    depth = 1 + max((costs[name][0] for name in callees), default=0)
    steps = len(computation.instructions) + sum(costs[name][1] for name in callees)
    if depth > _MAX_DEPTH or steps > _MAX_STEPS:
        raise ValueError(
            f"line {start}: the computation has {steps} instructions in calls {depth} deep: "
            f"expected {_MAX_STEPS} at most, and {_MAX_DEPTH} deep"
        )
    return depth, steps


def _computation(
    lines: Iterator[tuple[int, str]], start: int, known: dict[str, Computation]
) -> Computation:
    instructions: dict[str, Instruction] = {}
    root = None
    for number, line in lines:
        if line.startswith("}"):
            if root is None:
                raise ValueError(f"line {number}: the computation of line {start} has no ROOT")
            given = sorted(i.arguments for i in instructions.values() if i.opcode == "parameter")
            if given != sorted(map(str, range(len(given)))):
                raise ValueError(
                    f"line {start}: the computation has parameters {given}: expected "
                    f"0..{len(given) - 1}, each once"
                )
            return Computation(instructions, root)
        if not line.strip():
            continue
        instruction, is_root = _instruction(_COMMENT.sub("", line), number)
        for operand in instruction.operands:
            if operand not in instructions:
                raise ValueError(f"line {number}: operand {operand!r} is not defined above")
        for attribute in _CALLEES:
            for callee in names(instruction.attributes.get(attribute, "")):
                if callee not in known:
                    raise ValueError(f"line {number}: {attribute} {callee!r} is not defined above")
        if instruction.name in instructions or (is_root and root is not None):
            raise ValueError(f"line {number}: instruction {instruction.name!r} is a second one")
        instructions[instruction.name] = instruction
        root = instruction if is_root else root
    raise ValueError(f"the text ends inside the computation of line {start}: it is truncated")


def _instruction(line: str, number: int) -> tuple[Instruction, bool]:
    try:
        name = expect(_NAME, line, 0, "a name and =")
        shape, at = read_shape(line, name.end())
        opcode = expect(_OPCODE, line, at, "an opcode and (")
        end = _closing(line, opcode.end())
        attributes = _attributes(_split(line[end + 1 :]))
    except (IndexError, ValueError) as error:
        why = "it ends too early" if isinstance(error, IndexError) else error
        raise ValueError(
            f"line {number} is no instruction, or truncated: {line[:80]!r}: {why}"
        ) from error
    arguments = line[opcode.end() : end]
    literal = opcode[1] in ("parameter", "constant")
    instruction = Instruction(
        name=name[2],
        line=number,
        opcode=opcode[1],
        shape=shape,
        arguments=arguments,
        operands=()
        if literal
        else tuple(part.split()[-1].lstrip("%") for part in _split(arguments)),
        attributes=attributes,
    )
    return instruction, name[1] is not None


def _closing(text: str, at: int) -> int:
    """Return the position of the parenthesis that closes the one open at `at`."""
    depth = 1
    for match in _MARK.finditer(text, at):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth == 0:
            return match.start()
    raise ValueError("a parenthesis is not closed")


def _split(text: str) -> list[str]:
    """Split a text at the commas outside brackets and strings."""
    parts, start, depth = [], 0, 0
    for match in _MARK.finditer(text):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if match[0] == "," and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    if depth != 0:
        raise ValueError("a bracket is not closed")
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _attributes(parts: list[str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in parts)
    return {key: value for key, _, value in pairs if value}


def _donated(header: str, number: int) -> set[tuple[int, tuple[int, ...]]]:
    try:
        attributes = _attributes(_split(header))
        found = attributes.get("input_output_alias", "") + attributes.get("buffer_donor", "")
        return {
            (int(parameter), tuple(int(i) for i in path.split(",") if i.strip()))
            for parameter, path in _ALIAS.findall(found)
        }
    except ValueError as error:
        raise ValueError(f"line {number} is no header, or truncated: {error}") from error
