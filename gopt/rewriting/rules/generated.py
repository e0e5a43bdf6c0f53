"""Generated rules and their file format; see `gopt.rewriting.generate_rules`.

A line holds one rule, or two inverse ones with `=` in place of `->`, and the shapes of the
variables:

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
    """Return the generated rules that do not follow from the handwritten ones."""
    lines = Path(__file__).with_name("generated.txt").read_text().splitlines()
    return tuple(rule for line in lines if line.strip() for rule in read_rules(line))


def spelled(pattern: Any) -> str:
    """Return a pattern as Python text."""
    if isinstance(pattern, str):
        return pattern
    attributes = [f"{name}={value}" for name, value in pattern.attributes]
    return f"{pattern.operator}({', '.join([*map(spelled, pattern.inputs), *attributes])})"


def write_rules(found: Sequence[Rule]) -> str:
    """Return lines for rules made by `rule_of`; two inverse rules share a line."""
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
    """Yield the one or two rules of a line.

    Raises:
      ValueError: the line does not have the format of a rule.
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
    """Return a rule named by its own text.

    A rule with a transpose may swap the sides of a product, so both sides must then have the same
    precision.

    Args:
      source: pattern to find.
      target: pattern to put in its place.
      shapes: shapes of the variables by name.
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
