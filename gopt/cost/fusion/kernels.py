"""How long kernels take, given what they compute and read: see `gopt.cost.fusion.cost`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem
from gopt.cost.fusion.reachable import MAX_TICKS


class Kernels(NamedTuple):
    """The kernels of a configuration, by the op that ends them."""

    inside: Any  # bool [V], at this visit the maker is found to be in the kernel; see `members`
    is_end: Any  # bool [N], the op ends a kernel: what it makes is in memory
    compute: Any  # int32 [N], ticks, 0 where no kernel ends
    memory: Any  # int32 [N], ticks, 0 where no kernel ends
    time: Any  # int32 [N], ticks, 0 where no kernel ends
    cost: Any  # int32 [], ticks of all kernels


def timed_kernels(
    problem: FusionProblem,
    inside: Any,
    is_end: jax.Array,
    compute: jax.Array,
    reads: jax.Array,
) -> Kernels:
    """Returns the times of kernels, and their sum.

    Args:
      problem: one problem.
      inside: bool `[V]`, at which visits the maker is in the kernel.
      is_end: bool `[N]`, which ops end a kernel.
      compute: int32 `[N]`, ticks that the kernel computes for the ops before its end.
      reads: int32 `[N]`, ticks that it reads.
    """
    compute = jnp.where(is_end, added(problem.compute, compute), 0)
    memory = jnp.where(is_end, problem.memory + reads, 0)
    time = jnp.where(is_end, time_of(problem, compute, memory), 0)
    return Kernels(
        inside, is_end, compute, memory, time, lax.reduce(time, jnp.int32(0), added, (0,))
    )


def time_of(problem: FusionProblem, compute: jax.Array, memory: jax.Array) -> jax.Array:
    """Returns how long kernels take that compute and move so many ticks, int32 of any shape."""
    # Memory is no more than all ops move one by one.
    time = compute + memory - _share(jnp.minimum(compute, memory), problem.overlap)
    return jnp.minimum(time + problem.launch, MAX_TICKS)


def added(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the sum of ticks, `MAX_TICKS` at most, which is as much as either may be."""
    return jnp.minimum(a + b, MAX_TICKS)


def _share(ticks: jax.Array, parts: jax.Array) -> jax.Array:
    """Returns ticks times parts / 2¹⁰, rounded down, without overflow."""
    mask = (1 << OVERLAP_BITS) - 1
    return (ticks >> OVERLAP_BITS) * parts + ((ticks & mask) * parts >> OVERLAP_BITS)
