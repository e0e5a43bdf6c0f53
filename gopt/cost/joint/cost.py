"""What a schedule costs where ops are fused: each kernel is one op, and its members are gone.

A kernel runs where the op that ends it is placed, with its priority. It takes as long there as by
`gopt.cost.fusion.cost`, waits for all that its ops read from outside, reads each tensor once, and
makes what its last op makes; its workspace is the largest of its ops'. Other members run nowhere
and take no time, and what they make takes no memory and is not sent. A kernel that computes much
again counts as `gopt.cost.joint.problem.SLOWEST` times what its ops take one by one, at most.

    problem = contracted(joint, level)  # of the same shape
    cost = dispatch.evaluate(problem, keys)

Source: GO decides placement, priorities and fusion together (Zhou et al., "Transferable graph
optimizers for ML compilers", NeurIPS 2020), on a model that was not published. This one is ours.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from gopt.cost.fusion.cost import kernels_of
from gopt.cost.fusion.levels import ends_by_level
from gopt.cost.joint.problem import SLOWEST, JointProblem
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


def contracted(joint: JointProblem, level: jax.Array) -> Problem:
    """Returns the problem of scheduling the kernels of a fusion, of the shape of `joint.schedule`.

    A kernel is at the row of the op that ends it. Other members are inputs that nobody reads: their
    keys mean nothing. Use `jax.vmap` for many candidates.

    Args:
      joint: one problem.
      level: int32 `[N]`, which ops are fused, see `gopt.cost.fusion.levels`; or bool, one bit each.

    Raises:
      ValueError: there is not one level for each op.
    """
    joint = jax.tree.map(jnp.asarray, joint)
    problem, ops = joint.schedule, joint.schedule.shape.ops
    end = ends_by_level(joint.fusion[0], level)
    fused = end != jnp.arange(ops)
    kinds = [kernels_of(fusion, fused).time for fusion in joint.fusion]
    time = jnp.stack(kinds, 1)[:, joint.kind]
    longest = SLOWEST * jax.ops.segment_sum(problem.op_ticks, end, ops)
    runs = problem.allowed & ~fused[:, None]
    workspace = jax.ops.segment_max(problem.workspace, end, ops)
    is_inside = fused[problem.producer]
    uses = uses_of_kernels(problem, end)
    return problem._replace(
        op_ticks=jnp.where(runs, jnp.minimum(time, longest), 0),
        workspace=jnp.where(fused, 0, workspace),
        size=jnp.where(is_inside, 0, problem.size),
        is_input=problem.is_input | fused,
        **uses._asdict(),
    )


class Uses(NamedTuple):
    """Uses as in `Problem`."""

    tensor: Any
    consumer: Any
    first_use: Any
    read: Any
    first_read: Any
    num_uses: Any


@sequential_vmap
@uninlined
def uses_of_kernels(problem: Problem, end: jax.Array) -> Uses:
    """Returns the uses of tensors by kernels, each pair once.

    Sorted by counting: tensors are visited in order and put to their readers, which are visited in
    order and put to their tensors.
    """
    n, t, e = problem.shape
    zero = jnp.int32(0)

    def collect(state: Any) -> Any:
        use, count, tensor, reader, seen, tensors, readers, uses, reads = state
        seen = store(seen, reader, tensor)  # of the use before
        tensor, consumer = load(problem.tensor, use), load(problem.consumer, use)
        reader = load(end, consumer)
        # What is made inside a kernel is read by its ops only.
        is_outside = load(end, load(problem.producer, tensor)) != reader
        is_new = (is_outside & (load(seen, reader) != tensor)).astype(jnp.int32)
        tensors, readers = store(tensors, count, tensor), store(readers, count, reader)
        uses = store(uses, tensor, load(uses, tensor) + is_new)
        reads = store(reads, reader, load(reads, reader) + is_new)
        return use + 1, count + is_new, tensor, reader, seen, tensors, readers, uses, reads

    def accumulate(state: Any) -> Any:
        k, total, ends = state
        total = total + load(ends, k)
        return k + 1, total, store(ends, k, total)

    def ends_of(counts: jax.Array) -> jax.Array:
        state = zero, zero, counts
        return lax.while_loop(lambda s: s[0] < counts.size, accumulate, state)[2]

    def place(state: Any) -> Any:
        k, ends, boxes, values, boxed, placed = state  # from the last to the first: order is kept
        box = load(boxes, k)
        ends = store(ends, box, load(ends, box) - 1)
        to = load(ends, box)
        return k - 1, ends, boxes, values, store(boxed, to, box), store(placed, to, load(values, k))

    def sort(boxes: jax.Array, values: jax.Array, counts: jax.Array, fill: tuple[int, int]) -> Any:
        empty = (jnp.full(e, number, jnp.int32) for number in fill)
        state = count - 1, ends_of(counts), boxes, values, *empty
        _, first, _, _, boxed, placed = lax.while_loop(lambda s: s[0] >= 0, place, state)
        return jnp.append(first, e), boxed, placed

    none, zeros = jnp.full(n, -1, jnp.int32), jnp.zeros(e, jnp.int32)
    counts = jnp.zeros(t, jnp.int32), jnp.zeros(n, jnp.int32)
    state = zero, zero, jnp.int32(-1), zero, none, zeros, zeros, *counts
    _, count, _, _, _, tensors, readers, uses, reads = lax.while_loop(
        lambda s: s[0] < problem.num_uses, collect, state
    )
    first_read, reader, read = sort(readers, tensors, reads, (n - 1, t - 1))
    first_use, tensor, consumer = sort(read, reader, uses, (t - 1, n - 1))
    return Uses(tensor, consumer, first_use, read, first_read, count)
