"""Parse the text of an XLA module: computations, instructions, shapes, attributes.

The text comes from `jax.stages.Lowered.as_text("hlo")` or `jax.stages.Compiled.as_text()`. The
Python bindings are not used, because they give no shapes, attributes or root.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

_HEADER = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*(\(.*->.*)?\{$")
_NAME = re.compile(r"\s*(ROOT\s+)?%?([\w.\-]+)\s*=\s*")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{[^}]*\})?")
_COMMENT = re.compile(r"/\*index=\d+\*/")
_MARK = re.compile(r'"(?:\\.|[^"\\])*"|[(){}\[\],]')
_ALIAS = re.compile(r"\((\d+), \{([\d, ]*)\}")


@dataclass(frozen=True)
class Array:
    """An array type, such as `f32[2,3]`.

    Attributes:
      dtype: element type, in XLA's notation.
      dims: sizes of the dimensions.
    """

    dtype: str
    dims: tuple[int, ...]


Shape = Array | tuple["Shape", ...]


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Parameters and constants have arguments and no operands.

    Attributes:
      name: name of the instruction.
      opcode: XLA's opcode.
      shape: shape of the result.
      arguments: text between the parentheses.
      operands: names of the operands.
      attributes: attributes by name, as text.
    """

    name: str
    opcode: str
    shape: Shape
    arguments: str
    operands: tuple[str, ...]
    attributes: dict[str, str]

    @property
    def arrays(self) -> list[Array]:
        """Arrays of the result, with tuples flattened."""
        return leaves(self.shape)


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
        """Return the computation that an attribute of an instruction names."""
        return self.computations[instruction.attributes[attribute].lstrip("%")]


def leaves(shape: Shape) -> list[Array]:
    """Return the arrays of a shape, depth first."""
    return (
        [shape] if isinstance(shape, Array) else [leaf for part in shape for leaf in leaves(part)]
    )


def leaf_range(shape: Shape, path: tuple[int, ...]) -> range:
    """Return the indices into `leaves(shape)` of the arrays under an index path.

    Args:
      shape: array or nested tuple.
      path: index at each level of the tuple.

    Raises:
      ValueError: the path goes into an array.
    """
    start = 0
    for index in path:
        if isinstance(shape, Array):
            raise ValueError(f"index path {path} goes into an array")
        start += sum(len(leaves(part)) for part in shape[:index])
        shape = shape[index]
    return range(start, start + len(leaves(shape)))


def names(text: str) -> list[str]:
    """Return the names in an attribute such as `{%a, %b}` or `%a`."""
    return [name.strip().lstrip("%") for name in text.strip("{}").split(",") if name.strip()]


def parse(text: str) -> Module:
    """Parse the text of an XLA module.

    Raises:
      ValueError: the text is truncated or is not an XLA module; the message names the line.
    """
    computations: dict[str, Computation] = {}
    donated: set[tuple[int, tuple[int, ...]]] = set()
    entry = None
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        if line.startswith("HloModule "):
            donated = _donated(line)
        elif header := _HEADER.match(line.rstrip()):
            computation = _computation(lines, number, computations)
            computations[header[2]] = computation
            entry = computation if header[1] else entry
    if entry is None:
        raise ValueError("the text has no ENTRY computation: expected a whole XLA module")
    return Module(computations, entry, frozenset(donated))


def _computation(
    lines: Iterator[tuple[int, str]], start: int, known: dict[str, Computation]
) -> Computation:
    instructions: dict[str, Instruction] = {}
    root = None
    for number, line in lines:
        if line.startswith("}"):
            if root is None:
                raise ValueError(f"line {number}: the computation of line {start} has no ROOT")
            return Computation(instructions, root)
        if not line.strip():
            continue
        instruction, is_root = _instruction(_COMMENT.sub("", line), number)
        for operand in instruction.operands:
            if operand not in instructions:
                raise ValueError(f"line {number}: operand {operand!r} is not defined above")
        for attribute in ("to_apply", "calls", "body", "condition", "select", "scatter"):
            callee = instruction.attributes.get(attribute, "").lstrip("%")
            if callee and callee not in known:
                raise ValueError(f"line {number}: {attribute} {callee!r} is not defined above")
        instructions[instruction.name] = instruction
        root = instruction if is_root else root
    raise ValueError(f"the text ends inside the computation of line {start}: it is truncated")


def _instruction(line: str, number: int) -> tuple[Instruction, bool]:
    try:
        name = _expect(_NAME, line, 0)
        shape, at = _shape(line, name.end())
        opcode = _expect(_OPCODE, line, at)
        end = _closing(line, opcode.end())
        attributes = _attributes(_split(line[end + 1 :]))
    except (IndexError, ValueError) as error:
        raise ValueError(f"line {number} is no instruction, or truncated: {line[:80]!r}") from error
    arguments = line[opcode.end() : end]
    literal = opcode[1] in ("parameter", "constant")
    instruction = Instruction(
        name=name[2],
        opcode=opcode[1],
        shape=shape,
        arguments=arguments,
        operands=()
        if literal
        else tuple(part.split()[-1].lstrip("%") for part in _split(arguments)),
        attributes=attributes,
    )
    return instruction, name[1] is not None


def _expect(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    match = pattern.match(text, at)
    if match is None:
        raise ValueError(f"{pattern.pattern!r} does not match at {at}")
    return match


def _shape(text: str, at: int) -> tuple[Shape, int]:
    if text[at] != "(":
        match = _expect(_ARRAY, text, at)
        dims = tuple(int(d.strip().lstrip("<=")) for d in match[2].split(",") if d.strip())
        return Array(match[1], dims), match.end()
    parts: list[Shape] = []
    at += 1
    while text[at] != ")":
        if text[at] in ", ":
            at += 1
        else:
            part, at = _shape(text, at)
            parts.append(part)
    return tuple(parts), at + 1


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


def _donated(header: str) -> set[tuple[int, tuple[int, ...]]]:
    attributes = _attributes(_split(header))
    found = attributes.get("input_output_alias", "") + attributes.get("buffer_donor", "")
    return {
        (int(parameter), tuple(int(i) for i in path.split(",") if i.strip()))
        for parameter, path in _ALIAS.findall(found)
    }
