"""Run steps in order, such as the equations of a program, and free values after their last use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from jax.extend.core import JaxprEqn, Literal, Var

from gopt.program.equations import Atom, variables
from gopt.program.program import Program

Key = TypeVar("Key")
Values = dict[Var, Any]
Evaluate = Callable[[int, JaxprEqn, Values], Iterable[Any]]


class Step(NamedTuple, Generic[Key]):
    """One step of a computation.

    Attributes:
      reads: keys of the values that the step reads.
      makes: keys of the values that the step makes.
      run: function from all live values to the values of `makes`.
    """

    reads: tuple[Key, ...]
    makes: tuple[Key, ...]
    run: Callable[[dict[Key, Any]], Iterable[Any]]


def run_in_order(
    steps: Sequence[Step[Key]], values: dict[Key, Any], outputs: Iterable[Key]
) -> None:
    """Run steps one after another, and free each value after its last use.

    Args:
      steps: steps in execution order.
      values: values that exist before the first step. Results are added and dead values removed, so
        that the values of `outputs` are in it afterwards.
      outputs: keys of values to keep.
    """
    live = set(outputs)
    dead: list[set[Key]] = []
    for step in reversed(steps):
        dead.append({*step.reads, *step.makes} - live)
        live.update(step.reads)
    for step in steps:
        values.update(zip(step.makes, step.run(values), strict=True))
        for key in dead.pop():
            del values[key]


def interpret(
    program: Program,
    args: tuple[Any, ...],
    evaluate: Evaluate,
    *,
    also_read: Mapping[int, Sequence[Var]] | None = None,
) -> Any:
    """Return the result of a program whose equations are evaluated by a given function.

    Args:
      program: program to evaluate.
      args: arguments of the program.
      evaluate: function that returns the results of an equation. It takes the position of the
        equation, the equation, and all live values, which it may replace.
      also_read: variables that `evaluate` reads besides the operands, by position.

    Raises:
      ValueError: the arguments differ from the traced ones in structure, shape or dtype.
    """
    values: Values = dict(zip(program.inputs, program.check_arguments(args), strict=True))
    values |= zip(program.constants, program.values, strict=True)
    more = also_read or {}
    steps = [
        Step(
            (*variables(equation.invars), *more.get(position, ())),
            tuple(equation.outvars),
            partial(evaluate, position, equation),
        )
        for position, equation in enumerate(program.equations)
    ]
    run_in_order(steps, values, variables(program.outputs))
    return program.result([value_of(atom, values) for atom in program.outputs])


def value_of(atom: Atom, values: Mapping[Var, Any]) -> Any:
    """Return the value of a literal or variable."""
    return atom.val if isinstance(atom, Literal) else values[atom]


def operands_of(equation: JaxprEqn, values: Mapping[Var, Any]) -> list[Any]:
    """Return the values of the operands of an equation."""
    return [value_of(atom, values) for atom in equation.invars]
