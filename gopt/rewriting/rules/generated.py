"""Rules that were generated, see `gopt.rewriting.generate_rules`, as they are kept in a file.

A line has one rule, or with `=` in place of `->` two, and the shapes of names:

    matmul(x, add(y, z)) -> add(matmul(x, y), matmul(x, z)) | x: ... m k, y: ... k n, z: ... k n
"""

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gopt.rewriting.rules import patterns
from gopt.rewriting.rules.patterns import Apply, given
from gopt.rewriting.rules.rule import Rule

_PATTERNS: dict[str, Any] = {
    name: getattr(patterns, name)
    for name in ("matmul", "conv", "concat", "add", "mul", "relu", "transpose")
}


@functools.cache
def generated() -> tuple[Rule, ...]:
    """Returns the rules that were generated and that do not follow from those written by hand."""
    lines = Path(__file__).with_name("generated.txt").read_text().splitlines()
    return tuple(rule for line in lines if line.strip() for rule in read_rules(line))


def spelled(pattern: Any) -> str:
    """Returns a pattern as it is written in Python."""
    if isinstance(pattern, str):
        return pattern
    attributes = [f"{name}={value}" for name, value in pattern.attributes]
    return f"{pattern.operator}({', '.join([*map(spelled, pattern.inputs), *attributes])})"


def write_rules(found: Sequence[Rule]) -> str:
    """Returns lines for rules that `rule_of` made, one for two that are inverse to each other."""
    shapes = {rule.name: rule.shapes for rule in found}
    lines = []
    while shapes:
        name = next(iter(shapes))
        letters = ", ".join(f"{x}: {axes}" for x, axes in shapes.pop(name).items())
        source, target = name.split(" -> ")
        is_both = shapes.pop(f"{target} -> {source}", None) is not None
        lines.append(f"{source} {'=' if is_both else '->'} {target} | {letters}\n")
    return "".join(lines)


def read_rules(line: str) -> Iterator[Rule]:
    """Yields the rule of a line, or both.

    Raises:
      ValueError: it is no such line.
    """
    sides, bar, letters = line.partition(" | ")
    arrow = " -> " if " -> " in sides else " = "
    source, is_one, target = sides.partition(arrow)
    if not (bar and is_one):
        raise ValueError(f"{line!r} is no rule: expected 'source -> target | name: shape'")
    shapes = dict(each.split(": ") for each in letters.strip().split(", "))
    left, right = map(_read, (source, target))
    yield rule_of(left, right, shapes)
    if arrow == " = ":
        yield rule_of(right, left, shapes)


def rule_of(source: Apply, target: Any, shapes: Mapping[str, str]) -> Rule:
    """Returns a rule that has its own text as a name.

    Where something is transposed, the sides of a product may be swapped: then they must have the
    same precision.
    """
    name = f"{spelled(source)} -> {spelled(target)}"
    if "transpose" in name:
        source, target = map(_of_one_precision, (source, target))
    return Rule(name, (source,), (target,), shapes)


def _of_one_precision(pattern: Any) -> Any:
    if isinstance(pattern, str):
        return pattern
    inputs = tuple(map(_of_one_precision, pattern.inputs))
    if pattern.operator != "matmul":
        return replace(pattern, inputs=inputs)
    return replace(pattern, inputs=inputs, attributes=(("precision", _ONE),))


def _is_one(precision: Any) -> bool:
    return not isinstance(precision, tuple) or precision[0] == precision[1]


_ONE = given("precision", where=_is_one)


def _read(text: str) -> Any:
    def visit(node: ast.AST) -> Any:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Call(func=ast.Name(id=name), args=inputs, keywords=given) if name in _PATTERNS:
                attributes = {str(each.arg): ast.literal_eval(each.value) for each in given}
                return _PATTERNS[name](*map(visit, inputs), **attributes)
        raise ValueError(f"{text!r} is no pattern of {', '.join(_PATTERNS)}")

    try:
        return visit(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no pattern: {error}") from error
