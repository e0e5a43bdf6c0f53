"""Functions as decided: one compiled with options, and the same equations for use inside others.

JAX allows compiler options in a top-level `jax.jit` alone. So a decision that needs options has two
forms: the program that is compiled with them and measured, and the plain equations.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.sharding import SingleDeviceSharding

from gopt.program.arguments import is_traced
from gopt.program.program import Program

_Jitted = type(jax.jit(abs))


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
    program: Program,
    *,
    function: Any = None,
) -> Executable:
    """Return equations as an executable.

    Args:
      equations: a function that can be traced.
      options: compiler options.
      program: program that says which arguments are donated.
      function: the equations, jitted with the options; by default they are jitted here.
    """
    options = options or {}
    if function is None:
        function = jit_donating(equations, program, options)
    nested = jit_donating(equations, program) if options else function
    return Executable(function, nested, options)


def own_executable(
    fn: Callable[..., Any],
    options: dict[str, Any],
    program: Program,
    donate_argnums: int | Sequence[int] = (),
    device: jax.Device | None = None,
) -> Executable:
    """Return the function of a user as an executable; without options, as the user jitted it.

    Args:
      fn: the function.
      options: compiler options.
      program: its equations, which say which arguments are donated.
      donate_argnums: positions of the arguments that are donated besides those that `fn` donates.
      device: device of the results; by default the device of the arguments.
    """
    given = [donate_argnums] if isinstance(donate_argnums, int) else list(donate_argnums)
    as_given = isinstance(fn, _Jitted) and not (options or given or device)
    function = fn if as_given else jit_donating(fn, program, options, device)
    return executable(fn, options, program, function=function)


def jit_donating(
    function: Callable[..., Any],
    program: Program,
    options: dict[str, Any] | None = None,
    device: jax.Device | None = None,
) -> Any:
    """Return a function jitted; what a program donates is donated.

    Args:
      function: function of the arguments of the program.
      program: program that says which arguments are donated.
      options: compiler options.
      device: device of the results; by default the device of the arguments.
    """
    jit = partial(
        jax.jit,
        compiler_options=options or None,
        out_shardings=SingleDeviceSharding(device) if device else None,
    )
    donated, arguments = program.donated_arguments, program.arguments()
    if len(jax.tree.leaves([arguments[k] for k in donated])) < sum(program.donated):
        return PartlyDonating(jit, function, program.donated)
    return jit(function, donate_argnums=donated)


def compile_for(device: Any, function: Any, args: Any) -> jax.stages.Compiled:
    """Return a jitted function, compiled.

    Args:
      device: device that is only described; `None` for this machine.
      function: the function.
      args: its arguments, or shapes.
    """
    if device is None:
        return function.lower(*args).compile()
    with warnings.catch_warnings():
        # JAX does not read such programs back from its cache on disk. It compiles them, and warns.
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache")
        return function.lower(*shapes_on(device, args)).compile()


def shapes_on(device: Any, args: Any) -> Any:
    """Return the shapes of arguments, on a device that is only described."""
    where = SingleDeviceSharding(device)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
        return jax.ShapeDtypeStruct(
            aval.shape, aval.dtype, sharding=where, weak_type=aval.weak_type
        )

    return jax.tree.map(shape, args)


class PartlyDonating:
    """A jitted function that donates some leaves of its arguments, and keeps others."""

    def __init__(
        self, jit: Callable[..., Any], function: Callable[..., Any], donated: Sequence[bool]
    ):
        """Take `jax.jit` with options, a function, and which of the last leaves are donated."""
        self._jit, self._function, self._donated = jit, function, tuple(donated)
        self._jitted: dict[Any, Any] = {}  # by the structure of the arguments

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function."""
        function, leaves = self._on_leaves(args)
        return function(*leaves)

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the program, lowered for these arguments, as `jax.jit` does."""
        function, leaves = self._on_leaves(args)
        return function.lower(*leaves)

    def _on_leaves(self, args: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        leaves, structure = jax.tree.flatten(args)
        if structure not in self._jitted:
            first = len(leaves) - len(self._donated)
            self._jitted[structure] = self._jit(
                lambda *leaves: self._function(*jax.tree.unflatten(structure, leaves)),
                donate_argnums=[
                    first + k for k, is_donated in enumerate(self._donated) if is_donated
                ],
            )
        return self._jitted[structure], leaves


class AppliedFunction:
    """A function as decided: call it like the function.

    Arrays run the program that was measured. Inside `jax.jit`, `jax.grad`, `jax.vmap` or a verb of
    gopt, calls trace the same equations, without compiler options and with one warning.
    """

    def __init__(self, executable: Executable, *, name: str):
        """Take an executable that folds nothing, and its name for the warning."""
        self._executable, self._name, self._has_warned = executable, name, False

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function."""
        if not is_traced(args):
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
    found: Executable, constants: Mapping[int, Any], program: Program, *, nested: bool = False
) -> Callable[..., Any]:
    """Return an executable as a function of the arguments that are not constant.

    Args:
      found: an executable. Without `fold` it is called with all arguments, and nothing is computed
        before.
      constants: values of the constant arguments by position.
      program: program that says which arguments are donated.
      nested: whether the equations are always used without compiler options.
    """
    function = found.nested if nested else found.function
    if found.fold is not None:
        return FoldedFunction(function, found.fold(*(constants[k] for k in sorted(constants))))
    return BoundFunction(function, constants, program)


class BoundFunction:
    """A function with constant arguments: call it with the other ones."""

    def __init__(self, function: Any, constants: Mapping[int, Any], program: Program):
        """Take a jitted function of all arguments, some of these by position, and its program."""
        self._function, self._constants = function, dict(constants)
        flags = enumerate(jax.tree.unflatten(program.in_tree, program.donated))
        self._donated = {k for k, donated in flags if any(jax.tree.leaves(donated))}

    def __call__(self, *args: Any) -> Any:
        """Return the value of the function. Of donated constants each call consumes a copy."""
        given = self._all(args)
        for k in self._donated.intersection(self._constants):
            given[k] = jax.tree.map(_copied, given[k])
        return self._function(*given)

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Return the measured program, lowered for these arguments, as `jax.jit` does."""
        return self._function.lower(*self._all(args))

    def _all(self, args: tuple[Any, ...]) -> list[Any]:
        others = iter(args)
        count = len(args) + len(self._constants)
        return [self._constants[k] if k in self._constants else next(others) for k in range(count)]


def _copied(x: Any) -> Any:
    return x.copy() if isinstance(x, jax.Array) else x


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
