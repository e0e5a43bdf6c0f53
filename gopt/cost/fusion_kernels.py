"""What the two semantics of `gopt.cost.fusion` share: the time of kernels, and what they read."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gopt.cost.cells import load, store
from gopt.fusion_problem import MAX_TICKS, MAX_TIMES, OVERLAP_BITS, FusionProblem
from gopt.fusion_rules import REPEATABLE

_LIMB = 14  # bits of a limb of a sum


class Kernels(NamedTuple):
    """The kernels of a configuration, by the op that ends them."""

    is_end: Any  # bool [N], the op ends a kernel: what it makes is in memory
    compute: Any  # int32 [N], ticks, 0 where no kernel ends
    memory: Any  # int32 [N], ticks, 0 where no kernel ends
    time: Any  # int32 [N], ticks, 0 where no kernel ends
    cost: Any  # int32 [], ticks of all kernels


def timed_kernels(
    problem: FusionProblem, is_end: jax.Array, compute: jax.Array, reads: jax.Array
) -> Kernels:
    """Returns the times of kernels, and their sum.

    Args:
      problem: one problem.
      is_end: bool `[N]`, which ops end a kernel.
      compute: int32 `[N]`, ticks that the kernel computes that the op ends.
      reads: int32 `[N]`, ticks that it reads.
    """
    compute = jnp.where(is_end, compute, 0)
    # No more than all ops move one by one.
    memory = jnp.where(is_end, problem.memory + reads, 0)
    time = compute + memory - _share(jnp.minimum(compute, memory), problem.overlap)
    time = jnp.where(is_end, jnp.minimum(time + problem.launch, MAX_TICKS), 0)
    return Kernels(is_end, compute, memory, time, _sum(time))


def _share(ticks: jax.Array, parts: jax.Array) -> jax.Array:
    """Returns ticks times parts / 2¹⁰, rounded down, without overflow."""
    mask = (1 << OVERLAP_BITS) - 1
    return (ticks >> OVERLAP_BITS) * parts + ((ticks & mask) * parts >> OVERLAP_BITS)


def _sum(ticks: jax.Array) -> jax.Array:
    """Returns the sum of ticks, `MAX_TICKS` at most."""
    low = jnp.sum(ticks & ((1 << _LIMB) - 1))
    # A float32 is exact where the sum is not too large, and too large where it is not.
    high = jnp.sum((ticks >> _LIMB).astype(jnp.float32)) + (low >> _LIMB).astype(jnp.float32)
    is_large = high >= float((MAX_TICKS + 1) >> _LIMB)
    total = (high.astype(jnp.int32) << _LIMB) + (low & ((1 << _LIMB) - 1))
    return jnp.where(is_large, MAX_TICKS, total)


def again(ticks: jax.Array, times: jax.Array) -> jax.Array:
    """Returns ticks, below 2²⁷, times 2¹⁵ at most, `MAX_TICKS` at most."""
    bits = MAX_TIMES.bit_length() - 1
    low = (ticks & (MAX_TIMES - 1)) * times
    high = (ticks >> bits) * times + (low >> bits)
    is_large = high > MAX_TICKS >> bits
    return jnp.where(is_large, MAX_TICKS, (high << bits) + (low & (MAX_TIMES - 1)))


def repeated_times(times: jax.Array, more: jax.Array) -> jax.Array:
    """Returns how often an op is computed if its reader is, and uses it so often each time."""
    return jnp.minimum(times * more, MAX_TIMES)


def may_repeat(into: jax.Array, times: jax.Array) -> jax.Array:
    """Returns whether an op may be computed so often: if it is cheap, or once."""
    return (times == 1) | (into & REPEATABLE != 0)


def add(array: jax.Array, index: jax.Array, ticks: jax.Array) -> jax.Array:
    """Returns the vector with ticks added at one index, `MAX_TICKS` at most there."""
    return store(array, index, jnp.minimum(load(array, index) + ticks, MAX_TICKS))


class Paid(NamedTuple):
    """What kernels read so far."""

    reads: Any  # [N], ticks
    seen: Any  # [N], the last tensor that each kernel has made or read
    access: Any  # kernel, tensor and ticks of the access to be written (see `gopt.cost.cells`)


def nothing_paid(problem: FusionProblem) -> Paid:
    """Returns the state before anything is read."""
    n, zero = problem.compute.size, jnp.int32(0)
    return Paid(jnp.zeros(n, jnp.int32), jnp.full(n, -1), (jnp.int32(n - 1), zero, zero))


def pay(paid: Paid) -> Paid:
    """Returns the state with the access written that came before."""
    kernel, tensor, ticks = paid.access
    reads = store(paid.reads, kernel, load(paid.reads, kernel) + ticks)
    return Paid(reads, store(paid.seen, kernel, tensor), paid.access)


def accessed(problem: FusionProblem, paid: Paid, k: jax.Array, kernel: jax.Array) -> Paid:
    """Returns the state with access k of a kernel to be written: ticks if it is the first."""
    tensor = load(problem.tensor, k)
    ticks = jnp.where(load(paid.seen, kernel) != tensor, load(problem.read, k), 0)
    return paid._replace(access=(kernel, tensor, ticks))
