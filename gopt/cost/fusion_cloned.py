"""Kernels of a configuration in which ops are cloned into several: see `gopt.cost.fusion`."""

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
from gopt.fusion_rules import ROLES

CLONES = 4  # times as many ops as the graph are in kernels at most

_ROLES = len(ROLES) + 1
_ALL = (1 << len(ROLES)) - 1


class Cloned(NamedTuple):
    """A configuration in which an op may be in several kernels, and in memory."""

    stop: Any  # int32 [N], the entries of op i: stop[i + 1] .. stop[i]
    end: Any  # int32 [(CLONES + 1) · N + 1], the op that ends the kernel of each entry
    kernels: Kernels


def clone(problem: FusionProblem, bits: jax.Array) -> Cloned:
    """Returns the kernels of a configuration, given as int32 bits `[N]` of configurable ops."""
    problem = jax.tree.map(jnp.asarray, problem)
    stop, end, times = unit(_members)(problem, bits)
    reads = unit(_reads_of_clones)(problem, stop, end)
    ops = jnp.arange(bits.size)
    is_end = problem.is_kernel & (stop > 0) & (end[stop - 1] == ops)
    compute = unit(_work)(problem, stop, end, times)
    return Cloned(stop, end, timed_kernels(problem, is_end, compute, reads))


class _Member(NamedTuple):
    """An op in a kernel, written at the start of the next step (see `gopt.cost.cells`)."""

    entry: Any  # the last one stands for none
    kernel: Any  # N - 1 stands for none
    room: Any  # of the kernel, for other ops
    times: Any  # how often it is computed


def _members(problem: FusionProblem, bits: jax.Array) -> tuple[jax.Array, ...]:
    """Returns stop and end of `Cloned`, and how often each entry is computed."""
    n = bits.size
    none = (CLONES + 1) * n
    limit = CLONES * problem.num_ops

    def write(tables: Any, member: _Member) -> Any:
        entries, kernels = tables
        return (
            _store_pair(entries, member.entry, member.kernel, member.times),
            _store_pair(kernels, member.kernel, member.entry, member.room),
        )

    def step(state: Any) -> Any:
        op, stop, tables, member = state
        start = load(stop, op + 1)
        begin, last = load(problem.first_use, op), load(problem.first_use, op + 1)
        into = load(roles, op) >> _ROLES

        def visit(state: Any) -> Any:
            use, k, past, fill, refused, tables, member = state
            entries, kernels = tables = write(tables, member)
            kernel, times = _load_pair(entries, k)
            newest, left = _load_pair(kernels, kernel)
            repeated = repeated_times(times, load(problem.times, use))
            is_in = newest >= start
            may = (into & load(roles, kernel) & _ALL != 0) & may_repeat(into, repeated)
            may = may & (left > 0)
            joins = ~is_in & may & (fill < limit)
            member = _Member(
                jnp.where(joins, fill, none),
                jnp.where(joins, kernel, n - 1),
                left - 1,
                repeated,
            )
            is_last = k + 1 == past
            use = jnp.where(is_last, use + 1, use)
            first, past = _range(stop, load(problem.consumer, use))
            joined = jnp.where(joins, fill + 1, fill)
            k = jnp.where(is_last, first, k + 1)
            return use, k, past, joined, refused | ~(is_in | joins), tables, member

        begin = jnp.where(into != 0, begin, last)
        state = (
            begin,
            *_range(stop, load(problem.consumer, begin)),
            start,
            begin == last,
            tables,
            member,
        )
        state = lax.while_loop(lambda s: s[0] < last, visit, state)
        *_, fill, refused, tables, member = state
        entries, kernels = tables
        # What is in memory is the last op of a kernel of its own.
        entries = _store_pair(entries, jnp.where(refused, fill, none), op, jnp.int32(1))
        stop = store(stop, op, jnp.where(refused, fill + 1, fill))
        return op - 1, stop, (entries, kernels), member

    # Few tables, because XLA compiles loops natively that touch few bytes in a step, 1024 at most:
    # of entries the kernel and how often it computes the op; of kernels the newest entry, and room.
    roles = jnp.where(bits > 0, problem.into << _ROLES, 0) | problem.role
    entries = jnp.zeros(2 * (none + 1), jnp.int32)
    kernels = jnp.stack([jnp.full(n, -1), jnp.full(n, problem.limit - 1)], 1).ravel()
    tables = entries, kernels
    nothing = _Member(*map(jnp.int32, (none, n - 1, 1, 1)))
    state = problem.num_ops - 1, jnp.zeros(n, jnp.int32), tables, nothing
    _, stop, tables, member = lax.while_loop(lambda s: s[0] >= 0, step, state)
    entries, _ = write(tables, member)
    end, times = entries.reshape(-1, 2).T
    return stop, end, times


def _range(stop: jax.Array, op: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the first entry of an op, and the one after its last."""
    last, first = _load(stop, op)
    return first, last


def _load(array: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns `array[index]` and the one after it."""
    pair = lax.dynamic_slice(array, (index.astype(jnp.uint32),), (2,))
    return pair[0], pair[1]


def _load_pair(pairs: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _load(pairs, 2 * index)


def _store_pair(pairs: jax.Array, index: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(pairs, jnp.stack([a, b]), ((2 * index).astype(jnp.uint32),))


def _reads_of_clones(problem: FusionProblem, stop: jax.Array, end: jax.Array) -> jax.Array:
    """Returns what kernels read of tensors in memory, by the op that ends them, int32 `[N]`."""

    def step(state: Any) -> Any:
        access, entry, past, paid = state
        paid = accessed(problem, pay(paid), access, load(end, entry))
        is_last = entry + 1 == past
        access = jnp.where(is_last, access + 1, access)
        first, past = _range(stop, load(problem.access, access))
        return access, jnp.where(is_last, first, entry + 1), past, paid

    zero = jnp.int32(0)
    state = zero, *_range(stop, load(problem.access, zero)), nothing_paid(problem)
    state = lax.while_loop(lambda s: s[0] < problem.num_accesses, step, state)
    return pay(state[-1]).reads


def _work(problem: FusionProblem, stop: jax.Array, end: jax.Array, times: jax.Array) -> jax.Array:
    """Returns what kernels compute, by the op that ends them, int32 `[N]`."""

    def step(state: Any) -> Any:
        entry, op, compute = state
        ticks = again(load(problem.compute, op), load(times, entry))
        compute = add(compute, load(end, entry), ticks)
        return entry + 1, jnp.where(entry + 1 == load(stop, op), op - 1, op), compute

    state = jnp.int32(0), problem.num_ops - 1, jnp.zeros_like(problem.compute)
    return lax.while_loop(lambda s: s[1] >= 0, step, state)[2]
