"""Inputs of HDP: a graph on a machine, read once, on the host; and features of groups of ops."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int32

from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph, Shape
from gopt.graph.kinds import KINDS
from gopt.systems.hdp.settings import Settings

OUTPUTS, DIMENSIONS = 5, 5  # outputs read of each op, and dimensions read of each output
NEIGHBOURS = 10  # neighbours read of each op: the index of each, and whether it is a reader


class Inputs(NamedTuple):
    """A graph on a machine, as HDP reads it. `N` ops.

    Attributes:
      problem: the graph on the machine.
      kind: int32 `[N]`, kind of each op.
      features: float32 `[N, 45]`, see `inputs`; 0 for ops that are not placed.
      dimensions: float32 `[N, 25]`, dimensions of the first outputs; 0 where one is missing.
      is_placed: bool `[N]`, the op is real and not an input.
      leader: int32 `[N]`, op whose group an op is in: itself, or the first of its readers.
    """

    problem: Problem
    kind: Any
    features: Any
    dimensions: Any
    is_placed: Any
    leader: Any


def inputs(graph: Graph, problem: Problem, *, settings: Settings) -> Inputs:
    """Return the inputs of HDP; on the host.

    `features` are the dimensions of the first outputs of an op, as logarithms, -1 where one is
    missing; then the indices of its first neighbours, producers before readers, and their
    directions, -1 for producers and 1 for readers. Each feature is standardised to mean 0 and
    variance 1 over all placed ops: our choice, as raw features, in the thousands, saturate the
    grouper. Also our choice: an op with fewer neighbours has itself in the other places, with
    direction 0. Ops near in the program are similar.

    Inputs of the graph belong to the group of their first reader, because they run there (see
    `gopt.cost.schedule.dispatch.legalize_placement`). An input without readers belongs to no group.

    Args:
      graph: the graph, padded or not.
      problem: the same graph on the machine that it is placed on, padded in any way.
      settings: settings of the policy. All read the same.

    Raises:
      ValueError: the problem belongs to another graph.
    """
    del settings
    real = Shape(int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses))
    of_problem = Shape(int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses))
    if real != of_problem:
        raise ValueError(f"problem has {of_problem}: expected those of the graph, {real}")
    n, rows = real.ops, problem.shape.ops
    tensor = np.asarray(problem.tensor)[: real.uses]
    maker, reader = np.asarray(problem.producer)[tensor], np.asarray(problem.consumer)[: real.uses]
    is_placed = (np.arange(rows) < n) & ~np.asarray(problem.is_input)

    shapes = _shapes(graph)
    logarithms = np.where(shapes < 0, -1, np.log1p(np.maximum(shapes, 0)))
    columns = np.concatenate([logarithms, _neighbours(maker, reader, n)], 1)[is_placed[:n]]
    features = np.zeros((rows, columns.shape[1]), np.float32)
    if len(columns):
        deviation = columns.std(0)
        columns = (columns - columns.mean(0)) / np.where(deviation > 1e-6, deviation, 1)
        features[is_placed] = columns

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values, [(0, rows - n)] + [(0, 0)] * (values.ndim - 1))

    first = np.full(rows, rows)
    np.minimum.at(first, maker, reader)
    own = is_placed | (first == rows)
    return Inputs(
        problem=problem,
        kind=padded(np.asarray(graph.kind)[:n].astype(np.int32)),
        features=features,
        dimensions=padded(np.maximum(shapes, 0).astype(np.float32)),
        is_placed=is_placed,
        leader=np.where(own, np.arange(rows), first).astype(np.int32),
    )


def members(inputs: Inputs, group: Int32[jax.Array, " N"], groups: int) -> Int32[jax.Array, " N"]:
    """Return the group of each op, int32 `[N]`, inputs included; `groups` if it has none.

    Args:
      inputs: the graph.
      group: int32 `[N]`, group of each placed op.
      groups: number of groups.
    """
    group = jnp.where(inputs.is_placed, group, groups)
    return group[inputs.leader].astype(jnp.int32)


def group_embedding(
    inputs: Inputs, group: Int32[jax.Array, " N"], groups: int
) -> Float32[jax.Array, "K 2K+kinds+25"]:
    """Return the features of each group for the placer, float32 `[K, 2 K + kinds + 25]`.

    Four parts: how often each group reads ops of this group; how often this group reads ops of each
    group; the number of ops of each kind; the sum of the dimensions of their first outputs. Each
    part is divided by 1 + the largest number of its row: our choice, as the published common
    divisor, the largest of all four, leaves only the dimensions.

    Args:
      inputs: the graph.
      group: int32 `[N]`, group of each op, see `members`.
      groups: number of groups, `K`.
    """
    problem = inputs.problem
    kinds = jnp.zeros((groups, len(KINDS)), jnp.float32).at[group, inputs.kind].add(1, mode="drop")
    dimensions = jax.ops.segment_sum(inputs.dimensions, group, groups)
    maker, reader = group[problem.producer[problem.tensor]], group[problem.consumer]
    read_by = jnp.zeros((groups, groups), jnp.float32).at[maker, reader].add(1, mode="drop")
    parts = (read_by, read_by.T, kinds, dimensions)
    return jnp.concatenate([part / (1 + part.max(1, keepdims=True)) for part in parts], 1)


def _shapes(graph: Graph) -> np.ndarray:
    """Return the dimensions of the first outputs of each real op, -1 where one is missing."""
    n, t = int(graph.num_ops), int(graph.num_tensors)
    producer = np.asarray(graph.producer)[:t]
    output = np.arange(t) - np.searchsorted(producer, producer)
    kept = output < OUTPUTS
    shapes = np.full((n, OUTPUTS, DIMENSIONS), -1.0)
    shapes[producer[kept], output[kept]] = np.asarray(graph.shape)[:t][kept, :DIMENSIONS]
    return shapes.reshape(n, -1)


def _neighbours(maker: np.ndarray, reader: np.ndarray, n: int) -> np.ndarray:
    """Return the first neighbours of each real op, and their directions, `[n, 20]`."""
    maker, reader = np.unique(np.stack([maker, reader]), axis=1)
    op, other = np.concatenate([reader, maker]), np.concatenate([maker, reader])
    direction = np.repeat([-1, 1], maker.size)
    order = np.argsort(op, kind="stable")  # producers stay before readers
    op, other, direction = op[order], other[order], direction[order]
    slot = np.arange(op.size) - np.searchsorted(op, op)
    kept = slot < NEIGHBOURS
    found = np.stack([np.tile(np.arange(n), (NEIGHBOURS, 1)), np.zeros((NEIGHBOURS, n))])
    found[:, slot[kept], op[kept]] = other[kept], direction[kept]
    return found.reshape(-1, n).T
