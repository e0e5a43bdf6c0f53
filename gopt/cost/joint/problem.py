"""A graph whose ops are placed and fused: the input of the joint cost model.

A schedule and a fusion are costed by two problems, with the same ops and the same tick. The time of
an op is the time of a kernel with this op only, as in `gopt.cost.fusion.problem`. Flops are
weighted by kind, an op that reads part of a tensor pays for that part, and consumers make
broadcasts themselves. In the schedule, too, such a broadcast does not run, and neither reads nor
makes a tensor: its consumers read the broadcast operand.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem, power_of_two, prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import Hardware, check_hardware, unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Shape
from gopt.graph.kinds import INPUT

MAX_SLOWDOWN = 8  # cap on the time of a kernel, as a multiple of its unfused ops; our choice
MAX_TRANSFER_TICKS = (
    2**28
)  # at least the ticks of all transfers; with all kernels below `MAX_TICKS`


class JointProblem(NamedTuple):
    """Two problems of one graph, with the same rows of ops and the same tick. `D` devices.

    Attributes:
      schedule: scheduling problem of the unfused ops.
      fusion: fusion problems without duplication, one per kind of device.
      kind: int32 `[D]`; index in `fusion` of each device's kind.
    """

    schedule: Problem
    fusion: tuple[FusionProblem, ...]
    kind: Any


def schedule_of(problem: Problem | JointProblem) -> Problem:
    """Return the scheduling problem of the unfused ops."""
    return problem.schedule if isinstance(problem, JointProblem) else problem


def prepare_joint(
    graph: Graph,
    hardware: Hardware,
    *,
    rules: Rules = RULES["cpu"],
    allowed: Any = None,
    rows: tuple[int, int] | None = None,
) -> JointProblem:
    """Return the int32 problems of placing, ordering and fusing the ops of one graph.

    An op may be fused only if it is allowed on every device where one of its consumers is. Devices
    of equal compute, memory and launch rates are of one kind.

    Args:
      graph: graph, padded or not; gets one padding row per axis if it lacks one.
      hardware: machine of `D` devices.
      rules: fusion rules; `allow_duplication` is ignored and taken as false.
      allowed: mask of the devices where each op may run, bool `[N, D]`; by default all true.
      rows: padded numbers of accesses and visits of the fusion; by default
        `gopt.cost.fusion.problem.fusion_bucket`.

    Raises:
      ValueError: see `gopt.cost.schedule.problem.prepare` and
        `gopt.cost.fusion.problem.prepare_fusion`.
    """
    check_hardware(hardware)
    graphs.check(graph)
    n, t, e = int(graph.num_ops), int(graph.num_tensors), int(graph.num_uses)
    if min(np.subtract(graphs.shape_of(graph), (n, t, e))) < 1:
        graph = padding.pad(graph, Shape(n + 1, t + 1, e + 1))
    rules = Rules(rules.fuses_into, rules.max_kernel_ops, allow_duplication=False)
    machines, kind = _machines(hardware)

    fusion = [prepare_fusion(graph, machine, rules=rules) for machine in machines]
    reduced = _without_broadcasts(graph, fusion[0])
    sent = prepare(reduced, hardware, seconds=np.zeros(n), allowed=allowed)
    tick = _tick(fusion, sent)
    rows = rows or (len(fusion[0].access), len(fusion[0].reach.kernel))
    final = partial(
        prepare_fusion,
        graph,
        rules=rules,
        fusible=_where_readers_may(fusion[0], sent.allowed)[:n],
        rows=(graphs.shape_of(graph).ops, *rows),
        tick=tick,
    )
    fusion = [final(machine) for machine in machines]
    seconds = tick * np.stack([unfused_ticks(problem)[:n] for problem in fusion], 1)[:, kind]
    schedule = prepare(reduced, hardware, seconds=seconds, allowed=allowed, tick=tick)
    return JointProblem(schedule, tuple(fusion), kind.astype(np.int32))


def unfused_ticks(problem: FusionProblem) -> Int64[np.ndarray, " N"]:
    """Return the time of each op as a kernel of its own, ticks, int64 `[N]`; 0 for other ops."""
    read = np.bincount(problem.access, problem.read, minlength=len(problem.compute))
    memory = problem.memory + read.astype(np.int64)
    hidden = int(problem.overlap) * np.minimum(problem.compute, memory) >> OVERLAP_BITS
    return np.where(problem.is_kernel, problem.compute + memory - hidden + problem.launch, 0)


def _machines(hardware: Hardware) -> tuple[list[Hardware], np.ndarray]:
    """Return a machine of one device per kind of device, and the kind of each device."""
    rates = np.stack([hardware.flop_rate, hardware.memory_bandwidth, hardware.launch], 1)
    kinds, kind = np.unique(rates, axis=0, return_inverse=True)
    machines = [
        unit_rate_devices(
            1,
            flop_rate=flop_rate,
            memory_bandwidth=bandwidth,
            launch=launch,
            overlap=float(hardware.overlap),
        )
        for flop_rate, bandwidth, launch in kinds.tolist()
    ]
    return machines, kind.ravel()


def _tick(fusion: list[FusionProblem], sent: Problem) -> float:
    """Return a tick, s, that keeps transfers within `MAX_TRANSFER_TICKS`, ops within
    `MAX_UNFUSED_TICKS`.
    """
    # The slowest times of ops add up to no more than the times on all kinds of devices.
    ops = sum(float(problem.tick) for problem in fusion if unfused_ticks(problem).any())
    transfers = sent.transfer_ticks.astype(np.int64).max(1).sum() * float(sent.tick)
    least = max(ops, transfers / MAX_TRANSFER_TICKS)
    return power_of_two(least) if least > 0 else 1.0


def _without_broadcasts(graph: Graph, problem: FusionProblem) -> Graph:
    """Return a padded graph with the uses of a fusion problem; ops it removed become inputs."""
    count = int(problem.num_accesses)
    tensor, op = np.asarray(problem.tensor)[:count], np.asarray(problem.access)[:count]
    is_use = np.diff(tensor, prepend=-1) == 0  # rows after the producer of a tensor
    tensor, op = tensor[is_use], op[is_use]
    order = np.lexsort((op, tensor))
    rows, n = graphs.shape_of(graph), int(graph.num_ops)

    def uses(values: np.ndarray, fill: int) -> np.ndarray:
        padded = np.full(rows.uses, fill, np.int32)
        padded[: len(order)] = values[order]
        return padded

    runs = np.append(problem.is_kernel[:n], np.ones(rows.ops - n, bool))
    is_gone = ~runs & ~np.asarray(graphs.is_input(graph))
    return graph._replace(
        kind=np.where(runs, graph.kind, INPUT),
        size=np.where(is_gone[graph.producer], 0, graph.size),
        tensor=uses(tensor, rows.tensors - 1),
        consumer=uses(op, rows.ops - 1),
        num_uses=np.int32(len(order)),
    )


def _where_readers_may(problem: FusionProblem, allowed: np.ndarray) -> np.ndarray:
    """Return a mask of the ops allowed on every device where a consumer is allowed. bool `[N]`."""
    count = np.diff(problem.first_use)
    maker = np.repeat(np.arange(len(count)), count)
    is_not = (allowed[problem.consumer[: len(maker)]] & ~allowed[maker]).any(1)
    return np.bincount(maker, is_not, minlength=len(count)) == 0
