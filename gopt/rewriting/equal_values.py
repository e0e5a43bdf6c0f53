"""Compare a function and equal programs by their values on given and drawn arguments.

Given arguments come first. Drawn ones show differences that given ones hide, such as zeros. A loop
may run for ever on drawn arguments, so a program with a `while` loop runs on them in a process of
its own, see `gopt.measure.drawn_values`. If it has no values there, given arguments alone decide.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from gopt.measure.drawn_values import DrawnArgumentsError, values_apart
from gopt.measure.equality import arguments_near, random_arguments
from gopt.program.equations import may_not_end
from gopt.program.program import Program

DRAWS = 2

Values = list[list[Any]]  # flat results on each of several arguments


class Compared(NamedTuple):
    """Values of a function and of equal programs on the same arguments.

    Attributes:
      given: the arguments on the device, with drawn arrays in place of shapes.
      values: of each function by its name, flat results on several arguments.
      note: reason why values on drawn arguments are missing; empty if they are not.
    """

    given: tuple[Any, ...]
    values: dict[str, Values]
    note: str


def compare(
    functions: Mapping[str, Callable[..., Any]],
    args: tuple[Any, ...],
    program: Program,
    seed: int,
) -> Compared:
    """Return the values of functions on the given arguments, and on drawn ones.

    Args:
      functions: functions of the arguments, by name.
      args: arguments of the function, or shapes.
      program: equations of the function.
      seed: seed of the drawn arguments.

    Raises:
      ValueError: shapes are given, and the function has no values on drawn arguments.
    """
    draws = [_drawn(args, program, seed + k) for k in range(DRAWS)]
    given = _given(args, draws[0])
    has_shapes = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(args))
    each = list(functions.values())
    found = [] if has_shapes else _values(each, [given])
    note = ""
    try:
        if may_not_end(program.equations):
            drawn = values_apart(each, program, draws)
        else:
            drawn = _values(each, draws)
        found = [a + b for a, b in zip(found or [[] for _ in each], drawn, strict=True)]
    except DrawnArgumentsError as error:
        if has_shapes:
            raise ValueError(f"shapes are given: expected arrays; {error}") from error
        note = f"values were compared on the given arguments alone: {error}"
    return Compared(given, dict(zip(functions, found, strict=True)), note)


def _values(
    functions: Sequence[Callable[..., Any]], draws: Sequence[tuple[Any, ...]]
) -> list[Values]:
    """Return the flat results of functions on several arguments."""
    jitted = map(jax.jit, functions)
    return [[jax.tree.leaves(function(*drawn)) for drawn in draws] for function in jitted]


def _drawn(args: tuple[Any, ...], program: Program, seed: int) -> tuple[Any, ...]:
    """Return drawn arguments; integers are near the given ones."""
    return arguments_near(args, random_arguments(program.arguments(), seed), seed)


def _given(args: tuple[Any, ...], drawn: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments on the device; drawn arrays replace shapes.

    NumPy's arrays would be copied there in each call that takes them, but folded ones would not.
    """
    shapes = jax.ShapeDtypeStruct
    return jax.tree.map(
        lambda arg, number: number if isinstance(arg, shapes) else jax.device_put(arg), args, drawn
    )
