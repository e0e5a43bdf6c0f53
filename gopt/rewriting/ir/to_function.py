"""Convert programs to JAX functions; values that depend on constants only are folded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from gopt.program.equations import shape_of
from gopt.program.interpret import Step, run_in_order
from gopt.program.program import Program
from gopt.rewriting.ir.operators import run
from gopt.rewriting.ir.terms import Term, Terms


class TracedProgram:
    """A program as it was traced, callable like the function.

    Each call computes everything. The values that depend on constants only can be computed once:

        folded = written.fold(weights)
        values = jax.jit(written.run)(folded, x)

    In this class nothing is computed ahead: `folded` holds the constants themselves. Derivatives
    follow the equations, see `gopt.program.program.Program.as_function`.

    Attributes:
      constant: positions of the constant arguments, whose values are known before the run.
    """

    def __init__(self, program: Program, constant: Collection[int] = ()):
        """Create the function of a program.

        Args:
          program: traced program.
          constant: positions of the constant arguments.
        """
        self._program = program
        self.constant = frozenset(constant)
        args = enumerate(program.arguments())
        known = [k in self.constant for k, arg in args for _ in jax.tree.leaves(arg)]
        self._constants = [k for k, is_known in enumerate(known) if is_known]

    def fold(self, *args: Any) -> tuple[Any, ...]:
        """Return the values that depend on constants only and that the rest of the program reads.

        Args:
          *args: constant arguments, in order.

        Raises:
          ValueError: the arguments differ from the traced ones in number, structure, shape or
            dtype.
        """
        return self._fold(self._leaves(args, constant=True))

    def run(self, folded: Sequence[Any], *args: Any) -> Any:
        """Return the value of the function.

        Args:
          folded: result of `fold`.
          *args: non-constant arguments, in order.

        Raises:
          ValueError: `folded` is not a result of `fold`, or the arguments differ from the traced
            ones in number, structure, shape or dtype.
        """
        leaves, expected = self._leaves(args, constant=False), self._folds()
        folded = jax.tree.leaves(folded)
        found = [jax.typeof(leaf) for leaf in folded]
        if [(x.shape, x.dtype) for x in found] != [(x.shape, x.dtype) for x in expected]:
            raise ValueError(
                f"folded has {_arrays(found)}: expected what fold() returns, {_arrays(expected)}"
            )
        return self._run(folded, leaves)

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function.

        Raises:
          ValueError: the arguments differ from the traced ones in structure, shape or dtype.
        """
        leaves = dict(enumerate(self._program.check_arguments(args)))
        return self._run(self._fold(leaves), leaves)

    def _fold(self, leaves: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(leaves[k] for k in self._constants)

    def _run(self, folded: Sequence[Any], leaves: dict[int, Any]) -> Any:
        leaves = leaves | dict(zip(self._constants, folded, strict=True))
        args = jax.tree.unflatten(self._program.in_tree, [leaves[k] for k in sorted(leaves)])
        return self._program.as_function()(*args)

    def _folds(self) -> Sequence[Any]:
        """Return the shapes of the result of `fold`."""
        return [shape_of(self._program.inputs[k]) for k in self._constants]

    def _leaves(self, args: tuple[Any, ...], *, constant: bool) -> dict[int, Any]:
        """Return the flat constant, or non-constant, arguments by position."""
        shapes = self._program.arguments()
        given = iter(args)
        count = sum((k in self.constant) == constant for k in range(len(shapes)))
        if len(args) != count:
            kind = "constant" if constant else "other"
            raise ValueError(f"there are {len(args)} {kind} arguments: expected {count}")
        both = tuple(
            next(given) if (k in self.constant) == constant else shape
            for k, shape in enumerate(shapes)
        )
        leaves = enumerate(self._program.check_arguments(both))
        return {k: leaf for k, leaf in leaves if (k in self._constants) == constant}


class RewrittenProgram(TracedProgram):
    """A program built from terms, with folded constants.

    Its values equal the function's. Its derivatives may differ, because custom differentiation
    rules and `stop_gradient` are dropped. To differentiate, rewrite the gradient function instead.
    """

    def __init__(
        self, terms: Terms, roots: Sequence[int], program: Program, constant: Collection[int] = ()
    ):
        """Find the terms to compute.

        Args:
          terms: terms of the program, and others.
          roots: results of the program.
          program: program that defines the arguments and results.
          constant: positions of the constant arguments.
        """
        super().__init__(program, constant)
        live = terms.live(roots)
        self._terms = {k: terms[k] for k in live}  # without terms of other programs
        self._roots = tuple(roots)
        read = {i for k in live if not terms.constant[k] for i in terms.terms[k].inputs}
        read.update(roots)
        self._folded = {k: terms.shapes[k] for k in sorted(read) if terms.constant[k]}

    def _fold(self, leaves: dict[int, Any]) -> tuple[Any, ...]:
        first = len(self._program.inputs)
        leaves = leaves | dict(enumerate(self._program.values, first))
        return tuple(evaluate(self._terms, list(self._folded), leaves.__getitem__))

    def _run(self, folded: Sequence[Any], leaves: dict[int, Any]) -> Any:
        known = dict(zip(self._folded, folded, strict=True))
        results = evaluate(self._terms, self._roots, leaves.__getitem__, known)
        return self._program.result(results)

    def _folds(self) -> Sequence[Any]:
        return list(self._folded.values())


def _arrays(shapes: Sequence[Any]) -> str:
    """Return shapes and dtypes as text."""
    return f"[{', '.join(f'{x.dtype}{list(x.shape)}' for x in shapes)}]"


def evaluate(
    terms: Mapping[int, Term] | Terms,
    roots: Sequence[int],
    argument: Callable[[int], Any],
    known: Mapping[int, Any] = MappingProxyType({}),
) -> list[Any]:
    """Return the values of terms.

    Args:
      terms: terms by number.
      roots: numbers of the terms to evaluate.
      argument: function from a position to that argument of the program.
      known: values of terms that are not computed again, by number.
    """
    needed, stack = set(), list(roots)
    while stack:
        number = stack.pop()
        if number not in needed and number not in known:
            needed.add(number)
            stack.extend(terms[number].inputs)

    def value(term: Term, values: dict[int, Any]) -> tuple[Any]:
        if term.operator == "argument":
            return (jnp.asarray(argument(term.attribute("position"))),)
        return (run(term.operator, term.attributes, [values[i] for i in term.inputs]),)

    steps = [Step(terms[k].inputs, (k,), partial(value, terms[k])) for k in sorted(needed)]
    values = dict(known)
    run_in_order(steps, values, roots)
    return [jnp.asarray(values[root]) for root in roots]
