"""Check that a function can be compiled and run: outside of others, on one device, on arrays."""

from collections.abc import Iterator
from typing import Any

import jax

from gopt.program.arguments import is_traced
from gopt.program.equations import all_equations, is_multi_device
from gopt.program.program import Program


def check_alone(args: tuple[Any, ...], program: Program) -> None:
    """Check that a function is not part of another one, which JAX traces.

    Args:
      args: arguments of the function.
      program: traced program of the function.

    Raises:
      ValueError: an argument or captured array is a tracer, or the call is traced. The message
        names it.
    """
    names = [name for name, x in _arrays(args, program) if isinstance(x, jax.core.Tracer)]
    if names or is_traced(args):
        what = f"{names[0]} is a tracer" if names else "the call is traced"
        raise ValueError(f"{what}: expected a call outside of jax.jit, jax.grad and jax.vmap")


def check_one_device(args: tuple[Any, ...], program: Program) -> None:
    """Check that a function runs on one device.

    Args:
      args: arguments of the function.
      program: traced program of the function.

    Raises:
      ValueError: a mesh of several devices is set, an argument or captured array is on several, or
        an equation asks for several. The message names it.
    """
    for name, array in _arrays(args, program):
        sharding = getattr(array, "sharding", None)
        if sharding is not None and sharding.num_devices > 1:
            raise ValueError(f"{name} is on {sharding.num_devices} devices, expected one")
    for equation in all_equations(program.equations):
        if is_multi_device(equation):
            raise ValueError(
                f"the function asks for several devices ({equation.primitive.name}): expected one"
            )
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size > 1:
        raise ValueError(f"a mesh of {mesh.size} devices is set: expected one")


def check_arrays(args: tuple[Any, ...], program: Program) -> None:
    """Check that no array was deleted, as a donated one is.

    Args:
      args: arguments of the function, not traced.
      program: traced program of the function.

    Raises:
      ValueError: an argument or captured array was deleted. The message names it.
    """
    for name, array in _arrays(args, program):
        if isinstance(array, jax.Array) and array.is_deleted():
            raise ValueError(f"{name} was deleted, perhaps donated before: expected an array")


def _arrays(args: tuple[Any, ...], program: Program) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of arguments and the captured arrays with their names."""
    for path, leaf in jax.tree.leaves_with_path(args):
        yield f"args{jax.tree_util.keystr(path)}", leaf
    for k, value in enumerate(program.values):
        yield f"captured array {k}", value
