"""What a fusion costs: a configuration becomes kernels, and kernels take time.

A configuration has one bit for each op, "fuse into the readers", which counts for configurable ops
alone. Ops are decided from the last to the first. There are two semantics:

- joined: an op whose bit is set is in the kernel of its readers, if they are all in one kernel;
- cloned: an op whose bit is set is in each kernel that has a reader of it and may have it, computed
  anew in each; and in memory, too, if another kernel reads it.

An op stays out of a kernel that ends with an op of a role that rules forbid, and of one that has as
many ops as the limit allows. What is dear to compute is not computed again for the elements that a
broadcast repeats: such an op stays out if a reader in the kernel uses an element several times. In
"cloned" only the first reader in a kernel is asked, and what it needs is computed; readers that use
elements more often come first. There, ops stay out of all once kernels have `CLONES` times as many
ops as the graph.

A kernel that ends with an op takes `C + M - overlap · min(C, M) + launch` as by the roofline of
`gopt.hardware.op_seconds`: C is what its ops compute, and M what it reads of tensors in memory,
each once, and what its last op writes. What is computed for an element that a broadcast repeats is
computed for each repetition.

Costs are int32 ticks, and end at `gopt.fusion_problem.MAX_TICKS`. Written for one candidate, as
loops over scalars (see `gopt.cost.cells`); `jax.vmap` of the public functions maps over candidates.

Source: our own model; one bit for each node is as in learned local advantage functions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.cells import load, store, unit
from gopt.fusion_problem import MAX_TICKS, MAX_TIMES, OVERLAP_BITS, FusionProblem
from gopt.fusion_rules import REPEATABLE, ROLES

CLONES = 4

_LIMB = 14  # bits of a limb of a sum
_ROLES = len(ROLES) + 1  # bits
_ALL = (1 << len(ROLES)) - 1


class Kernels(NamedTuple):
    """The kernels of a configuration, by the op that ends them."""

    is_end: Any  # bool [N], the op ends a kernel: what it makes is in memory
    compute: Any  # int32 [N], ticks
    memory: Any  # int32 [N], ticks
    time: Any  # int32 [N], ticks, 0 where no kernel ends
    cost: Any  # int32 [], ticks of all kernels


class Joined(NamedTuple):
    """A configuration in which each op is in one kernel."""

    end: Any  # int32 [N], the op that ends the kernel of each op
    kernels: Kernels


class Cloned(NamedTuple):
    """A configuration in which an op may be in several kernels, and in memory."""

    stop: Any  # int32 [N], the entries of op i: stop[i + 1] .. stop[i]
    end: Any  # int32 [(CLONES + 1) · N + 1], the op that ends the kernel of each entry
    kernels: Kernels


def joined(problem: FusionProblem, fuse: jax.Array) -> Joined:
    """Returns the kernels of a configuration, each op in one.

    Args:
      problem: one problem.
      fuse: bool `[N]`, which ops are fused into their readers.

    Raises:
      ValueError: the configuration has not one bit for each op.
    """
    return _joined(problem, _bits(problem, fuse))


def cloned(problem: FusionProblem, fuse: jax.Array) -> Cloned:
    """Returns the kernels of a configuration, ops in several where several read them.

    Args:
      problem: one problem.
      fuse: bool `[N]`, which ops are fused into their readers.

    Raises:
      ValueError: the configuration has not one bit for each op.
    """
    return _cloned(problem, _bits(problem, fuse))


def joined_cost(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Returns `joined(problem, fuse).kernels.cost`, int32 `[]`; use `jax.vmap` for many."""
    return _joined_cost(problem, _bits(problem, fuse))


