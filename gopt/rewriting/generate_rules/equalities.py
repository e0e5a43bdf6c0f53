"""Equalities of patterns with general shapes, and their verification."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from gopt.rewriting.generate_rules.domains import FIXED, AxisEqualities, own_letters
from gopt.rewriting.generate_rules.enumeration import Expressions
from gopt.rewriting.ir.terms import Terms
from gopt.rewriting.ir.to_function import evaluate
from gopt.rewriting.rules.generated import rule_of
from gopt.rewriting.rules.patterns import Apply, build
from gopt.rewriting.rules.rule import Rule

# Preferred letters of each axis.
_MATRIX, _IMAGE, _KERNEL = ("m", "kn"), ("b", "", "", "c"), ("", "", "i", "o")
_ELEMENTS = frozenset(("add", "mul", "relu"))


class Equality(NamedTuple):
    """Two patterns that are equal, or are to be verified.

    Attributes:
      sides: the two patterns.
      shapes: shapes of the variables, a letter per axis. The number of channels of an image, or of
        outputs of a kernel, is the letter's size times the groups.
      any_groups: whether convolutions may have any number of groups; otherwise one, unless written.
    """

    sides: tuple[Any, Any]
    shapes: dict[str, tuple[str, ...]]
    any_groups: bool

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules of both directions, as far as they can be stated."""
        shapes = self._spelled()
        return tuple(
            rule_of(one, other, shapes)
            for one, other in (self.sides, self.sides[::-1])
            if isinstance(one, Apply) and names_of(other) <= names_of(one)
        )

    def sample(self, seed: int, dtype: Any = np.float64) -> tuple[Terms, dict[str, Any], list[Any]]:
        """Return terms with random sizes, the bindings of variables and attributes, and arguments.

        Args:
          seed: random seed of sizes, attributes and numbers; sizes of different letters are
            independent.
          dtype: dtype of the arguments; integers take all values, so that they wrap around.
        """
        rng = np.random.default_rng(seed)
        groups = int(rng.integers(1, 4)) if self.any_groups else 1
        bound: dict[str, Any] = {
            "like product": (("dtype", None), ("precision", None)),
            "given precision": None,
            "like conv": _random_conv(rng, groups),
        }
        letters = sorted({x for shape in self.shapes.values() for x in shape} - FIXED)
        # Smaller matrices satisfy additional identities.
        sizes = dict(zip(letters, map(int, rng.permutation(len(letters)) + 3), strict=True))
        sizes |= {x: int(rng.integers(5, 8)) for x in "hw"}  # large enough for dilated kernels
        sizes |= {x: int(rng.integers(1, 4)) for x in "rs"}
        terms, arguments = Terms(), list[Any]()
        for position, (name, shape) in enumerate(self.shapes.items()):
            size = [sizes[x] for x in shape]
            if len(size) == 4:
                size[-1] *= groups
            struct = jax.ShapeDtypeStruct(tuple(size), dtype)
            bound[name] = terms.argument(position, struct, constant=False)
            arguments.append(_random(rng, struct.shape, dtype))
        return terms, bound, arguments

    def holds(self, seed: int) -> bool:
        """Return whether both sides are equal for random shapes, attributes and numbers."""
        with jax.enable_x64(True):
            for dtype in (np.float64, np.int8):
                terms, bound, arguments = self.sample(seed, dtype)
                try:
                    roots = [build(terms, side, bound) for side in self.sides]
                except ValueError:
                    return False
                one, other = map(np.asarray, evaluate(terms, roots, arguments.__getitem__))
                if one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9):
                    return False
        return True

    def _spelled(self) -> dict[str, str]:
        """Return the shapes in the notation of rules.

        Matrix products have leading axes unless something is transposed. Element-wise patterns have
        any axes, the same for all variables.
        """
        operators = {part.operator for part in operators_of(*self.sides)}
        if operators <= _ELEMENTS:
            return dict.fromkeys(self.shapes, "...")
        letters: dict[tuple[str, bool], str] = {}
        found = {}
        for name, shape in self.shapes.items():
            first = _MATRIX if len(shape) == 2 else _KERNEL if shape[0] == "r" else _IMAGE
            axes = list[str]()
            for k, letter in enumerate(shape):
                own = letter, self.any_groups and len(shape) == 4 and k == 3
                free = (x for x in first[k] + "npqdefgjlt" if x not in letters.values())
                letters.setdefault(own, letter if letter in FIXED else next(free))
                axes.append(letters[own])
            leading = ["..."] if len(shape) == 2 and "transpose" not in operators else []
            found[name] = " ".join([*leading, *axes])
        return found


