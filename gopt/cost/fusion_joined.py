"""Kernels of a configuration in which each op is in one: see `gopt.cost.fusion`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.cells import load, store, unit
from gopt.cost.fusion_kernels import (
    Kernels,
    accessed,
    add,
    again,
    may_repeat,
    nothing_paid,
    pay,
    repeated_times,
    timed_kernels,
)
from gopt.fusion_problem import FusionProblem


class Joined(NamedTuple):
    """A configuration in which each op is in one kernel."""

    end: Any  # int32 [N], the op that ends the kernel of each op
    kernels: Kernels


def join(problem: FusionProblem, bits: jax.Array) -> Joined:
    """Returns the kernels of a configuration, given as int32 bits `[N]` of configurable ops."""
    problem = jax.tree.map(jnp.asarray, problem)
    end, compute = unit(_ends)(problem, bits)
    reads = unit(_reads)(problem, end)
    is_end = problem.is_kernel & (end == jnp.arange(end.size))
    return Joined(end, timed_kernels(problem, is_end, compute, reads))


class _Join(NamedTuple):
    """What becomes of an op, written at the start of the next step (see `gopt.cost.cells`)."""

    op: Any
    end: Any
    size: Any  # of the kernel, with the op
    times: Any  # how often it is computed
    work: Any  # ticks that the kernel computes for it


def _ends(problem: FusionProblem, bits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the op that ends the kernel of each op, and what kernels compute, int32 `[N]`."""

    def write(end: Any, size: Any, times: Any, compute: Any, join: _Join) -> tuple[Any, ...]:
        return (
            store(end, join.op, join.end),
            store(size, join.end, join.size),
            store(times, join.op, join.times),
            add(compute, join.end, join.work),
        )

    def step(state: Any) -> Any:
        k, end, size, times, compute, last = state
        end, size, times, compute = write(end, size, times, compute, last)
        op = load(problem.choices, k)
        begin, stop = load(problem.first_use, op), load(problem.first_use, op + 1)

        def use(state: Any) -> Any:
            element, kernel, most = state
            reader = load(problem.consumer, element)
            same = load(end, reader) == kernel
            repeated = repeated_times(load(times, reader), load(problem.times, element))
            return element + 1, jnp.where(same, kernel, -1), jnp.maximum(most, repeated)

        wants = load(bits, op)
        kernel = load(end, load(problem.consumer, begin))
        begin = jnp.where(wants > 0, begin, stop)
        state = begin, kernel, jnp.int32(1)
        _, kernel, most = lax.while_loop(lambda s: s[0] < stop, use, state)
        target = jnp.maximum(kernel, 0)
        larger = load(size, target) + 1
        into = load(problem.into, op)
        may = (kernel >= 0) & (into & load(problem.role, target) != 0) & may_repeat(into, most)
        joins = (wants > 0) & may & (larger <= problem.limit)
        work = again(load(problem.compute, op), most)
        join = _Join(
            op,
            jnp.where(joins, target, op),
            jnp.where(joins, larger, 1),
            jnp.where(joins, most, 1),
            jnp.where(joins, work, 0),
        )
        return k + 1, end, size, times, compute, join

    ops = jnp.arange(problem.compute.size, dtype=jnp.int32)
    ones = jnp.ones_like(ops)
    nothing = _Join(ops[-1], ops[-1], ones[0], ones[0], jnp.int32(0))
    state = jnp.int32(0), ops, ones, ones, problem.compute, nothing
    state = lax.while_loop(lambda s: s[0] < problem.num_choices, step, state)
    end, _, _, compute = write(*state[1:])
    return end, compute


def _reads(problem: FusionProblem, end: jax.Array) -> jax.Array:
    """Returns what kernels read of tensors in memory, by the op that ends them, int32 `[N]`."""

    def step(state: Any) -> Any:
        k, paid = state
        paid = pay(paid)
        kernel = load(end, load(problem.access, k))
        return k + 1, accessed(problem, paid, k, kernel)

    state = jnp.int32(0), nothing_paid(problem)
    state = lax.while_loop(lambda s: s[0] < problem.num_accesses, step, state)
    return pay(state[1]).reads
