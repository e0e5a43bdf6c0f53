"""Schedules of kernels in plain Python: a smaller problem in which each kernel is one op."""

from typing import Any

import numpy as np

from gopt.cost.fusion.problem import FusionProblem
from gopt.cost.joint.problem import MAX_SLOWDOWN, JointProblem
from gopt.cost.schedule.decoding import Keys
from gopt.cost.schedule.problem import Problem
from tests.reference.fusion import Graph, by_level


def contracted(joint: JointProblem, level: Any) -> tuple[Problem, list[int], list[int]]:
    """Return the problem of inputs and kernels, and the original indices of its ops and tensors."""
    base, graph = joint.schedule, Graph(joint.fusion[0])
    members = by_level(joint.fusion[0], level, graph)
    end_of = {op: end for end, inside in members.items() for op in inside}
    ops = [op for op in graph.ops if base.is_input[op] or op in members]
    tensors = [t for t in range(int(base.num_tensors)) if int(base.producer[t]) in ops]
    uses = sorted(
        {
            (tensors.index(tensor), ops.index(end_of[reader]))
            for tensor, maker, reader, _ in graph.uses
            if end_of[maker] != end_of[reader]
        }
    )
    ticks = [_ticks(fusion, members) for fusion in joint.fusion]
    op_ticks = [
        [ticks[kind].get(op, 0) * int(base.allowed[op][d]) for d, kind in enumerate(joint.kind)]
        for op in ops
    ]
    workspace = [max(int(base.workspace[member]) for member in members[op]) for op in ops]

    def padded(values: Any, fill: Any) -> np.ndarray:
        values = np.asarray(values)
        return np.concatenate([values.reshape(-1, *np.shape(fill)), [fill]]).astype(
            np.asarray(fill).dtype
        )

    devices, (n, t) = len(joint.kind), (len(ops), len(tensors))
    tensor, consumer = (padded([use[k] for use in uses], np.int32([t, n][k])) for k in (0, 1))
    order = np.lexsort((tensor, consumer))
    producer = padded([ops.index(int(base.producer[k])) for k in tensors], np.int32(n))
    small = base._replace(
        op_ticks=padded(op_ticks, np.zeros(devices, np.int32)),
        transfer_ticks=padded(base.transfer_ticks[tensors], np.zeros((devices, devices), np.int32)),
        size=padded(base.size[tensors], np.int32(0)),
        workspace=padded(workspace, np.int32(0)),
        allowed=padded(base.allowed[ops], np.ones(devices, bool)),
        is_input=padded(base.is_input[ops], np.bool_(False)),
        pinned=padded(base.pinned[tensors], np.bool_(False)),
        producer=producer,
        tensor=tensor,
        consumer=consumer,
        first_tensor=np.searchsorted(producer, np.arange(n + 2)),
        first_use=np.searchsorted(tensor, np.arange(t + 2)),
        read=tensor[order],
        first_read=np.searchsorted(consumer[order], np.arange(n + 2)),
        num_ops=np.int32(n),
        num_tensors=np.int32(t),
        num_uses=np.int32(len(uses)),
    )
    return small, ops, tensors


def keys_of(keys: Keys, ops: list[int], tensors: list[int]) -> Keys:
    """Return the keys of some ops and tensors, with one padding row each."""
    rows, sent = [*ops, 0], [*tensors, 0]
    priority = None if keys.priority is None else keys.priority[rows]
    return Keys(keys.device[rows], priority, keys.transfer[sent])


def _ticks(fusion: FusionProblem, members: dict[int, set[int]]) -> dict[int, int]:
    """Return the time of each kernel, by the op that ends it, ticks."""
    graph = Graph(fusion)
    alone = graph.timed({op: {op} for op in graph.ops}).time
    return {
        end: min(time, MAX_SLOWDOWN * sum(alone[op] for op in members[end]))
        for end, time in graph.timed(members).time.items()
    }
