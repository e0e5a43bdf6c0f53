"""Functions as separate calls in an XLA program."""

from collections.abc import Callable
from typing import TypeVar

try:
    from jax.experimental.scheduling_groups import xla_metadata_call
except ImportError:  # costs are equal without it, but slower
    xla_metadata_call = None  # type: ignore[assignment]

Fn = TypeVar("Fn", bound=Callable)


def uninlined(fn: Fn) -> Fn:
    """Return `fn` as a computation that XLA calls, and neither inlines nor merges with others.

    Units make small steps faster on CPUs. There, XLA's runtime runs the steps of a short
    computation one after another. It distributes the steps of a long computation over threads,
    which takes longer than small steps themselves. Versions of JAX without such calls get `fn`
    unchanged.
    """
    if xla_metadata_call is None:
        return fn
    return xla_metadata_call(fn, inlineable="false")


def check_uninlined() -> None:
    """Check that XLA keeps a `uninlined` as a separate call.

    Raises:
      RuntimeError: this version of JAX has no calls that XLA does not inline.
    """
    if xla_metadata_call is None:
        raise RuntimeError("this version of JAX has no xla_metadata_call: XLA would merge kernels")