def equality(expressions: Expressions, one: int, other: int, *, any_groups: bool) -> Equality:
    """Return the equality of two expressions for the most general shapes; it is not verified.

    Args:
      expressions: all expressions.
      one: number of an expression.
      other: number of the other expression.
      any_groups: see `Equality`; only used if a convolution leaves its groups open.
    """
    numbers = (one, other)
    trees, letters = [expressions.tree(k) for k in numbers], AxisEqualities()
    if not all(map(letters.same, *(expressions.shape(k, letters) for k in numbers))):
        raise AssertionError("expressions that are the same have different shapes")
    names = expressions.domain.names
    shapes = {
        name: tuple(letters.find(x) for (x,) in own_letters(name, shape))
        for name, shape in names.items()
        if any(name in names_of(tree) for tree in trees)
    }
    open_ = any(part.like == "conv" and not part.attributes for part in operators_of(*trees))
    sides = tuple(_flat(tree, any_groups) for tree in trees)
    return Equality((sides[0], sides[1]), shapes, any_groups and open_)


def restricts_no_shapes(expressions: Expressions, number: int, found: Equality) -> bool:
    """Return whether an equality restricts shapes no more than one of its sides alone.

    Args:
      expressions: all expressions.
      number: number of the expression of that side.
      found: equality.
    """
    alone, names = AxisEqualities(), expressions.domain.names
    expressions.shape(number, alone)
    pairs = {
        (alone.find(x), letter)
        for name in names_of(expressions.tree(number))
        for (x,), letter in zip(own_letters(name, names[name]), found.shapes[name], strict=True)
    }
    return len(pairs) == len({letter for _, letter in pairs})


def names_of(pattern: Any) -> set[str]:
    """Return the variables of a pattern."""
    return {pattern} if isinstance(pattern, str) else pattern.names()


def operators_of(*patterns: Any) -> Iterator[Apply]:
    """Yield all operators of patterns."""
    for pattern in patterns:
        if isinstance(pattern, Apply):
            yield pattern
            yield from operators_of(*pattern.inputs)


def _flat(pattern: Any, any_groups: bool) -> Any:
    """Return a pattern as terms have it: nested concatenations are one."""
    if isinstance(pattern, str):
        return pattern
    inputs = tuple(_flat(each, any_groups) for each in pattern.inputs)
    attributes = pattern.attributes
    if pattern.operator == "concat":
        inputs = tuple(
            each
            for part in inputs
            for each in (part.inputs if _is_like(part, pattern) else (part,))
        )
    elif pattern.operator == "conv" and not (any_groups or attributes):
        attributes = (("groups", 1),)
    return replace(pattern, inputs=inputs, attributes=attributes)


def _is_like(part: Any, pattern: Apply) -> bool:
    return isinstance(part, Apply) and replace(part, inputs=pattern.inputs) == pattern


def _random_conv(rng: np.random.Generator, groups: int) -> tuple[tuple[str, Any], ...]:
    """Return random attributes of a convolution."""
    found = {
        "strides": tuple(map(int, rng.integers(1, 3, 2))),
        "padding": tuple(tuple(map(int, rng.integers(0, 4, 2))) for _ in range(2)),
        "dilation": tuple(map(int, rng.integers(1, 3, 2))),
        "groups": groups,
        "precision": None,
        "dtype": None,
    }
    return tuple(sorted(found.items()))


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    if not np.issubdtype(dtype, np.integer):
        return rng.standard_normal(shape)
    every = np.iinfo(dtype)
    return rng.integers(every.min, every.max, shape, dtype, endpoint=True)
