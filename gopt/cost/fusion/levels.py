"""Fusion by priorities: each op has a level, and ops are fused where that is still legal.

Ops are visited by falling level, of equals the last one first; those of level 0 never are. At first
each op is a kernel of its own. An op that is visited takes its kernel, which it ends, into that of
its readers, if

- all its readers are in one kernel, and
- that one may have each op of the op's own kernel, by rules and limit
  (`gopt.cost.fusion.reachable`);

else it stays where it is, for good. What is fused first decides what is legal later: once `a` is in
`b`, `b` is fused with nothing that may not have `a`. Where all levels are the same, nothing is in
the kernel of an op that is visited but itself, and what comes out is what the bits of
`gopt.cost.fusion.cost` say without clones. In a problem with clones, too, an op is in one kernel
only.

The ops so fused, as bits, are a configuration, and `gopt.cost.fusion.cost` makes the same kernels
of it, with clones or without: the readers of a fused op are in one kernel, since kernels only grow,
and what was not fused has no bit.

In whatever order ops are visited, kernels never wait for each other in a circle. All readers of an
op are in its kernel, unless it ends it: so it is at first, and an op that is fused ceases to be an
end only when all its readers are there. Hence of a kernel only the end is read from outside, and it
comes last, because each other op has a reader in the kernel, which comes later. Now let a kernel
read another one: the reader comes after the other's end, and not after its own end. So the ends of
kernels rise along all that is read, and there is no circle.

Source: one priority for each op, of a number of levels, is as in Zhou et al., "Transferable graph
optimizers for ML compilers", NeurIPS 2020, who do not say how it is decoded. This is our choice.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.rules import REPEATABLE
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.engine.ranking import rank_by_key
from gopt.xla.calls import uninlined

MAX_LEVEL = 2**24  # levels are sorted as float32


def fused_by_level(problem: FusionProblem, level: jax.Array) -> jax.Array:
    """Returns which ops are fused into their readers, bool `[N]`: a configuration.

    Use `jax.vmap` for many, of one problem or of several; they are decoded one by one.

    Args:
      problem: one problem.
      level: int32 `[N]`, up to `MAX_LEVEL`; what is 0 or less is not fused.

    Raises:
      ValueError: there is not one level for each op.
    """
    return ends_by_level(problem, level) != jnp.arange(problem.compute.shape[-1])


def ends_by_level(problem: FusionProblem, level: jax.Array) -> jax.Array:
    """Returns the op that ends the kernel of each op, int32 `[N]`; of no kernel, the op itself.

    The arguments and errors are those of `fused_by_level`.
    """
    rows = problem.compute.shape[-1]
    if jnp.shape(level) != (rows,):
        raise ValueError(
            f"level has shape {jnp.shape(level)}: expected ({rows},); use jax.vmap for many"
        )
    problem = jax.tree.map(jnp.asarray, problem)
    return _ends(_tabulate(problem), jnp.asarray(level, jnp.int32))


class _Table(NamedTuple):
    """What is the same for all candidates of a problem."""

    ops: Any  # int32 [N], configurable ones by index; then N - 1
    count: Any  # int32 [], how many there are
    first_use: Any  # int32 [N + 1]
    reader: Any  # int32 [A]
    again: Any  # int32 [N], 1 if a reader uses elements more than once, else 0
    role: Any  # int32 [N]
    into: Any  # int32 [N]
    first: Any  # int32 [N], the first op that the kernel of an op has room for


def _tabulate(problem: FusionProblem) -> _Table:
    reach, ops = problem.reach, jnp.arange(problem.compute.size, dtype=jnp.int32)
    (choices,) = jnp.nonzero(problem.configurable, size=ops.size, fill_value=ops.size - 1)
    # Where so many ops may be in a kernel as there is room for, those before them may not.
    may = (reach.may & reach.last) != 0
    others = jax.ops.segment_sum(may.astype(jnp.int32), reach.kernel, ops.size)
    first = jax.ops.segment_min(jnp.where(may, reach.maker, ops.size), reach.kernel, ops.size)
    repeated = jnp.cumulative_sum((problem.times > 1).astype(jnp.int32), include_initial=True)
    return _Table(
        ops=choices.astype(jnp.int32),
        count=jnp.sum(problem.configurable, dtype=jnp.int32),
        first_use=problem.first_use,
        reader=problem.consumer,
        again=(jnp.diff(repeated[problem.first_use]) > 0).astype(jnp.int32),
        role=problem.role,
        into=jnp.where(problem.configurable, problem.into, 0),
        first=jnp.where(others + 1 < problem.limit, 0, first),
    )


@sequential_vmap
@uninlined
def _ends(table: _Table, level: jax.Array) -> jax.Array:
    order, _ = uninlined(rank_by_key)(level.astype(jnp.float32), table.ops, table.count)
    return uninlined(_decode)(table, level, order)


def _decode(table: _Table, level: jax.Array, order: jax.Array) -> jax.Array:
    """Returns the ends of kernels, given the configurable ops by rising level.

    Kernels are sets that are united: an op has a link to an op that was later the end of its kernel
    at some time, twice that op, plus one if elements of it are used more than once on the way.
    """
    size = level.size

    def follow(state: Any) -> Any:
        use, op, end, same, again, links, at, link = state
        links = store(links, at, link)
        link = load(links, op)
        further = load(links, link >> 1)
        is_end = (further ^ link) < 2  # what the link is to
        at, link = op, further | (link & 1)  # half as long next time; as it is if to an end
        op, again = link >> 1, again | (link & 1)
        same = ~is_end | (end < 0) | (op == end)
        end = jnp.where(is_end, op, end)
        use = use + is_end.astype(jnp.int32)
        op = jnp.where(is_end, load(table.reader, use), op)
        return use, op, end, same, again, links, at, link

    def visit(state: Any) -> Any:
        k, links, into, first, at, link, end, own, begin = state
        into, first = store(into, end, own), store(first, end, begin)
        op = load(order, k)
        use, stop = load(table.first_use, op), load(table.first_use, op + 1)
        reader, again = load(table.reader, use), load(table.again, op)
        state = use, reader, jnp.int32(-1), jnp.bool_(True), again, links, at, link
        # The last step finds an end, and has nothing to write.
        _, _, end, same, again, links, _, _ = lax.while_loop(
            lambda s: s[3] & (s[0] < stop), follow, state
        )
        own, begin = load(into, op), load(first, op)  # of all ops of its kernel
        may = same & (own & load(table.role, end) != 0)
        may &= (again == 0) | (own & REPEATABLE != 0)
        may &= begin >= load(table.first, end)
        link = jnp.where(may, 2 * end + again, 2 * op)
        own = load(into, end) & jnp.where(may, own, -1)
        begin = jnp.minimum(load(first, end), jnp.where(may, begin, size))
        return k - 1, links, into, first, op, link, end, own, begin

    ops = jnp.arange(size, dtype=jnp.int32)
    zero = jnp.int32(0)
    state = table.count - 1, 2 * ops, table.into, ops, zero, zero, zero, table.into[0], zero

    def is_left(state: Any) -> jax.Array:
        k = state[0]
        return (k >= 0) & (load(level, load(order, jnp.maximum(k, 0))) > 0)

    _, links, _, _, at, link, *_ = lax.while_loop(is_left, visit, state)
    links = store(links, at, link)

    def settle(state: Any) -> Any:
        op, ends = state
        return op - 1, store(ends, op, load(ends, load(ends, op)))

    # From the last op to the first: links are to later ops, which have their ends by then.
    return lax.while_loop(lambda s: s[0] >= 0, settle, (jnp.int32(size - 1), links >> 1))[1]
