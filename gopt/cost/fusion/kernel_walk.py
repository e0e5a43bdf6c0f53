"""Find and sum the kernels of up to 32 configurations at once; see `gopt.cost.fusion.cost`.

Each configuration is one bit of an int32 word. Kernels are walked from the last to the first. So
the consumers of a kernel, and the configurations in which it exists, are known when it is reached.
A walk stops where no configuration continues: its work grows with what is fused, not with what may
be fused.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Int32

from gopt.cost.fusion.kernels import add_capped, kernel_time
from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.schedule.engine.cells import load, store

LANES = 32  # bits of a word


class KernelWalk(NamedTuple):
    """Kernels of configurations, as words of one bit per configuration.

    A found visit has a producer in the kernel, or a tensor the kernel reads, in any configuration.

    Attributes:
      written: int32 `[N]`; configurations in which the op ends a kernel, and so is in memory.
      found: int32 `[(V + 1) · 3]`; per found visit: its index in `Reach`, configurations in which
        the producer is in the kernel, and configurations in which the kernel reads the tensor.
      count: int32 `[]`; number of found visits.
    """

    written: Any
    found: Any
    count: Any


class _Visit(NamedTuple):
    """State of the walk in a kernel. `joins` is written one step later (see `cells`).

    Attributes:
      k: current visit.
      until: last visit that any configuration needs.
      some: configurations in which at least one visited consumer of this tensor is in the kernel.
      all: configurations in which all visited consumers of this tensor are in the kernel.
      inside: `[N]`; by place, the configurations in which an op is in the kernel.
      place: place of the last producer.
      joins: configurations in which the last producer is in the kernel.
    """

    k: Any
    until: Any
    some: Any
    all: Any
    inside: Any
    place: Any
    joins: Any


def find_kernels(problem: FusionProblem, fuse: Bool[jax.Array, "L N"]) -> KernelWalk:
    """Return the kernels of configurations.

    Args:
      problem: one problem.
      fuse: bool `[L, N]`; true for ops that are fused into their consumers, configurable ops only.
    """
    reach, zero, everywhere = problem.reach, jnp.int32(0), jnp.int32(-1)
    bits = _words(fuse)
    allow_duplication = jnp.where(problem.allow_duplication, everywhere, zero)

    def step(state: Any) -> Any:
        visit, written, found, count = state
        k, until, some, all_, inside, place, joins = visit
        inside = store(inside, place, joins)
        reader, maker = load(inside, load(reach.consumer_place, k)), load(reach.producer, k)
        last = load(reach.is_last_mask, k)
        wants = load(bits, maker) & load(reach.may_contain_mask, k)
        # Of a tensor's uses in a kernel only the first counts: it reads most. With duplication, a
        # fused op is in each kernel that reads it and may contain it, so that kernel does not read
        # it. Without duplication this is known only at the last use, where `saved_ticks` is
        # subtracted again.
        reads = reader & ~some & ~(wants & allow_duplication)
        some, all_ = some | reader, all_ & reader
        joins = wants & last & (all_ | (some & allow_duplication))
        written = store(written, maker, load(written, maker) | (some & last & ~joins))
        further = jnp.maximum(until, load(reach.last_visit_of_producer, k))
        until = jnp.where(joins != 0, further, until)
        for column, value in enumerate((k, joins, reads)):
            found = store(found, 3 * count + column, value)
        count = count + ((joins | reads) != 0).astype(jnp.int32)
        visit = _Visit(k + 1, until, some & ~last, all_ | last, inside, load(reach.place, k), joins)
        return visit, written, found, count

    def kernel(state: Any) -> Any:
        index, own, inside, written, found, count = state
        begin, until = load(reach.begin, index), load(reach.last_visit_of_end, index)
        until = jnp.where(own != 0, until, begin - 1)
        visit = _Visit(begin, until, zero, everywhere, inside, zero, own)
        state = visit, written, found, count
        state = lax.while_loop(lambda s: s[0].k <= s[0].until, step, state)
        visit, written, found, count = state
        following = load(reach.end, jnp.minimum(index + 1, problem.compute.size - 1))
        return index + 1, load(written, following), visit.inside, written, found, count

    written = jnp.where(problem.is_kernel, _words(~fuse), 0)
    inside = jnp.zeros_like(bits)
    found = jnp.zeros(3 * (reach.kernel.size + 1), jnp.int32)
    state = zero, load(written, reach.end[0]), inside, written, found, zero
    state = lax.while_loop(lambda s: s[0] < reach.num_kernels, kernel, state)
    *_, written, found, count = state
    return KernelWalk(jnp.where(problem.is_kernel, written, 0), found, count)


def compute_ticks(problem: FusionProblem, found: KernelWalk, lanes: int) -> Int32[jax.Array, "N L"]:
    """Return the ticks that kernels compute for ops before their ends, int32 `[N, L]`.

    Args:
      problem: one problem.
      found: kernels of the configurations.
      lanes: number of configurations, `L`.
    """
    reach = problem.reach

    def step(state: Any) -> Any:
        n, sums = state
        k, joins = load(found.found, 3 * n), load(found.found, 3 * n + 1)
        end = load(reach.kernel, k)
        ticks = add_capped(_row(sums, end), masks(joins, lanes) & load(reach.work, k))
        return n + 1, _with_row(sums, end, ticks)

    return _of_each(problem, found, lanes, step)


def read_ticks(problem: FusionProblem, found: KernelWalk, lanes: int) -> Int32[jax.Array, "N L"]:
    """Return the ticks that kernels read, int32 `[N, L]`.

    The arguments are as in `compute_ticks`.
    """
    reach = problem.reach

    def step(state: Any) -> Any:
        n, sums = state
        k, joins, reads = (load(found.found, 3 * n + column) for column in range(3))
        end = load(reach.kernel, k)
        more = masks(reads, lanes) & load(reach.read, k)
        less = masks(joins, lanes) & load(reach.saved_ticks, k)
        return n + 1, _with_row(sums, end, _row(sums, end) + more - less)

    return _of_each(problem, found, lanes, step)


def total_time(
    problem: FusionProblem,
    found: KernelWalk,
    work: Int32[jax.Array, "N L"],
    reads: Int32[jax.Array, "N L"],
) -> Int32[jax.Array, " L"]:
    """Return the time of all kernels, ticks, int32 `[L]`.

    Args:
      problem: one problem.
      found: kernels of `L` configurations.
      work: int32 `[N, L]`; ticks as from `compute_ticks`.
      reads: int32 `[N, L]`; ticks as from `read_ticks`.
    """
    reach, lanes = problem.reach, work.shape[1]

    def step(state: Any) -> Any:
        index, ticks = state
        end = load(reach.end, index)
        compute = add_capped(load(problem.compute, end), _row(work, end))
        memory = load(problem.memory, end) + _row(reads, end)
        time = masks(load(found.written, end), lanes) & kernel_time(problem, compute, memory)
        return index + 1, add_capped(ticks, time)

    state = jnp.int32(0), jnp.zeros(lanes, jnp.int32)
    return lax.while_loop(lambda s: s[0] < reach.num_kernels, step, state)[1]


def visits_inside(problem: FusionProblem, found: KernelWalk) -> Bool[jax.Array, " V"]:
    """Return a mask of visits whose producer is in the kernel in any configuration. bool `[V]`.

    Args:
      problem: one problem.
      found: kernels of the configurations.
    """
    entries = found.found.reshape(-1, 3)
    is_found = (jnp.arange(len(entries), dtype=jnp.int32) < found.count) & (entries[:, 1] != 0)
    size = problem.reach.kernel.size
    return jnp.zeros(size, bool).at[jnp.where(is_found, entries[:, 0], size)].set(True, mode="drop")


def masks(words: Int32[jax.Array, " ..."], lanes: int) -> Int32[jax.Array, "... L"]:
    """Return the bits of words as masks, -1 if set, else 0. int32 `[..., L]`.

    Args:
      words: int32 `[...]`; one bit per configuration.
      lanes: number of configurations, `L`.
    """
    shifts = jnp.arange(lanes, dtype=jnp.int32).reshape(*[1] * words.ndim, lanes)
    return -((words[..., None] >> shifts) & 1)


def _words(bits: jax.Array) -> jax.Array:
    """Return the bits of up to 32 configurations, bool `[L, N]`, as words, int32 `[N]`."""
    shifts = jnp.arange(len(bits), dtype=jnp.int32)[:, None]
    return jnp.sum(bits.astype(jnp.int32) << shifts, 0, dtype=jnp.int32)


def _of_each(problem: FusionProblem, found: KernelWalk, lanes: int, step: Any) -> jax.Array:
    sums = jnp.zeros((problem.compute.size, lanes), jnp.int32)
    return lax.while_loop(lambda s: s[0] < found.count, step, (jnp.int32(0), sums))[1]


def _row(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_slice(array, (index.astype(jnp.uint32), jnp.uint32(0)), (1, array.shape[1]))[
        0
    ]


def _with_row(array: jax.Array, index: jax.Array, row: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(array, row[None], (index.astype(jnp.uint32), jnp.uint32(0)))
