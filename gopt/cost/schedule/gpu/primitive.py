"""JAX primitive for the cost of a candidate on a GPU; a batch becomes the lanes of one kernel.

The primitive's implementation is traced only when it is lowered for a GPU. All batch axes are
folded into two: graphs, and candidates of each graph.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from gopt.cost.schedule.problem import Problem

_FIELDS = len(Problem._fields)


def on_lanes(part: Callable[[jax.Array, jax.Array], Any]) -> Callable[[Callable], Callable]:
    """Return a decorator that computes a cost by GPU lanes on CUDA GPUs.

    On other platforms the decorated function and its batches are unchanged, including the compiled
    program.

    Args:
      part: function that selects the cost from the makespan, int32 `[]`, and the peaks, int32
        `[D]`.

    Returns:
      Decorator of functions that take a problem and keys.
    """

    def lanes(problem: Problem, keys: Any) -> Any:
        return part(*lane_costs(problem, keys))

    return lambda cost: _by_platform(cost, lanes)


def _by_platform(default: Callable, cuda: Callable) -> Callable:
    # Choose the platform outside of the batch. Inside, the choice itself would be batched, and both
    # branches would be traced several times.
    @jax.custom_batching.custom_vmap
    def cost(problem: Problem, keys: Any) -> Any:
        return lax.platform_dependent(problem, keys, cuda=cuda, default=default)

    @cost.def_vmap
    def batch(axis_size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        del axis_size
        axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
        found = _by_platform(jax.vmap(default, axes), jax.vmap(cuda, axes))(*args)
        return found, jax.tree.map(lambda _: True, found)

    return cost


def lane_costs(problem: Problem, keys: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
    """Return the cost of one candidate, like `gopt.cost.schedule.execution.evaluate`.

    Compose with `jax.vmap`: a single candidate uses only one thread of a GPU.

    Args:
      problem: one problem.
      keys: fields of `gopt.cost.schedule.decoding.Keys`, in order.

    Returns:
      Makespan, int32 `[]`, ticks, and peaks, int32 `[D]`, units.
    """
    problem, keys = lax.stop_gradient((problem, keys))  # costs are integers
    args = *(leaf[None] for leaf in problem), *(leaf[None, None] for leaf in keys)
    makespan, peak = _lane_costs.bind(*args)
    return makespan[0, 0], peak[0, 0]


# Operands: the fields of problems, `[G, ...]`, then the fields of keys, `[G, P, ...]`.
_lane_costs = Primitive("lane_costs")
_lane_costs.multiple_results = True


@_lane_costs.def_abstract_eval
def _shapes(*args: Any) -> list[jax.core.ShapedArray]:
    *batch, _, devices = args[_FIELDS].shape
    return [jax.core.ShapedArray((*batch, *own), jnp.dtype("int32")) for own in ((), (devices,))]


def _build(*args: jax.Array) -> list[jax.Array]:
    # Imported late, because Pallas is slow to import.
    from gopt.cost.schedule.decoding import Keys
    from gopt.cost.schedule.gpu.population import costs

    return [*costs(Problem(*args[:_FIELDS]), Keys(*args[_FIELDS:]))]


_lane_costs.def_impl(jax.jit(_build))
mlir.register_lowering(_lane_costs, mlir.lower_fun(_build, multiple_results=True))


def _batch(args: Sequence[jax.Array], axes: Sequence[int | None]) -> tuple[list[jax.Array], Any]:
    size = next(leaf.shape[axis] for leaf, axis in zip(args, axes, strict=True) if axis is not None)
    rows = [_rows(leaf, axis, size) for leaf, axis in zip(args, axes, strict=True)]
    graphs, population = rows[_FIELDS].shape[1:3]
    if any(axis is not None for axis in axes[:_FIELDS]):  # the new axis is of graphs
        found = _lane_costs.bind(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows))
        return [leaf.reshape(size, graphs, *leaf.shape[1:]) for leaf in found], [0, 0]
    # The new axis is of candidates of each graph.
    keys = [jnp.moveaxis(leaf, 0, 1) for leaf in rows[_FIELDS:]]
    keys = [leaf.reshape(graphs, -1, *leaf.shape[3:]) for leaf in keys]
    found = _lane_costs.bind(*args[:_FIELDS], *keys)
    return [leaf.reshape(graphs, size, population, *leaf.shape[2:]) for leaf in found], [1, 1]


def _rows(leaf: jax.Array, axis: int | None, size: int) -> jax.Array:
    """Return the leaf with its batch axis first; a leaf without one is broadcast."""
    if axis is None:
        return jnp.broadcast_to(leaf, (size, *leaf.shape))
    return jnp.moveaxis(leaf, axis, 0)


batching.primitive_batchers[_lane_costs] = _batch
