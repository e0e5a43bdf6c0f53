"""Rewrite rules: equalities of patterns, with conditions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from gopt.rewriting.ir.operators import OPERATORS
from gopt.rewriting.rules.patterns import Apply, names_of, parts


@dataclass(frozen=True)
class Rule:
    """An equality of patterns, used from source to target.

    Attributes:
      name: description of the rewrite.
      source: one pattern to find, or two, which match different terms of a program.
      target: replacement of each source pattern.
      shapes: shapes of the variables by name, see `gopt.rewriting.rules.patterns`.
      constant: variables whose values must be known before the program runs.
      alone: whether inner operators of the match must have no other readers in the program. A sum
        that is read anyhow gains nothing from another order, and the orders can be exponentially
        many.

    Raises:
      ValueError: there are not one or two sources with as many targets; a rule with `alone` has two
        sources; an operator is unknown; or a variable of a target or of `constant` is in no source.
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

    @cached_property
    def shared(self) -> frozenset[str]:
        """Variables of all source patterns."""
        return frozenset.intersection(*(frozenset(each.names()) for each in self.source))

    @cached_property
    def is_join(self) -> bool:
        """Whether the rule replaces two terms by slices of one term."""
        targets = [target for target in self.target if isinstance(target, Apply)]
        slices = [target.inputs for target in targets if target.operator == "slice"]
        return len(self.source) == len(slices) == 2 and slices[0] == slices[1]


def both(
    name: str,
    left: Apply,
    right: Apply,
    shapes: Mapping[str, str] = MappingProxyType({}),
    *,
    alone: bool = False,
) -> tuple[Rule, Rule]:
    """Return the rules from left to right and from right to left.

    Args:
      name: name of the first rule; the other one is named `{name}, back`.
      left: one pattern.
      right: an equal pattern.
      shapes: shapes of the variables by name.
      alone: whether inner operators must have no other readers, see `Rule`.
    """
    return (
        Rule(name, (left,), (right,), shapes, alone=alone),
        Rule(f"{name}, back", (right,), (left,), shapes, alone=alone),
    )
