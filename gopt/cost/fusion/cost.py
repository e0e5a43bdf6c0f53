"""What a fusion costs: a configuration becomes kernels, and kernels take time.

A kernel is a set of ops that run as one; the op at its end makes what it writes. A reader of an op,
its consumer, reads what it makes. A configuration has one bit for each op, "fuse into the readers",
which counts for configurable ops alone. There are two semantics, a property of the problem
(`gopt.cost.fusion.rules.Rules.clones`):

- with clones, that is with duplication: an op whose bit is set is in each kernel that has a reader
  of it and may have it, computed anew in each; and in memory, too, if another kernel reads it;
- without: an op whose bit is set is in the kernel of its readers, if they are all in one, and if
  that one may have it; else it is in memory.

Which ops a kernel may have does not depend on the configuration (`gopt.cost.fusion.reachable`):
rules say it by the roles of the op and of the kernel's end, and those nearest before the end may be
in it, up to a limit. What is dear to compute is not computed again for the elements that a
broadcast repeats: such an op stays out of a kernel in which any way to the end repeats it.

A kernel takes `C + M - overlap · min(C, M) + launch` as by the roofline of
`gopt.cost.hardware.op_seconds`: C is what its ops compute, and M what it reads of tensors in
memory, each once, and what its last op writes. What is computed for an element that a broadcast
repeats is computed for each repetition, as often as the way that repeats it most; what a slice
leaves out is computed, too.

Costs are int32 ticks, and end at `gopt.cost.fusion.reachable.MAX_TICKS`. Functions take one
configuration; `jax.vmap` maps over many. Costs of one problem are found for
`gopt.cost.fusion.walk.LANES` configurations at once; maps over problems, and over `kernels_of`, go
one by one.

`gopt.cost.fusion.levels` makes configurations of priorities, one for each op.

Source: our own model; one bit for each node is as in learned local advantage functions.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap, sequential_vmap

from gopt.cost.fusion.kernels import Kernels, timed_kernels
from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.walk import LANES, Walk, computed, masks, moved, total, visits_inside, walk
from gopt.xla.calls import uninlined

__all__ = ("Kernels", "flipped_costs", "fusion_cost", "kernels_of")


def kernels_of(problem: FusionProblem, fuse: jax.Array) -> Kernels:
    """Returns the kernels of a configuration.

    Args:
      problem: one problem.
      fuse: bool `[N]`, which ops are fused into their readers.

    Raises:
      ValueError: the configuration has not one bit for each op.
    """
    return _kernels_of(problem, _checked(problem, fuse))


def fusion_cost(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Returns `kernels_of(problem, fuse).cost`, int32 `[]`; use `jax.vmap` for many.

    Args:
      problem: one problem.
      fuse: bool `[N]`, which ops are fused into their readers.

    Raises:
      ValueError: the configuration has not one bit for each op.
    """
    return _cost(problem, _checked(problem, fuse))


def flipped_costs(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Returns what a configuration costs with each op's decision the other way, int32 `[N]`.

    What is not configurable has the cost of the configuration as it is.

    Args:
      problem: one problem.
      fuse: bool `[N]`, which ops are fused into their readers.

    Raises:
      ValueError: the configuration has not one bit for each op.
    """
    fuse = _checked(problem, fuse)
    choices, count = jnp.asarray(problem.choices), jnp.asarray(problem.num_choices)
    own = _cost(problem, fuse)

    def step(k: jax.Array, costs: jax.Array) -> jax.Array:
        places = k * LANES + jnp.arange(LANES)
        ops = choices[jnp.minimum(places, len(choices) - 1)]
        found = _costs(problem, fuse ^ (jnp.arange(fuse.size) == ops[:, None]))
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
    return timed_kernels(problem, visits_inside(problem, found), is_end, work[:, 0], reads[:, 0])


# A population is costed by its own algorithm: what maps over candidates makes it one.


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
    """Costs of configurations, bool `[P, N]`, int32 `[P]`."""
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
    """Returns arguments that all have the mapped axis."""
    return jax.tree.map(
        lambda is_batched, x: x if is_batched else jnp.broadcast_to(x, (size, *jnp.shape(x))),
        tuple(batched),
        args,
    )


def _block(problem: FusionProblem, fuse: jax.Array) -> jax.Array:
    """Costs of up to `LANES` configurations, bool `[L, N]`, int32 `[L]`."""
    return uninlined(total)(problem, *_sums(problem, fuse))


def _sums(problem: FusionProblem, fuse: jax.Array) -> tuple[Walk, jax.Array, jax.Array]:
    found = uninlined(walk)(problem, fuse)
    work, reads = (uninlined(partial(sums, lanes=len(fuse))) for sums in (computed, moved))
    return found, work(problem, found), reads(problem, found)