def cloned_cost(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Returns `cloned(problem, fuse).kernels.cost`, int32 `[]`; use `jax.vmap` for many."""
    return _cloned_cost(problem, _bits(problem, fuse))


def _bits(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    rows = problem.compute.shape[-1]
    if jnp.shape(fuse) != (rows,):
        raise ValueError(
            f"fuse has shape {jnp.shape(fuse)}: expected ({rows},); use jax.vmap for many"
        )
    return (jnp.asarray(fuse, bool) & problem.configurable).astype(jnp.int32)


@jax.custom_batching.sequential_vmap
@unit
def _joined_cost(problem: FusionProblem, bits: jax.Array) -> jax.Array:
    return _join(problem, bits).kernels.cost


@jax.custom_batching.sequential_vmap
@unit
def _cloned_cost(problem: FusionProblem, bits: jax.Array) -> jax.Array:
    return _clone(problem, bits).kernels.cost


@jax.custom_batching.sequential_vmap
def _joined(problem: FusionProblem, bits: jax.Array) -> Joined:
    return _join(problem, bits)


@jax.custom_batching.sequential_vmap
def _cloned(problem: FusionProblem, bits: jax.Array) -> Cloned:
    return _clone(problem, bits)


def _join(problem: FusionProblem, bits: jax.Array) -> Joined:
    problem = jax.tree.map(jnp.asarray, problem)
    end, compute = unit(_ends)(problem, bits)
    reads = unit(_reads)(problem, end)
    is_end = problem.is_kernel & (end == jnp.arange(end.size))
    return Joined(end, _kernels(problem, is_end, compute, reads))


def _kernels(
    problem: FusionProblem, is_end: jax.Array, compute: jax.Array, reads: jax.Array
) -> Kernels:
    memory = problem.memory + reads  # no more than all ops move one by one
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


def _again(ticks: jax.Array, times: jax.Array) -> jax.Array:
    """Returns ticks, below 2²⁷, times 2¹⁵ at most, `MAX_TICKS` at most."""
    bits = MAX_TIMES.bit_length() - 1
    low = (ticks & (MAX_TIMES - 1)) * times
    high = (ticks >> bits) * times + (low >> bits)
    is_large = high > MAX_TICKS >> bits
    return jnp.where(is_large, MAX_TICKS, (high << bits) + (low & (MAX_TIMES - 1)))


def _repeated(times: jax.Array, more: jax.Array) -> jax.Array:
    return jnp.minimum(times * more, MAX_TIMES)


def _may_repeat(into: jax.Array, times: jax.Array) -> jax.Array:
    return (times == 1) | (into & REPEATABLE != 0)


def _add(array: jax.Array, index: jax.Array, ticks: jax.Array) -> jax.Array:
    return store(array, index, jnp.minimum(load(array, index) + ticks, MAX_TICKS))


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
            _add(compute, join.end, join.work),
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
            repeated = _repeated(load(times, reader), load(problem.times, element))
            return element + 1, jnp.where(same, kernel, -1), jnp.maximum(most, repeated)

        wants = load(bits, op)
        kernel = load(end, load(problem.consumer, begin))
        begin = jnp.where(wants > 0, begin, stop)
        state = begin, kernel, jnp.int32(1)
        _, kernel, most = lax.while_loop(lambda s: s[0] < stop, use, state)
        target = jnp.maximum(kernel, 0)
        larger = load(size, target) + 1
        into = load(problem.into, op)
        may = (kernel >= 0) & (into & load(problem.role, target) != 0) & _may_repeat(into, most)
        joins = (wants > 0) & may & (larger <= problem.limit)
        work = _again(load(problem.compute, op), most)
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
        paid = _pay(paid)
        kernel = load(end, load(problem.access, k))
        return k + 1, _access(problem, paid, k, kernel)

    state = jnp.int32(0), _nothing_paid(problem)
    state = lax.while_loop(lambda s: s[0] < problem.num_accesses, step, state)
    return _pay(state[1]).reads


class _Paid(NamedTuple):
    """What kernels read so far."""

    reads: Any  # [N], ticks
    seen: Any  # [N], the last tensor that each kernel has made or read
    access: Any  # kernel, tensor and ticks of the access to be written (see `gopt.cost.cells`)


def _nothing_paid(problem: FusionProblem) -> _Paid:
    n, zero = problem.compute.size, jnp.int32(0)
    return _Paid(jnp.zeros(n, jnp.int32), jnp.full(n, -1), (jnp.int32(n - 1), zero, zero))


def _pay(paid: _Paid) -> _Paid:
    kernel, tensor, ticks = paid.access
    reads = store(paid.reads, kernel, load(paid.reads, kernel) + ticks)
    return _Paid(reads, store(paid.seen, kernel, tensor), paid.access)


def _access(problem: FusionProblem, paid: _Paid, k: jax.Array, kernel: jax.Array) -> _Paid:
    tensor = load(problem.tensor, k)
    ticks = jnp.where(load(paid.seen, kernel) != tensor, load(problem.read, k), 0)
    return paid._replace(access=(kernel, tensor, ticks))


def _clone(problem: FusionProblem, bits: jax.Array) -> Cloned:
    problem = jax.tree.map(jnp.asarray, problem)
    stop, end, times = unit(_members)(problem, bits)
    reads = unit(_reads_of_clones)(problem, stop, end)
    ops = jnp.arange(bits.size)
    is_end = problem.is_kernel & (stop > 0) & (end[stop - 1] == ops)
    compute = unit(_work)(problem, stop, end, times)
    return Cloned(stop, end, _kernels(problem, is_end, compute, reads))


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
        entries, state = tables
        return (
            _store_pair(entries, member.entry, member.kernel, member.times),
            _store_pair(state, member.kernel, member.entry, member.room),
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
            repeated = _repeated(times, load(problem.times, use))
            is_in = newest >= start
            may = (into & load(roles, kernel) & _ALL != 0) & _may_repeat(into, repeated)
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
        paid = _access(problem, _pay(paid), access, load(end, entry))
        is_last = entry + 1 == past
        access = jnp.where(is_last, access + 1, access)
        first, past = _range(stop, load(problem.access, access))
        return access, jnp.where(is_last, first, entry + 1), past, paid

    zero = jnp.int32(0)
    state = zero, *_range(stop, load(problem.access, zero)), _nothing_paid(problem)
    state = lax.while_loop(lambda s: s[0] < problem.num_accesses, step, state)
    return _pay(state[-1]).reads


def _work(problem: FusionProblem, stop: jax.Array, end: jax.Array, times: jax.Array) -> jax.Array:
    """Returns what kernels compute, by the op that ends them, int32 `[N]`."""

    def step(state: Any) -> Any:
        entry, op, compute = state
        ticks = _again(load(problem.compute, op), load(times, entry))
        compute = _add(compute, load(end, entry), ticks)
        return entry + 1, jnp.where(entry + 1 == load(stop, op), op - 1, op), compute

    state = jnp.int32(0), problem.num_ops - 1, jnp.zeros_like(problem.compute)
    return lax.while_loop(lambda s: s[1] >= 0, step, state)[2]
