"""Check arguments, positions of arguments, and objects that a function changes."""

import difflib
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

P = ParamSpec("P")
R = TypeVar("R")

_BIND = "bind static arguments with functools.partial(fn, name=value)"
_NEEDS_VALUES = (
    *("static_argnums", "Non-hashable static arguments"),
    *("static start/stop/step", "must be static integers"),
)
_STATIC = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def keywords_are_options(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb: an unknown keyword is refused in words that say how to bind it."""
    names = inspect.signature(verb).parameters

    @functools.wraps(verb)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in names:
                near = difflib.get_close_matches(name, list(names)[2:], 1)
                hint = f"expected {near[0]!r}, or " if near else ""
                if name == "donate_argnums":
                    hint = "expected a function that jax.jit was given them for; or "
                raise TypeError(
                    f"gopt.{verb.__name__} has no option {name!r}: {hint}bind keyword arguments of "
                    f"the function with functools.partial(fn, {name}=...)"
                )
        return verb(*args, **options)

    return checked


def positions(name: str, given: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return positions of arguments, sorted.

    Args:
      name: name of the option, for the error message.
      given: one position or several.
      count: number of arguments.

    Raises:
      ValueError: an entry is not the position of an argument.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Integral | Iterable):
        raise ValueError(f"{name} is {given!r}: expected positions of arguments")
    entries: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    for entry in entries:
        if not _is_whole(entry) or int(entry) not in range(count):
            raise ValueError(f"{name} has {entry!r}, expected 0..{count - 1}")
    return tuple(sorted(set(map(int, entries))))


def check_whole_numbers(least: int, **options: Any) -> None:
    """Check that options are whole numbers of 64 bits, and at least `least`.

    Raises:
      ValueError: an option is something else; the message names the first one.
    """
    for name, value in options.items():
        if not _is_whole(value) or int(value) < least:
            raise ValueError(f"{name} is {value!r}: expected a whole number, {least} at least")
        if int(value) >= 2**63:
            raise ValueError(f"{name} is {value!r}: expected less than 2**63")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def to_jaxpr(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[ClosedJaxpr, Any, "Objects"]:
    """Trace a function.

    Args:
      fn: function of pytrees of arrays.
      args: arrays, Python scalars or `jax.ShapeDtypeStruct`s, in any pytrees.

    Returns:
      The jaxpr, whose last outputs are the leaves of objects after the call; the structure of the
      result; and the objects among the arguments.

    Raises:
      ValueError: a leaf of an argument is not an array, a shape is symbolic or negative, a dtype is
        unknown to JAX, a Python number is too large, or the function needs the value of an
        argument. The message names it.
    """
    for path, x in jax.tree.leaves_with_path(args):
        if _is_foreign(getattr(x, "dtype", None)):
            raise ValueError(f"{_name(path)} has dtype {x.dtype}: expected a dtype of JAX")
        if not all(isinstance(size, Integral) and int(size) >= 0 for size in np.shape(x)):
            raise ValueError(f"{_name(path)} has shape {np.shape(x)}: expected numbers, 0 or more")
    found: list[Objects] = []

    @functools.wraps(fn, updated=())  # JAX names the function in its messages
    def watched(*args: Any) -> Any:
        objects = Objects.of(args)
        found.append(objects)
        return fn(*args), objects.leaves()

    try:
        closed, (shapes, _) = jax.make_jaxpr(watched, return_shape=True)(*args)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        _check_leaves(args, error)
        if "`compiler_options`" in str(error):
            raise ValueError(
                "fn is jitted with compiler_options: expected a function without its own"
            ) from error
        if isinstance(error, _STATIC) or any(words in str(error) for words in _NEEDS_VALUES):
            first = str(error).splitlines()[0]
            raise ValueError(f"fn needs the value of an argument: {_BIND} ({first})") from error
        raise
    return closed, jax.tree.structure(shapes), found[-1]


def is_traced(args: tuple[Any, ...]) -> bool:
    """Return whether a call with these arguments is traced as part of an outer function.

    Without tracers among the arguments, as for captured arrays, JAX traces a call in `jax.jit` all
    the same: then each new array is a tracer.
    """
    leaves = jax.tree.leaves(args)
    is_tracer = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    return is_tracer or isinstance(jax.lax.full((), 0), jax.core.Tracer)


class Objects(NamedTuple):
    """Objects among the arguments of a function that the function could change.

    These are pytrees of other types than the containers of Python, such as modules of Flax NNX. A
    function may change lists and dicts: as under `jax.jit`, it changes copies.

    Attributes:
      names: path of each object.
      objects: the objects.
      structures: tree structure of each object before the call.
      positions: position among the flat arguments of each leaf of the objects.
    """

    names: list[str]
    objects: list[Any]
    structures: list[Any]
    positions: list[int]

    @classmethod
    def of(cls, args: tuple[Any, ...]) -> "Objects":
        """Return the objects among arguments."""
        result = cls([], [], [], [])
        count = 0
        for path, part in jax.tree.leaves_with_path(args, is_leaf=_is_object):
            leaves, structure = jax.tree.flatten(part)
            flat: Any = jax.tree.flatten(part)
            # Some objects make their leaves when they are flattened, and tell nothing.
            is_stable = flat[1] == structure and all(map(operator.is_, leaves, flat[0]))
            if is_stable and _is_object(part):
                result.names.append(_name(path))
                result.objects.append(part)
                result.structures.append(structure)
                result.positions.extend(range(count, count + len(leaves)))
            count += len(leaves)
        return result

    def leaves(self) -> list[Any]:
        """Return the leaves of the objects now.

        Raises:
          ValueError: an object has another structure than before.
        """
        leaves = []
        for name, part, before in zip(self.names, self.objects, self.structures, strict=True):
            found, after = jax.tree.flatten(part)
            if after != before:
                raise _changed(name, part)
            leaves += found
        return leaves

    def check(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Check that no new value of a leaf is lost: it is the old one, or part of the result.

        Args:
          inputs: variables of the flat arguments.
          outputs: atoms of the flat result, then of the objects' leaves after the call.

        Raises:
          ValueError: a value is lost; the message names its object.
        """
        structures = zip(self.names, self.objects, self.structures, strict=True)
        owners = [(name, part) for name, part, tree in structures for _ in range(tree.num_leaves)]
        returned = set(map(_key, outputs[: len(outputs) - len(owners)]))
        after = outputs[len(outputs) - len(owners) :]
        for (name, part), position, atom in zip(owners, self.positions, after, strict=True):
            if atom is not inputs[position] and _key(atom) not in returned:
                raise _changed(name, part)


def _key(atom: Any) -> Any:
    """Return a key that is equal for equal variables, and for equal literals."""
    return (repr(atom.val), repr(atom.aval)) if isinstance(atom, Literal) else atom


def _changed(name: str, part: Any) -> ValueError:
    return ValueError(
        f"fn changes {name}, a {type(part).__name__}, and does not return the new value: expected "
        "a pure function (with Flax NNX: split the object by nnx.split, make it again from its "
        "state by nnx.merge inside fn, and return its new state)"
    )


def _is_object(part: Any) -> bool:
    is_container = part is None or isinstance(part, tuple | list | dict)
    return not is_container and not jax.tree_util.all_leaves([part])


def _check_leaves(args: tuple[Any, ...], error: Exception) -> None:
    """Raise ValueError if a leaf of the arguments cannot be traced."""
    for path, leaf in jax.tree.leaves_with_path(args):
        try:
            jax.eval_shape(lambda x: x, leaf)
        except OverflowError:
            raise ValueError(
                f"{_name(path)} is {leaf!r}: expected a number that fits {jnp.asarray(0).dtype}"
            ) from error
        except TypeError:
            raise ValueError(
                f"{_name(path)} is {leaf!r}: expected an array, a number or a "
                f"jax.ShapeDtypeStruct; {_BIND}, and split modules with eqx.partition or nnx.split"
            ) from error


def _is_foreign(dtype: Any) -> bool:
    """Return whether a dtype is one that JAX traces, but does not have: dates and long floats."""
    most = {"m": 0, "M": 0, "f": 8, "c": 16}  # bytes
    return isinstance(dtype, np.dtype) and dtype.itemsize > most.get(dtype.kind, math.inf)


def _name(path: Any) -> str:
    return f"args{jax.tree_util.keystr(path)}"
