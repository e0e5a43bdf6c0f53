"""Times of kernels, given what they compute and read; see `gopt.cost.fusion.cost`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Int32

from gopt.cost.fusion.kernel_reach import MAX_TICKS
from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem

Ticks = Int32[jax.Array, " N"]


class Kernels(NamedTuple):
    """The kernels of a configuration, each at the row of the op that ends it.

    Attributes:
      inside: bool `[V]`; true if the kernel contains the producer of this visit.
      is_end: bool `[N]`; true if the op ends a kernel, and so is written to memory.
      compute: int32 `[N]`; ticks to compute; 0 if no kernel ends here.
      memory: int32 `[N]`; ticks to read and write; 0 if no kernel ends here.
      time: int32 `[N]`; ticks in all; 0 if no kernel ends here.
      cost: int32 `[]`; ticks of all kernels.
    """

    inside: Any
    is_end: Any
    compute: Any
    memory: Any
    time: Any
    cost: Any


def time_kernels(
    problem: FusionProblem, inside: Any, is_end: Bool[jax.Array, " N"], compute: Ticks, reads: Ticks
) -> Kernels:
    """Return kernels with their times and the sum of these.

    Args:
      problem: one problem.
      inside: bool `[V]`; visits whose producer is in the kernel.
      is_end: bool `[N]`; ops that end a kernel.
      compute: int32 `[N]`; ticks to compute the ops of a kernel except its end.
      reads: int32 `[N]`; ticks that a kernel reads.
    """
    compute = jnp.where(is_end, add_capped(problem.compute, compute), 0)
    memory = jnp.where(is_end, problem.memory + reads, 0)
    time = jnp.where(is_end, kernel_time(problem, compute, memory), 0)
    return Kernels(
        inside, is_end, compute, memory, time, lax.reduce(time, jnp.int32(0), add_capped, (0,))
    )


def kernel_time(problem: FusionProblem, compute: jax.Array, memory: jax.Array) -> jax.Array:
    """Return the time of kernels, ticks, int32.

    Args:
      problem: one problem.
      compute: int32 of any shape; ticks to compute.
      memory: int32 of the same shape; ticks to read and write.
    """
    # Cannot overflow: memory is at most what all unfused ops move.
    time = compute + memory - _share(jnp.minimum(compute, memory), problem.overlap)
    return jnp.minimum(time + problem.launch, MAX_TICKS)


def add_capped(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the sum of ticks, capped at `MAX_TICKS`.

    Args:
      a: int32 of any shape, at most `MAX_TICKS`.
      b: int32 of the same shape, at most `MAX_TICKS`.
    """
    return jnp.minimum(a + b, MAX_TICKS)


def _share(ticks: jax.Array, parts: jax.Array) -> jax.Array:
    """Return ticks · parts / 2¹⁰, rounded down, without overflow."""
    mask = (1 << OVERLAP_BITS) - 1
    return (ticks >> OVERLAP_BITS) * parts + ((ticks & mask) * parts >> OVERLAP_BITS)
