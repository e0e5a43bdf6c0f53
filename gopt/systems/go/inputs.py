"""Inputs of the policy of GO: a graph on a machine, read once, on the host."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from gopt.cost.joint.problem import JointProblem, schedule_of
from gopt.cost.schedule.problem import Problem
from gopt.graph.graph import Graph, shape_of
from gopt.heuristics.schedule.placement.groups import coarse_to_fine
from gopt.heuristics.schedule.placement.list_scheduling import (
    levels,
    mean_ticks,
    mean_transfer_ticks,
)
from gopt.heuristics.schedule.readiness import followed_ops
from gopt.learning.graphs import GraphsTuple, to_graphs_tuple
from gopt.systems.go.settings import Settings


class Inputs(NamedTuple):
    """A graph on a machine, as the policy reads it. `N` ops, `E` uses, `L` levels, `D` devices.

    Attributes:
      graphs: features of ops and uses, see `gopt.learning.graphs`.
      group: int32 `[L, N]`, group of each op; padding has an index past all groups. An input that
        may be everywhere is in the group of its first reader (see
        `gopt.cost.schedule.dispatch.legalize_placement`).
      allowed: bool `[N, D]`, devices on which each op may run.
      runs: bool `[N]`, the op has a priority: it is neither an input nor padding.
      fusible: bool `[N]`, the op may be fused into its readers.
      count: int32 `[L]`, number of groups of each level.
      share: float32 `[N]`, share of the time of all ops, on average over devices.
      bytes: float32 `[N]`, bytes that each op makes, in shares of the capacity of a device.
      tensor: int32 `[E]`, tensor that a use of the problem reads.
      maker: int32 `[E]`, op that makes this tensor.
      reader: int32 `[E]`, op that reads it.
      sent: float32 `[E]`, time to send this tensor, in shares of the time of all ops.
      times: float32 `[N, 4]`, see `inputs`.
    """

    graphs: GraphsTuple
    group: Any
    allowed: Any
    runs: Any
    fusible: Any
    count: Any
    share: Any
    bytes: Any
    tensor: Any
    maker: Any
    reader: Any
    sent: Any
    times: Any


def inputs(graph: Graph, problem: Problem | JointProblem, *, settings: Settings) -> Inputs:
    """Return the inputs of a policy; on the host.

    The columns of `times` are, in shares of the longest path: the earliest start of an op, its
    longest path to the end, and its slack (longest path of all minus longest path through it). The
    last is the scaled logarithm of its share of the time of all ops.

    Args:
      graph: the graph, padded or not.
      problem: the same graph, with the same padding, on the machine that it is placed on. With a
        `Problem` no op may be fused.
      settings: settings of the policy.

    Raises:
      ValueError: the graph and the problem have different numbers of rows.
    """
    fusible = np.zeros(schedule_of(problem).shape.ops, bool)
    if isinstance(problem, JointProblem):
        fusible, problem = np.asarray(problem.fusion[0].configurable), problem.schedule
    graphs = to_graphs_tuple(graph)
    if len(graphs.nodes["kind"]) != problem.shape.ops or len(graphs.edges) != problem.shape.uses:
        raise ValueError(
            f"problem has shape {problem.shape}: expected that of the graph, {shape_of(graph)}"
        )
    n, t, uses = int(problem.num_ops), int(problem.num_tensors), int(problem.num_uses)
    rows = problem.shape
    ticks = mean_ticks(problem)
    total = max(ticks.sum(), 1.0)
    tensor, producer = np.asarray(problem.tensor), np.asarray(problem.producer)
    readers = np.bincount(tensor[:uses], minlength=rows.tensors)
    # Readers share the time of a tensor: each gets more than an equal part, because one transfer
    # serves all readers on a device.
    sent = mean_transfer_ticks(problem) / np.sqrt(np.maximum(readers, 1)) / total  # type: ignore[operator]
    weight = np.zeros(rows.uses)
    weight[:uses] = sent[tensor[:uses]]

    early, late = _starts(problem, ticks), np.array(levels(problem, np.zeros(rows.tensors)))
    longest = max((early + late)[:n].max(), 1.0)
    slack = longest - early - late
    share = ticks / total
    times = np.stack([*(x / longest for x in (early, late, slack)), log_share(share)], 1)
    leader = followed_ops(problem)
    groups = [
        np.unique(of[leader], return_inverse=True)[1]
        for of in coarse_to_fine(problem, settings.levels)
    ]
    group = np.full((len(groups), rows.ops), max(settings.levels), np.int32)
    group[:, :n] = groups
    made = np.bincount(producer[:t], np.asarray(problem.size, np.float64)[:t], minlength=rows.ops)
    return Inputs(
        graphs=graphs,
        group=group,
        allowed=np.asarray(problem.allowed),
        runs=(np.arange(rows.ops) < n) & ~np.asarray(problem.is_input),
        fusible=fusible,
        count=np.array([of.max() + 1 for of in groups], np.int32),  # type: ignore[call-overload]
        share=share.astype(np.float32),
        bytes=(made / np.asarray(problem.capacity, np.float64).mean()).astype(np.float32),
        tensor=tensor.astype(np.int32),
        maker=producer[tensor].astype(np.int32),
        reader=np.asarray(problem.consumer).astype(np.int32),
        sent=weight.astype(np.float32),
        times=times.astype(np.float32),
    )


def log_share(share: Any) -> Any:
    """Return a share in 0..1 on a logarithmic scale in 0..1, linear below about 1e-4."""
    return jnp.log1p(jnp.asarray(1e4 * share, jnp.float32)) / math.log1p(1e4)


def _starts(problem: Problem, ticks: np.ndarray) -> np.ndarray:
    """Return the longest path to the start of each op, without transfers, `[N]`."""
    uses = int(problem.num_uses)
    maker = np.asarray(problem.producer)[np.asarray(problem.tensor)[:uses]].tolist()
    reader = np.asarray(problem.consumer)[:uses].tolist()
    start, time = [0.0] * len(ticks), ticks.tolist()
    for i, j in zip(maker, reader, strict=True):  # sorted by producer
        start[j] = max(start[j], start[i] + time[i])
    return np.array(start)
