"""Fusion by priority levels: fuse ops by falling level, if that is still legal.

Ops are visited by falling level; at equal levels, the last op comes first. Ops of level 0 or less
are never visited. At first each op is a kernel. A visited op is the end of its kernel. The kernel
is merged into the kernel of the op's consumers if

- all its consumers are in one kernel, and
- rules and limit allow that kernel to contain each op of the op's kernel
  (`gopt.cost.fusion.kernel_reach`).

Otherwise the op stays unfused. Earlier fusions restrict later ones: once `a` is in `b`, `b` can
only go where `a` may be. If all levels are equal, a visited op is alone in its kernel. The result
then equals the kernels of `gopt.cost.fusion.cost` without duplication. An op is in one kernel only,
even in a problem with duplication.

The fused ops are the bits of a configuration. From it, `gopt.cost.fusion.cost` makes the same
kernels, with or without duplication: the consumers of a fused op are in one kernel, since kernels
only grow, and an unfused op has no bit.

Kernels never form a cycle, whatever the order of visits. All consumers of an op are in its kernel,
unless it is the end. This holds at first, and an op stops being an end only when all its consumers
are in the kernel. So other kernels read only the end of a kernel. The end comes last, because each
other op has a later consumer in the kernel. Now let one kernel read another: the consumer comes
after the other's end, and not after its own end. So ends rise along every read, which excludes a
cycle.

Source: one priority per op, from a number of levels, is as in Zhou et al., "Transferable graph
optimizers for ML compilers", NeurIPS 2020. The paper does not say how it is decoded; this is our
choice.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap
from jaxtyping import Bool, Int32

from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.rules import REPEATABLE
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.xla.calls import uninlined

MAX_LEVEL = 2**24  # levels are sorted as float32


def fuse_by_level(problem: FusionProblem, level: Int32[jax.Array, " N"]) -> Bool[jax.Array, " N"]:
    """Return the configuration of the given levels, bool `[N]`: ops fused into their consumers.

    Use `jax.vmap` for many, of one problem or of several; they are decoded one by one.

    Args:
      problem: one problem.
      level: int32 `[N]`; priority levels up to `MAX_LEVEL`; ops of 0 or less are not fused.

    Raises:
      ValueError: there is not one level per op.
    """
    ops = jnp.arange(problem.compute.shape[-1], dtype=jnp.int32)
    return kernel_ends_by_level(problem, level) != ops


def kernel_ends_by_level(
    problem: FusionProblem, level: Int32[jax.Array, " N"]
) -> Int32[jax.Array, " N"]:
    """Return the end of the kernel of each op, int32 `[N]`; an op without a kernel gets itself.

    Args:
      problem: one problem.
      level: int32 `[N]`; priority levels, as in `fuse_by_level`.

    Raises:
      ValueError: there is not one level per op.
    """
    rows = problem.compute.shape[-1]
    if jnp.shape(level) != (rows,):
        raise ValueError(
            f"level has shape {jnp.shape(level)}: expected ({rows},); use jax.vmap for many"
        )
    problem = jax.tree.map(jnp.asarray, problem)
    return _ends(_tabulate(problem), jnp.asarray(level, jnp.int32))


class _Table(NamedTuple):
    """Values of a problem that all candidates share.

    Attributes:
      ops: int32 `[N]`; configurable ops by index, then N - 1.
      count: int32 `[]`; number of configurable ops.
      first_use: int32 `[N + 1]`; as in `FusionProblem`.
      reader: int32 `[A]`; consumer of each use.
      again: int32 `[N]`; 1 if a consumer uses elements of the op more than once, else 0.
      role: int32 `[N]`; as in `FusionProblem`.
      fuses_into: int32 `[N]`; as in `FusionProblem`; 0 if not configurable.
      first: int32 `[N]`; earliest op for which the kernel of the op has room.
    """

    ops: Any
    count: Any
    first_use: Any
    reader: Any
    again: Any
    role: Any
    fuses_into: Any
    first: Any


def _tabulate(problem: FusionProblem) -> _Table:
    reach, ops = problem.reach, jnp.arange(problem.compute.size, dtype=jnp.int32)
    (choices,) = jnp.nonzero(problem.configurable, size=ops.size, fill_value=ops.size - 1)
    # If the limit of a kernel is reached, earlier ops have no room in it.
    may = (reach.may_contain_mask & reach.is_last_mask) != 0
    others = jax.ops.segment_sum(may.astype(jnp.int32), reach.kernel, ops.size)
    first = jax.ops.segment_min(jnp.where(may, reach.producer, ops.size), reach.kernel, ops.size)
    repeated = jnp.cumulative_sum((problem.repetitions > 1).astype(jnp.int32), include_initial=True)
    return _Table(
        ops=choices.astype(jnp.int32),
        count=jnp.sum(problem.configurable, dtype=jnp.int32),
        first_use=problem.first_use,
        reader=problem.consumer,
        again=(jnp.diff(repeated[problem.first_use]) > 0).astype(jnp.int32),
        role=problem.role,
        fuses_into=jnp.where(problem.configurable, problem.fuses_into, 0),
        first=jnp.where(others + 1 < problem.max_kernel_ops, 0, first),
    )


@sequential_vmap
@uninlined
def _ends(table: _Table, level: jax.Array) -> jax.Array:
    order, _ = uninlined(rank_by_key)(level.astype(jnp.float32), table.ops, table.count)
    return uninlined(_decode)(table, level, order)


def _decode(table: _Table, level: jax.Array, order: jax.Array) -> jax.Array:
    """Return the ends of kernels, given the configurable ops by rising level.

    Kernels are union-find sets. The link of an op is twice itself, or twice a later op that has
    been the end of its kernel. 1 is added if elements are used more than once on the way.
    """
    size = level.size

    def follow(state: Any) -> Any:
        use, op, end, same, again, links, at, link = state
        links = store(links, at, link)
        link = load(links, op)
        further = load(links, link >> 1)
        is_end = (further ^ link) < 2  # the target of the link
        at, link = op, further | (link & 1)  # path halving; unchanged if the link is to an end
        op, again = link >> 1, again | (link & 1)
        same = ~is_end | (end < 0) | (op == end)
        end = jnp.where(is_end, op, end)
        use = use + is_end.astype(jnp.int32)
        op = jnp.where(is_end, load(table.reader, use), op)
        return use, op, end, same, again, links, at, link

    def visit(state: Any) -> Any:
        k, links, fuses_into, first, at, link, end, own, begin = state
        fuses_into, first = store(fuses_into, end, own), store(first, end, begin)
        op = load(order, k)
        use, stop = load(table.first_use, op), load(table.first_use, op + 1)
        reader, again = load(table.reader, use), load(table.again, op)
        state = use, reader, jnp.int32(-1), jnp.bool_(True), again, links, at, link
        # The last step finds an end, so it has no link to write.
        _, _, end, same, again, links, _, _ = lax.while_loop(
            lambda s: s[3] & (s[0] < stop), follow, state
        )
        own, begin = load(fuses_into, op), load(first, op)  # common to all ops of its kernel
        may = same & (own & load(table.role, end) != 0)
        may &= (again == 0) | (own & REPEATABLE != 0)
        may &= begin >= load(table.first, end)
        link = jnp.where(may, 2 * end + again, 2 * op)
        own = load(fuses_into, end) & jnp.where(may, own, -1)
        begin = jnp.minimum(load(first, end), jnp.where(may, begin, size))
        return k - 1, links, fuses_into, first, op, link, end, own, begin

    ops = jnp.arange(size, dtype=jnp.int32)
    zero = jnp.int32(0)
    state = (
        table.count - 1,
        2 * ops,
        table.fuses_into,
        ops,
        zero,
        zero,
        zero,
        table.fuses_into[0],
        zero,
    )

    def is_left(state: Any) -> jax.Array:
        k = state[0]
        return (k >= 0) & (load(level, load(order, jnp.maximum(k, 0))) > 0)

    _, links, _, _, at, link, *_ = lax.while_loop(is_left, visit, state)
    links = store(links, at, link)

    def settle(state: Any) -> Any:
        op, ends = state
        return op - 1, store(ends, op, load(ends, load(ends, op)))

    # Last op to first: links are to later ops, whose ends are already known.
    return lax.while_loop(lambda s: s[0] >= 0, settle, (jnp.int32(size - 1), links >> 1))[1]
