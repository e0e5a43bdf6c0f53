"""Functions as calls of their own in an XLA program."""

from collections.abc import Callable
from typing import TypeVar

try:
    from jax.experimental.scheduling_groups import xla_metadata_call
except ImportError:  # costs are the same without it, and take longer
    xla_metadata_call = None  # type: ignore[assignment]

Fn = TypeVar("Fn", bound=Callable)


def uninlined(fn: Fn) -> Fn:
    """Returns `fn` as a computation that XLA calls, and neither inlines nor mixes with others.

    A hint for CPUs: XLA's runtime there runs the steps of a short computation one after another.
    It hands those of a long one out to threads, which costs more than the steps themselves where
    they are small.
    """
    if xla_metadata_call is None:
        return fn
    return xla_metadata_call(fn, inlineable="false")


def check_uninlined() -> None:
    """Checks that a `uninlined` stays one.

    Raises:
      RuntimeError: this version of JAX has no calls that XLA does not inline.
    """
    if xla_metadata_call is None:
        raise RuntimeError("this version of JAX has no xla_metadata_call: XLA would merge kernels")
