"""The cost of a fusion: a configuration determines kernels, and kernels take time.

A kernel is a set of ops that run together. Its end, the last op, makes the output it writes. A
configuration has one bit per op, "fuse into the consumers", which counts for configurable ops only.
The problem has one of two semantics (`gopt.cost.fusion.rules.Rules.allow_duplication`):

- With duplication (duplication): an op whose bit is set is in every kernel that contains one of its
  consumers and may contain it. Each kernel computes it anew. It is written to memory only if a
  kernel without it reads it.
- Without: an op whose bit is set is in the kernel of its consumers. They must all be in one kernel,
  which may contain the op. Otherwise the op is written to memory.

The ops that a kernel may contain do not depend on the configuration
(`gopt.cost.fusion.kernel_reach`). Rules decide by the roles of the op and of the kernel's end. Up
to a limit, the nearest ops before the end qualify. An expensive op is not recomputed for elements
that a broadcast repeats: it stays out of a kernel in which any path to the end repeats it.

A kernel takes `C + M - overlap · min(C, M) + launch`, as in `gopt.cost.hardware.op_seconds`. C is
the time to compute its ops. M is the time to read each tensor from memory once, and to write the
output of its end. Elements that a broadcast repeats are computed once per repetition, along the
path with the most repetitions. Elements that a slice drops are computed too.

Costs are int32 ticks, at most `gopt.cost.fusion.kernel_reach.MAX_TICKS`. Functions take one
configuration; `jax.vmap` maps over many. Of one problem, `gopt.cost.fusion.kernel_walk.LANES`
configurations are costed at once. Maps over problems, and maps of `kernels_of`, run one by one.

`gopt.cost.fusion.levels` makes configurations from priorities, one per op.

Source: our own model; one bit per op is as in learned local advantage functions.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap, sequential_vmap
from jaxtyping import Bool, Int32

from gopt.cost.fusion.kernel_walk import (
    LANES,
    KernelWalk,
    compute_ticks,
    find_kernels,
    masks,
    read_ticks,
    total_time,
    visits_inside,
)
from gopt.cost.fusion.kernels import Kernels, time_kernels
from gopt.cost.fusion.problem import FusionProblem
from gopt.xla.calls import uninlined

__all__ = ("Kernels", "flipped_costs", "fusion_cost", "kernels_of")


def kernels_of(problem: FusionProblem, fuse: Bool[jax.Array, " N"]) -> Kernels:
    """Return the kernels of a configuration.

    Args:
      problem: one problem.
      fuse: bool `[N]`; true for ops that are fused into their consumers.

    Raises:
      ValueError: the configuration does not have one bit per op.
    """
    return _kernels_of(problem, _checked(problem, fuse))


def fusion_cost(problem: FusionProblem, fuse: jax.Array) -> Int32[jax.Array, ""]:
    """Return `kernels_of(problem, fuse).cost`, int32 `[]`, ticks; use `jax.vmap` for many.

    The arguments and errors are as in `kernels_of`.
    """
    return _cost(problem, _checked(problem, fuse))


def flipped_costs(problem: FusionProblem, fuse: Bool[jax.Array, " N"]) -> Int32[jax.Array, " N"]:
    """Return the cost of a configuration with the bit of each op flipped, int32 `[N]`, ticks.

    An op that is not configurable gets the cost of the unchanged configuration.

    Args:
      problem: one problem.
      fuse: bool `[N]`; true for ops that are fused into their consumers.

    Raises:
      ValueError: the configuration does not have one bit per op.
    """
    fuse = _checked(problem, fuse)
    choices, count = jnp.asarray(problem.choices), jnp.asarray(problem.num_choices)
    own, rows = _cost(problem, fuse), jnp.arange(fuse.size, dtype=jnp.int32)

    def step(k: jax.Array, costs: jax.Array) -> jax.Array:
        places = k * LANES + jnp.arange(LANES, dtype=jnp.int32)
        ops = choices[jnp.minimum(places, len(choices) - 1)]
        found = _costs(problem, fuse[None] ^ (rows[None] == ops[:, None]))
        return costs.at[jnp.where(places < count, ops, fuse.size)].set(found, mode="drop")

    return lax.fori_loop(0, (count + LANES - 1) // LANES, step, jnp.full(fuse.shape, own))


def _checked(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    rows = problem.compute.shape[-1]
    if jnp.shape(fuse) != (rows,):
        raise ValueError(
            f"fuse has shape {jnp.shape(fuse)}: expected ({rows},); use jax.vmap for many"
        )
    return jnp.asarray(fuse, bool) & problem.configurable


@sequential_vmap
def _kernels_of(problem: FusionProblem, fuse: jax.Array) -> Kernels:
    problem = jax.tree.map(jnp.asarray, problem)
    found, work, reads = _sums(problem, fuse[None])
    is_end = masks(found.written, 1)[:, 0] < 0
    return time_kernels(problem, visits_inside(problem, found), is_end, work[:, 0], reads[:, 0])


# Populations have their own algorithm: `jax.vmap` over candidates calls it.


@custom_vmap
def _cost(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    return _costs(problem, fuse[None])[0]


@_cost.def_vmap
def _(size: int, batched: Any, problem: FusionProblem, fuse: jax.Array) -> tuple[jax.Array, bool]:
    many, _ = batched
    if not any(jax.tree.leaves(many)):
        return _costs(problem, fuse), True
    return lax.map(lambda args: _cost(*args), _repeated(size, batched, problem, fuse)), True


@custom_vmap
def _costs(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Return the costs of configurations, int32 `[P]`, given their bits, bool `[P, N]`."""
    problem = jax.tree.map(jnp.asarray, problem)
    count = len(fuse)
    lanes = max(min(count, LANES), 1)
    if extra := -count % lanes:
        fuse = jnp.concatenate([fuse, jnp.repeat(fuse[-1:], extra, 0)])
    blocks = fuse.reshape(-1, lanes, fuse.shape[1])
    return lax.map(lambda block: _block(problem, block), blocks).ravel()[:count]


@_costs.def_vmap
def _(size: int, batched: Any, problem: FusionProblem, fuse: jax.Array) -> tuple[jax.Array, bool]:
    many, _ = batched
    if not any(jax.tree.leaves(many)):
        costs = _costs(problem, fuse.reshape(-1, fuse.shape[-1]))
        return costs.reshape(fuse.shape[:-1]), True
    return lax.map(lambda args: _costs(*args), _repeated(size, batched, problem, fuse)), True


def _repeated(size: int, batched: Any, *args: Any) -> Any:
    """Return the arguments, each broadcast to have the mapped axis."""
    return jax.tree.map(
        lambda is_batched, x: x if is_batched else jnp.broadcast_to(x, (size, *jnp.shape(x))),
        tuple(batched),
        args,
    )


def _block(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Return the costs of up to `LANES` configurations, int32 `[L]`, given bool `[L, N]`."""
    return uninlined(total_time)(problem, *_sums(problem, fuse))


def _sums(problem: FusionProblem, fuse: jax.Array) -> tuple[KernelWalk, jax.Array, jax.Array]:
    found = uninlined(find_kernels)(problem, fuse)
    work, reads = (
        uninlined(partial(sums, lanes=len(fuse))) for sums in (compute_ticks, read_ticks)
    )
    return found, work(problem, found), reads(problem, found)
