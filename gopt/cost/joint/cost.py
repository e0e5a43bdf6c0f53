"""The cost of a schedule of fused ops: each kernel becomes one op.

A kernel runs where its end is placed, with the priority of the end, for its time in
`gopt.cost.fusion.cost`. It waits for all tensors its ops read from outside, reads each once, and
makes the output of its end. Its workspace is the largest of its ops. The other ops of a kernel run
nowhere and take no time; their outputs take no memory and are not sent. The time of a kernel is
capped at `gopt.cost.joint.problem.MAX_SLOWDOWN` times the time of its ops run one by one.

    problem = contracted(joint, level)  # of the same shape
    cost = dispatch.evaluate(problem, keys)

Source: GO decides placement, priorities and fusion together (Zhou et al., "Transferable graph
optimizers for ML compilers", NeurIPS 2020), with an unpublished cost model. This one is ours.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap
from jaxtyping import Int32

from gopt.cost.fusion.cost import kernels_of
from gopt.cost.fusion.levels import kernel_ends_by_level
from gopt.cost.joint.problem import MAX_SLOWDOWN, JointProblem
from gopt.cost.schedule.engine.cells import load, store
from gopt.cost.schedule.problem import Problem
from gopt.xla.calls import uninlined


def contract_kernels(joint: JointProblem, level: Int32[jax.Array, " N"]) -> Problem:
    """Return the problem of scheduling the kernels of a fusion, in the shape of `joint.schedule`.

    A kernel is at the row of its end. Its other ops become inputs without consumers, whose keys are
    ignored. Use `jax.vmap` for many candidates.

    Args:
      joint: one problem.
      level: int32 `[N]`, priority levels as in `gopt.cost.fusion.levels`; or bool, one bit per op.

    Raises:
      ValueError: there is not one level per op.
    """
    joint = jax.tree.map(jnp.asarray, joint)
    problem, ops = joint.schedule, joint.schedule.shape.ops
    end = kernel_ends_by_level(joint.fusion[0], level)
    fused = end != jnp.arange(ops, dtype=jnp.int32)
    kinds = [kernels_of(fusion, fused).time for fusion in joint.fusion]
    time = jnp.stack(kinds, 1)[:, joint.kind]
    longest = MAX_SLOWDOWN * jax.ops.segment_sum(problem.op_ticks, end, ops)
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
    """Uses of tensors by kernels; fields as in `Problem`.

    Attributes:
      tensor: int32 `[E]`; tensor that is read; uses are sorted by (tensor, consumer).
      consumer: int32 `[E]`; op that reads it.
      first_use: int32 `[T + 1]`; uses of tensor t start at `first_use[t]`.
      read: int32 `[E]`; tensors that are read, sorted by (consumer, tensor).
      first_read: int32 `[N + 1]`; reads of op i start at `first_read[i]`.
      num_uses: int32 `[]`; uses without padding.
    """

    tensor: Any
    consumer: Any
    first_use: Any
    read: Any
    first_read: Any
    num_uses: Any


@sequential_vmap
@uninlined
def uses_of_kernels(problem: Problem, end: Int32[jax.Array, " N"]) -> Uses:
    """Return the uses of tensors by kernels, each pair once.

    Two counting sorts: tensors in order go to their consumers, then consumers in order go to their
    tensors.

    Args:
      problem: one problem.
      end: int32 `[N]`; end of the kernel of each op.
    """
    n, t, e = problem.shape
    zero = jnp.int32(0)

    def collect(state: Any) -> Any:
        use, count, tensor, reader, seen, tensors, readers, uses, reads = state
        seen = store(seen, reader, tensor)  # of the previous use
        tensor, consumer = load(problem.tensor, use), load(problem.consumer, use)
        reader = load(end, consumer)
        # Only ops of a kernel read what is made inside it.
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
        k, ends, boxes, values, boxed, placed = state  # last to first: stable
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
