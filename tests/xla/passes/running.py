"""Random arrays, and passes whose results are checked."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.program.program import Program, trace_program

RNG = np.random.default_rng(0)


def array(*shape: int) -> jax.Array:
    """Return a random array."""
    return jnp.asarray(RNG.standard_normal(shape, np.float32))


def rewritten(change: Callable[[Program], Program], fn: Callable[..., Any], *args: Any) -> Program:
    """Return the program of a function after a pass, which computes the same."""
    program = change(trace_program(fn, *args))
    for ours, theirs in zip(
        jax.tree.leaves(program.as_function()(*args)), jax.tree.leaves(fn(*args)), strict=True
    ):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    return program
