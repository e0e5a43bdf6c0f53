"""Values of functions on drawn arguments, on which a function may run for ever."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.measure.equality import key_implementation
from gopt.measure.worker import Worker, WorkerError
from gopt.program.program import Program

LIMIT = 60.0  # s, time limit to compile a function and run it on drawn arguments


class DrawnArgumentsError(RuntimeError):
    """A function has no values on drawn arguments; the message says why."""


def values_apart(
    functions: Sequence[Callable[..., Any]], program: Program, draws: Sequence[tuple[Any, ...]]
) -> list[list[list[np.ndarray]]]:
    """Return the values of functions on drawn arguments, computed in a process of its own.

    A random key counts as its data.

    Args:
      functions: functions of the arguments of the program.
      program: program that defines the arguments.
      draws: drawn arguments.

    Returns:
      Flat results of each function on each draw.

    Raises:
      DrawnArgumentsError: a function does not end within `LIMIT`, fails, or cannot be exported.
    """
    worker = Worker(partial(_prepare, bool(jax.config.read("jax_enable_x64"))))
    leaves = [list(map(np.asarray, map(_data, jax.tree.leaves(drawn)))) for drawn in draws]
    try:
        return [
            worker.run(_values, _exported(function, program), leaves, seconds=LIMIT)
            for function in functions
        ]
    except TimeoutError:
        raise DrawnArgumentsError(
            f"the function does not end on drawn arguments within {LIMIT:.0f} s"
        ) from None
    except WorkerError as error:
        raise DrawnArgumentsError(f"the function fails on drawn arguments ({error})") from error
    except RuntimeError as error:
        raise DrawnArgumentsError(f"it cannot be run apart ({error})") from error
    finally:
        worker.close()


def _exported(function: Callable[..., Any], program: Program) -> bytes:
    """Return a function of flat arrays, exported."""
    inputs = jax.tree.leaves(program.arguments())

    def on_arrays(*arrays: Any) -> list[Any]:
        leaves = [_like(shape, array) for shape, array in zip(inputs, arrays, strict=True)]
        return list(
            map(_data, jax.tree.leaves(function(*jax.tree.unflatten(program.in_tree, leaves))))
        )

    shapes = [jax.eval_shape(_data, shape) for shape in inputs]
    try:
        return bytes(jax.export.export(jax.jit(on_arrays))(*shapes).serialize())
    except (ValueError, NotImplementedError) as error:
        raise DrawnArgumentsError(f"the function cannot be exported ({error})") from error


def _prepare(x64: bool) -> None:
    """Prepare a worker; JAX is imported by now."""
    jax.config.update("jax_enable_x64", x64)


def _values(sent: bytes, draws: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Run an exported function in a worker."""
    function = jax.jit(jax.export.deserialize(bytearray(sent)).call)
    return [list(map(np.asarray, function(*leaves))) for leaves in draws]


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _data(x: Any) -> Any:
    """Return the data of a random key, or another value."""
    return jax.random.key_data(x) if _is_key(x) else x


def _like(shape: Any, array: Any) -> Any:
    """Return data as the random key that it is of, or another array."""
    if not _is_key(shape):
        return array
    return jax.random.wrap_key_data(array, impl=key_implementation(shape))
