"""Inputs of the network: the graph of a fusion problem with features."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.fusion.rules import REPEATABLE
from gopt.graph.graph import MAX_RANK, Graph
from gopt.learning.graphs import GraphsTuple, largest_dimensions
from gopt.program.primitives import ROLES
from gopt.systems.local_advantage.settings import Settings

_BITS = REPEATABLE.bit_length()

OP_FEATURES: tuple[str, ...] = (
    *("compute", "memory", "read", "largest_read"),
    *("readers", "reads", "repeated"),
    *(f"role_{role}" for role in ROLES),
    *(f"into_{bit}" for bit in range(_BITS)),
    *("is_kernel", "configurable"),
    *(f"dimension_{axis}" for axis in range(MAX_RANK)),
)
USE_FEATURES: tuple[str, ...] = ("read", "times", "may", "share_of_readers", "share_of_reads")


def inputs(graph: Graph, problem: FusionProblem, *, settings: Settings) -> GraphsTuple:
    """Return a fusion problem as a `GraphsTuple` of two graphs: the real rows and the padding.

    Edges are uses, from producer to consumer, one for each pair of ops. `nodes` is a dict of `kind`
    (int32 `[N]`) and `features` (float32 `[N, F]`); `edges` is float32 `[E, D]`. Columns are in the
    order of `OP_FEATURES` and `USE_FEATURES`; `N` ops and `E` edges, with padding. Times are
    log(1 + t / mean time of a kernel of one op), counts and dimensions log(1 + x), so that features
    do not depend on units. Fusion rules are as in the problem: a bit of `into` for each role that
    an op may be fused into, and one for ops that may be repeated.

    Args:
      graph: the ops.
      problem: problem of the graph, padded as `gopt.cost.fusion.problem.fusion_bucket` says.
      settings: settings of the network. All read the same.
    """
    del settings
    n, count = int(problem.num_ops), int(problem.num_accesses)
    rows, room = len(problem.compute), len(problem.access)
    sender, receiver, read, repetitions = _uses(problem, n, count)
    launch = int(problem.launch)
    reads = np.bincount(receiver, read, minlength=n)
    alone = np.where(problem.is_kernel[:n], problem.compute[:n] + problem.memory[:n] + reads, 0)
    mean = (alone[problem.is_kernel[:n]] + launch).mean() if problem.is_kernel.any() else 1.0

    def ticks(values: Any) -> np.ndarray:
        return np.log1p(np.asarray(values, np.float64) / max(mean, 1.0))

    largest = np.zeros(n)
    np.maximum.at(largest, receiver, read)
    repeated = np.ones(n)
    np.maximum.at(repeated, sender, repetitions)
    readers, operands = np.bincount(sender, minlength=n), np.bincount(receiver, minlength=n)
    role, fuses_into = problem.role[:n], problem.fuses_into[:n]
    columns = [
        *(ticks(x) for x in (problem.compute[:n], problem.memory[:n], reads, largest)),
        *(np.log1p(x) for x in (readers, operands, repeated)),
        *(role >> bit & 1 for bit in range(len(ROLES))),
        *(fuses_into >> bit & 1 for bit in range(_BITS)),
        *(problem.is_kernel[:n], problem.configurable[:n]),
    ]
    features = np.zeros((rows, len(OP_FEATURES)), np.float32)
    features[:n] = np.concatenate([np.stack(columns, 1), np.log1p(largest_dimensions(graph))], 1)
    edges = np.zeros((room, len(USE_FEATURES)), np.float32)
    edges[: len(sender)] = np.stack(
        [
            *(ticks(read), np.log1p(repetitions), fuses_into[sender] & role[receiver] != 0),
            *(1 / readers[sender], read / np.maximum(reads[receiver], 1)),
        ],
        1,
    )

    def ends(ops: np.ndarray) -> np.ndarray:
        result = np.full(room, rows - 1, np.int32)
        result[: len(ops)] = ops
        return result

    kind = np.zeros(rows, np.int32)
    kind[:n] = np.asarray(graph.kind)[:n]
    return GraphsTuple(
        nodes={"kind": kind, "features": features},
        edges=edges,
        senders=ends(sender),
        receivers=ends(receiver),
        globals=None,
        n_node=np.array([n, rows - n], np.int32),
        n_edge=np.array([len(sender), room - len(sender)], np.int32),
    )


def configurable_ops(inputs: GraphsTuple) -> Bool[jax.Array, " N"]:
    """Return the ops that have a decision, bool `[N]`."""
    features = cast(jax.Array, inputs.nodes["features"])
    return jnp.asarray(features[:, OP_FEATURES.index("configurable")]) > 0


def _uses(problem: FusionProblem, n: int, count: int) -> tuple[np.ndarray, ...]:
    """Return producer, consumer, ticks to read, and number of reads of each pair of ops."""
    tensor, access = problem.tensor[:count], problem.access[:count]
    first = np.flatnonzero(np.diff(tensor, prepend=-1))
    is_use = np.ones(count, bool)
    is_use[first] = False
    maker = np.repeat(access[first], np.diff(first, append=count))
    pairs, index = np.unique(
        maker[is_use].astype(np.int64) * n + access[is_use], return_inverse=True
    )
    read = np.bincount(index, problem.read[:count][is_use], minlength=len(pairs))
    uses = int(problem.first_use[n])
    makers = np.repeat(np.arange(n), np.diff(problem.first_use[: n + 1]))
    where = np.searchsorted(pairs, makers * n + problem.consumer[:uses])
    repetitions = np.ones(len(pairs))
    np.maximum.at(repetitions, where, problem.repetitions[:uses])
    return pairs // max(n, 1), pairs % max(n, 1), read, repetitions
