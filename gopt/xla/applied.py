"""Functions as decided: one compiled with options, and the same equations for use inside others.

JAX allows compiler options in a top-level `jax.jit` alone. So a decision that needs options has two
forms: the program that is compiled with them and measured, and the plain equations.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core.primitives import convert_element_type_p

from gopt.program.equations import aval_of
from gopt.program.program import Program


class Executable(NamedTuple):
    """A function as decided, ready to be called.

    Attributes:
      function: jitted with the options, as it is measured.
      nested: the same equations jitted without options, to be called with tracers.
      options: compiler options of `function`.
      fold: maps constant arguments to folded constants, which then are the first argument of
        `function`; `None` if nothing is folded.
    """

    function: Any
    nested: Any
    options: dict[str, Any]
    fold: Callable[..., Any] | None = None


def executable(
    equations: Callable[..., Any],
    options: dict[str, Any] | None,
    *,
    donate_argnums: int | Sequence[int] = (),
    function: Any = None,
) -> Executable:
    """Return equations as an executable.

    Args:
      equations: a function that can be traced.
      options: compiler options.
      donate_argnums: positions of the arguments whose buffers may be reused.
      function: the equations, jitted with the options; by default they are jitted here.
    """
    options = options or {}
    if function is None:
        function = jax.jit(equations, donate_argnums=donate_argnums, compiler_options=options)
    return Executable(function, jax.jit(equations) if options else function, options)


class AppliedFunction:
    """A function as decided: call it like the function.

    Arrays run the program that was measured. Tracers (inside `jax.jit`, `jax.grad`, `jax.vmap` or
    a verb of gopt) trace the same equations, without compiler options and with one warning.
    """

    def __init__(self, executable: Executable, *, name: str):
        """Take an executable that folds nothing, and its name for the warning."""
        self._executable, self._name, self._has_warned = executable, name, False

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function."""
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return self._executable.function(*args)
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self._name} is traced inside another function: its equations are used without "
                f"the compiler options {', '.join(self._executable.options)}, and memory and time "
                "may differ from what was measured; apply(nested=True) says that this is meant",
                stacklevel=2,
            )
        return self._executable.nested(*args)

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the measured program, lowered for these arguments, as `jax.jit` does."""
        return self._executable.function.lower(*args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"


def apply_executable(found: Executable, *, name: str, nested: bool = False) -> Callable[..., Any]:
    """Return an executable that folds nothing as a function to be called.

    Args:
      found: an executable.
      name: for the warning where tracers lose compiler options.
      nested: whether the equations are always used without compiler options.
    """
    if nested:
        return found.nested
    return AppliedFunction(found, name=name) if found.options else found.function


def fold_constants(
    found: Executable, constants: Mapping[int, Any], *, nested: bool = False
) -> Callable[..., Any]:
    """Return an executable as a function of the arguments that are not constant.

    Args:
      found: an executable. Without `fold` it is called with all arguments, and nothing is computed
        before.
      constants: values of the constant arguments by position.
      nested: whether the equations are always used without compiler options.
    """
    function = found.nested if nested else found.function
    if found.fold is not None:
        return FoldedFunction(function, found.fold(*(constants[k] for k in sorted(constants))))
    return BoundFunction(function, constants)


class BoundFunction:
    """A function with constant arguments: call it with the other ones."""

    def __init__(self, function: Any, constants: Mapping[int, Any]):
        """Take a jitted function of all arguments, and some of these by position."""
        self._function, self._constants = function, dict(constants)

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function."""
        return self._function(*self._all(args))

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the measured program, lowered for these arguments, as `jax.jit` does."""
        return self._function.lower(*self._all(args))

    def _all(self, args: tuple[Any, ...]) -> list[Any]:
        others = iter(args)
        count = len(args) + len(self._constants)
        return [self._constants[k] if k in self._constants else next(others) for k in range(count)]


class FoldedFunction:
    """A function with folded constants: call it with the other arguments.

    Attributes:
      folded: arrays that depend on constants alone, computed once.
    """

    def __init__(self, function: Any, folded: Any):
        """Take a jitted function of the folded constants and the other arguments."""
        self._function, self.folded = function, folded

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function."""
        return self._function(self.folded, *args)

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the measured program, lowered for these arguments, as `jax.jit` does."""
        return self._function.lower(self.folded, *args)


def with_weak_types(function: Callable[..., Any], program: Program) -> Callable[..., Any]:
    """Return a function whose results are weakly typed where the program's results are.

    Args:
      function: function with the results of the program, with the same shapes and dtypes.
      program: program as it was traced.
    """
    weak = [aval_of(atom).weak_type for atom in program.outputs]

    def convert(value: Any, is_weak: bool) -> Any:
        if jax.typeof(value).weak_type == is_weak:
            return value
        return convert_element_type_p.bind(
            value, new_dtype=value.dtype, weak_type=is_weak, sharding=None
        )

    def converted(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(function(*args))
        return jax.tree.unflatten(tree, list(map(convert, leaves, weak)))

    return converted
