"""Programs as functions of JAX; what depends on constants alone is computed before."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gopt.program.equations import shape_of
from gopt.program.program import Program
from gopt.rewriting.ir.operators import run
from gopt.rewriting.ir.terms import Term, Terms


class Traced:
    """A program as it was traced; call it like the function.

    Each call computes everything. What depends on constants alone can be computed once:

        folded = written.fold(weights)
        values = jax.jit(written.run)(folded, x)

    Here that is nothing: `folded` has the constants themselves. Derivatives are those of the
    equations, see `gopt.program.program.Program.as_function`.

    Attributes:
      constant: positions of the arguments that are known before.
    """

    def __init__(self, program: Program, constant: Collection[int] = ()):
        """Takes equations, and the positions of the arguments that are known before."""
        self._program = program
        self.constant = frozenset(constant)
        args = enumerate(program.arguments())
        known = [k in self.constant for k, arg in args for _ in jax.tree.leaves(arg)]
        self._constants = [k for k, is_known in enumerate(known) if is_known]

    def fold(self, *args: Any) -> tuple[Any, ...]:
        """Returns what depends on constants alone, as far as the rest reads it.

        Args:
          *args: the arguments that are constant, in order.

        Raises:
          ValueError: the arguments differ from the traced ones in number, structure, shape or
            dtype.
        """
        return self._fold(self._leaves(args, constant=True))

    def run(self, folded: Sequence[Any], *args: Any) -> Any:
        """Returns the value of the function.

        Args:
          folded: what `fold` returns.
          *args: the arguments that are not constant, in order.

        Raises:
          ValueError: `folded` is not what `fold` returns, or the arguments differ from the traced
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
        """Returns the value of the function.

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
        """Returns the shapes of what `fold` returns."""
        return [shape_of(self._program.inputs[k]) for k in self._constants]

    def _leaves(self, args: tuple[Any, ...], *, constant: bool) -> dict[int, Any]:
        """Returns flat arguments by position, given those that are constant or the others."""
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


class Written(Traced):
    """A program that was made of terms, whose constants are computed before.

    Values are those of the function. Its derivatives need not be, for rules of differentiation and
    `stop_gradient` are gone: to differentiate, rewrite the gradient.
    """

    def __init__(
        self, terms: Terms, roots: Sequence[int], program: Program, constant: Collection[int] = ()
    ):
        """Finds what is to be computed.

        Args:
          terms: those of the program, and others.
          roots: its results.
          program: whose arguments and results these are.
          constant: positions of the arguments that are known before.
        """
        super().__init__(program, constant)
        live = terms.live(roots)
        self._terms = {k: terms[k] for k in live}  # without those of other programs
        self._roots = tuple(roots)
        read = {i for k in live if not terms.constant[k] for i in terms.terms[k].inputs}
        read.update(roots)
        self._folded = {k: terms.shapes[k] for k in sorted(read) if terms.constant[k]}

    def _fold(self, leaves: dict[int, Any]) -> tuple[Any, ...]:
        first = len(self._program.inputs)
        leaves = leaves | dict(enumerate(self._program.values, first))
        return tuple(evaluate(self._terms, list(self._folded), leaves.__getitem__, {}))

    def _run(self, folded: Sequence[Any], leaves: dict[int, Any]) -> Any:
        known = dict(zip(self._folded, folded, strict=True))
        results = evaluate(self._terms, self._roots, leaves.__getitem__, known)
        return jax.tree.unflatten(self._program.out_tree, results)

    def _folds(self) -> Sequence[Any]:
        return list(self._folded.values())


def _arrays(shapes: Sequence[Any]) -> str:
    """Returns shapes and dtypes as text."""
    return f"[{', '.join(f'{x.dtype}{list(x.shape)}' for x in shapes)}]"


def evaluate(
    terms: Mapping[int, Term] | Terms,
    roots: Sequence[int],
    argument: Callable[[int], Any],
    known: dict[int, Any],
) -> list[Any]:
    """Returns the values of terms.

    Args:
      terms: by number.
      roots: numbers of those that are wanted.
      argument: returns an argument of the program by its position.
      known: values of terms that are known; those of all others are added.
    """
    needed, stack = set(), list(roots)
    while stack:
        number = stack.pop()
        if number not in needed and number not in known:
            needed.add(number)
            stack.extend(terms[number].inputs)
    for number in sorted(needed):
        operator, attributes, inputs = terms[number]
        if operator == "argument":
            known[number] = jnp.asarray(argument(terms[number].attribute("position")))
        else:
            known[number] = run(operator, attributes, [known[i] for i in inputs])
    return [jnp.asarray(known[root]) for root in roots]
