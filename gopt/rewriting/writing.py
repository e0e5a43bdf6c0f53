"""Terms as functions of JAX; what depends on constants alone is computed before."""

from collections.abc import Collection, Sequence
from typing import Any

import jax

from gopt.program import Program
from gopt.rewriting.terms import Terms


class Written:
    """A program that was made of terms; call it like the function that was traced.

    A call computes everything. `fold` and `run` take apart what depends on constants alone:

        folded = written.fold(weights)
        values = jax.jit(written.run)(folded, x)
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
        self._terms, self._roots, self._program = terms, tuple(roots), program
        self._constant = frozenset(constant)
        live = terms.live(roots)
        read = {i for k in live if not terms.constant[k] for i in terms.terms[k].inputs}
        read.update(roots)
        self._folded = sorted(k for k in read if terms.constant[k])

    def fold(self, *args: Any) -> tuple[Any, ...]:
        """Returns what depends on constants alone, as far as the rest reads it.

        Args:
          *args: the arguments that are constant, in order.
        """
        return self._fold(self._leaves(args, constant=True))

    def run(self, folded: Sequence[Any], *args: Any) -> Any:
        """Returns the value of the function.

        Args:
          folded: what `fold` returns.
          *args: the arguments that are not constant, in order.
        """
        return self._run(folded, self._leaves(args, constant=False))

    def __call__(self, *args: Any) -> Any:
        """Returns the value of the function.

        Raises:
          ValueError: the arguments differ from the traced ones in structure, shape or dtype.
        """
        leaves = dict(enumerate(self._program.check_arguments(args)))
        return self._run(self._fold(leaves), leaves)

    def _fold(self, leaves: dict[int, Any]) -> tuple[Any, ...]:
        first = len(self._program.inputs)
        leaves = leaves | dict(enumerate(self._program.values, first))
        return tuple(self._terms.evaluate(self._folded, leaves.__getitem__, {}))

    def _run(self, folded: Sequence[Any], leaves: dict[int, Any]) -> Any:
        known = dict(zip(self._folded, folded, strict=True))
        results = self._terms.evaluate(self._roots, leaves.__getitem__, known)
        return jax.tree.unflatten(self._program.out_tree, results)

    def _leaves(self, args: tuple[Any, ...], *, constant: bool) -> dict[int, Any]:
        """Returns flat arguments by position, given those that are constant or the others."""
        shapes = self._program.arguments()
        given = iter(args)
        count = sum((k in self._constant) == constant for k in range(len(shapes)))
        if len(args) != count:
            kind = "constant" if constant else "other"
            raise ValueError(f"there are {len(args)} {kind} arguments: expected {count}")
        both = tuple(
            next(given) if (k in self._constant) == constant else shape
            for k, shape in enumerate(shapes)
        )
        return dict(enumerate(self._program.check_arguments(both)))
