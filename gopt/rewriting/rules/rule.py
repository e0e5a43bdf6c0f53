"""A rule: an equality of patterns, and what has to be true where it applies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gopt.rewriting.ir.operators import OPERATORS
from gopt.rewriting.rules.patterns import Apply, names_of, parts


@dataclass(frozen=True)
class Rule:
    """An equality of patterns.

    Attributes:
      name: what it does.
      source: what is looked for, one pattern or two, of different terms of a program.
      target: what is put in the place of each.
      shapes: of terms by name, see `gopt.rewriting.rules.patterns`.
      constant: names of terms that have to be known before the program runs.
      alone: whether operators inside of the pattern must have no other readers, in the program
        that is rewritten. Of a sum that is read anyhow, to add it up in another order is no gain,
        and there may be exponentially many.

    Raises:
      ValueError: there are not one or two patterns, with a target for each, or not one where what
        is inside has to be alone; there is no such operator; or a name of a term, in a
        target or of what is constant, is not in what is looked for.
    """

    name: str
    source: tuple[Apply, ...]
    target: tuple[Any, ...]
    shapes: Mapping[str, str] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    alone: bool = False

    def __post_init__(self) -> None:
        if not len(self.source) == len(self.target) in (1, 2):
            sizes = f"{len(self.source)} patterns and {len(self.target)} targets"
            raise ValueError(f"{self.name!r} has {sizes}: expected one of each, or two")
        if self.alone and len(self.source) > 1:
            raise ValueError(f"{self.name!r} has two patterns: expected one, as of what is alone")
        for pattern in (*self.source, *self.target):
            for operator in {part.operator for part in parts(pattern)} - OPERATORS.keys():
                raise ValueError(f"{self.name!r} has {operator!r}: expected {sorted(OPERATORS)}")
        known = set[str]().union(*map(names_of, self.source))
        for what, names in (
            ("puts", set[str]().union(*map(names_of, self.target))),
            ("has as constant", set(self.constant)),
        ):
            for name in names - known:
                raise ValueError(f"{self.name!r} {what} {name!r}, of {sorted(known)}")


def both(
    name: str,
    left: Apply,
    right: Apply,
    shapes: Mapping[str, str] = MappingProxyType({}),
    *,
    alone: bool = False,
) -> tuple[Rule, Rule]:
    """Returns the rule from left to right, and the one from right to left."""
    return (
        Rule(name, (left,), (right,), shapes, alone=alone),
        Rule(f"{name}, back", (right,), (left,), shapes, alone=alone),
    )
