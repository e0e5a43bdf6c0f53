"""Compare a function and equal programs by their values on given and drawn arguments.

Given arguments come first. Drawn ones show differences that given ones hide, such as zeros. A loop
may run for ever on drawn arguments, so a program with a `while` loop runs on them in a process of
its own, see `gopt.measure.drawn_values`. If it has no values there, or Ctrl-C ends the comparison,
given arguments alone decide.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from gopt.host.progress import Progress
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
    progress: Progress | None = None,
) -> Compared:
    """Return the values of functions on the given arguments, and on drawn ones.

    Args:
      functions: functions of the arguments, by name.
      args: arguments of the function, or shapes.
      program: equations of the function.
      seed: seed of the drawn arguments.
      progress: ends the comparison on drawn arguments at Ctrl-C, unless shapes are given.

    Raises:
      ValueError: shapes are given, and the function has no values on drawn arguments.
    """
    draws = [_drawn(args, program, seed + k) for k in range(DRAWS)]
    given = _given(args, draws[0])
    has_shapes = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(args))
    each = list(functions.values())

    def on_draws() -> list[Values]:
        return values_apart(each, program, draws) if is_apart else _values(each, draws)

    is_apart = may_not_end(program.equations)
    if has_shapes:
        try:
            found = on_draws()
        except DrawnArgumentsError as error:
            raise ValueError(f"shapes are given: expected arrays; {error}") from error
        return Compared(given, dict(zip(functions, found, strict=True)), "")
    found, note = _values(each, [given]), "it was interrupted"
    progress = progress or Progress()
    with progress.interruptible():
        try:
            if not progress.is_interrupted:
                found = [a + b for a, b in zip(found, on_draws(), strict=True)]
                note = ""
        except DrawnArgumentsError as error:
            note = str(error)
    note = note and f"values were compared on the given arguments alone: {note}"
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
