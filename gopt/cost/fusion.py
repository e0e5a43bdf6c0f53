"""What a fusion costs: a configuration becomes kernels, and kernels take time.

A kernel is a set of ops that run as one; the op at its end, its root, makes what it writes. A
reader of an op, its consumer, reads what it makes. A configuration has one bit for each op, "fuse
into the readers", which counts for configurable ops alone. Ops are decided from the last to the
first. There are two semantics:

- joined, that is without duplication: an op whose bit is set is in the kernel of its readers, if
  they are all in one kernel;
- cloned, that is with duplication: an op whose bit is set is in each kernel that has a reader of it
  and may have it, computed anew in each; and in memory, too, if another kernel reads it.

An op stays out of a kernel that ends with an op of a role that rules forbid, and of one that has as
many ops as the limit allows. What is dear to compute is not computed again for the elements that a
broadcast repeats: such an op stays out if a reader in the kernel uses an element several times. In
"cloned" only the first reader in a kernel is asked, those that use elements more often first, and
what it needs is counted: too little where the next one needs more. There, ops stay out of all once
kernels have `CLONES` times as many ops as the graph.

A kernel that ends with an op takes `C + M - overlap · min(C, M) + launch` as by the roofline of
`gopt.hardware.op_seconds`: C is what its ops compute, and M what it reads of tensors in memory,
each once, and what its last op writes. What is computed for an element that a broadcast repeats is
computed for each repetition; what a slice leaves out is computed, too.

Costs are int32 ticks, and end at `gopt.fusion_problem.MAX_TICKS`. Written for one candidate, as
loops over scalars (see `gopt.cost.cells`); `jax.vmap` of the public functions maps over candidates.

Source: our own model; one bit for each node is as in learned local advantage functions.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from gopt.cost.cells import load, store, unit
from gopt.cost.fusion_cloned import CLONES, Cloned, clone
from gopt.cost.fusion_joined import Joined, join
from gopt.cost.fusion_kernels import Kernels
from gopt.fusion_problem import FusionProblem

__all__ = (
    "CLONES",
    "Cloned",
    "Joined",
    "Kernels",
    "cloned",
    "cloned_cost",
    "flipped_costs",
    "joined",
    "joined_cost",
)


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


def flipped_costs(
    problem: FusionProblem,
    fuse: jax.Array,
    cost: Callable[[FusionProblem, jax.Array], jax.Array] = cloned_cost,
) -> jax.Array:
    """Returns what a configuration costs with each op's decision the other way, int32 `[N]`.

    What is not configurable has the cost of the configuration as it is.

    Args:
      problem: one problem.
      fuse: bool `[N]`, which ops are fused into their readers.
      cost: `cloned_cost` or `joined_cost`.
    """
    problem = jax.tree.map(jnp.asarray, problem)
    fuse = jnp.asarray(fuse)

    def step(k: jax.Array, costs: jax.Array) -> jax.Array:
        op = load(problem.choices, k)
        return store(costs, op, cost(problem, fuse ^ (jnp.arange(fuse.size) == op)))

    costs = jnp.full(fuse.shape, cost(problem, fuse))
    return lax.fori_loop(0, problem.num_choices, step, costs)


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
    return join(problem, bits).kernels.cost


@jax.custom_batching.sequential_vmap
@unit
def _cloned_cost(problem: FusionProblem, bits: jax.Array) -> jax.Array:
    return clone(problem, bits).kernels.cost


@jax.custom_batching.sequential_vmap
def _joined(problem: FusionProblem, bits: jax.Array) -> Joined:
    return join(problem, bits)


@jax.custom_batching.sequential_vmap
def _cloned(problem: FusionProblem, bits: jax.Array) -> Cloned:
    return clone(problem, bits)
