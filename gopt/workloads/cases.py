"""Functions with the shapes of their arguments, to be compiled: models and their training steps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.workloads import WORKLOADS


class Case(NamedTuple):
    """A function with its arguments as shapes."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    donated: tuple[int, ...] = ()  # positions of the arguments whose buffers may be reused


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the shape of a float32 array."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def forward(workload: str, **sizes: Any) -> Case:
    """Return the inference of a model of `gopt.workloads`."""
    return Case(*WORKLOADS[workload](**sizes).forward())


def step(workload: str, **sizes: Any) -> Case:
    """Return the training step of a model of `gopt.workloads`; it consumes what it replaces."""
    return Case(*WORKLOADS[workload](**sizes).train_step(), (0, 1))
