"""A graph whose ops are placed and fused: what the cost of both decisions together reads.

A schedule and a fusion are costed by two problems, of the same ops and in one tick. An op by itself
takes what a kernel with nothing else in it takes, by `gopt.cost.fusion.problem`: flops are weighed
by kind, an op that reads a part of a tensor pays for the part, and readers make broadcasts
themselves. So in the schedule, too, such broadcasts do not run, and make and read nothing: their
readers read what is broadcast.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gopt.cost.fusion.problem import OVERLAP_BITS, FusionProblem, power_of_two, prepare_fusion
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import Hardware, check_hardware, unit_rate_devices
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Shape
from gopt.graph.kinds import INPUT

SLOWEST = 8  # a kernel counts as at most so many times what its ops take one by one; our choice
SENT_TICKS = 2**28  # all transfers take no more, and with all kernels less than `MAX_TICKS`


class JointProblem(NamedTuple):
    """Two problems of one graph, with the same rows of ops and the same tick. `D` devices."""

    schedule: Problem  # where nothing is fused
    fusion: tuple[FusionProblem, ...]  # without clones, one for each kind of device
    kind: Any  # int32 [D], which of them is that of a device


def schedule_of(problem: Problem | JointProblem) -> Problem:
    """Returns the problem of scheduling ops that are not fused."""
    return problem.schedule if isinstance(problem, JointProblem) else problem


def prepare_joint(
    graph: Graph,
    hardware: Hardware,
    *,
    rules: Rules = RULES["cpu"],
    allowed: Any = None,
    rows: tuple[int, int] | None = None,
) -> JointProblem:
    """Returns the int32 problems of placing, ordering and fusing the ops of one graph.

    An op may be fused if its readers may only run where it may, too. Devices that compute, move and
    launch equally fast are of one kind.

    Args:
      graph: padded or not; one padding row is added where there is none.
      hardware: the machine.
      rules: what may be fused; there are no clones, whatever they say.
      allowed: which op may run on which device, bool `[N, D]`; by default every one on all.
      rows: of accesses and visits of the fusion, with padding; by default those of
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
    rules = Rules(rules.into, rules.limit, clones=False)
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
    seconds = tick * np.stack([alone(problem)[:n] for problem in fusion], 1)[:, kind]
    schedule = prepare(reduced, hardware, seconds=seconds, allowed=allowed, tick=tick)
    return JointProblem(schedule, tuple(fusion), kind.astype(np.int32))


def alone(problem: FusionProblem) -> np.ndarray:
    """Returns what each op takes as a kernel of its own, ticks, int64 `[N]`; 0 if it is none."""
    read = np.bincount(problem.access, problem.read, minlength=len(problem.compute))
    memory = problem.memory + read.astype(np.int64)
    hidden = int(problem.overlap) * np.minimum(problem.compute, memory) >> OVERLAP_BITS
    return np.where(problem.is_kernel, problem.compute + memory - hidden + problem.launch, 0)


def _machines(hardware: Hardware) -> tuple[list[Hardware], np.ndarray]:
    """Returns a machine of one device for each kind of them, and the kind of each device."""
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
    """Returns a tick by which all transfers, and the slowest kernels, are no longer than said."""
    # The slowest ops of all kinds of devices take no more than the ops of each kind together.
    ops = sum(float(problem.tick) for problem in fusion if alone(problem).any())
    transfers = sent.transfer_ticks.astype(np.int64).max(1).sum() * float(sent.tick)
    least = max(ops, transfers / SENT_TICKS)
    return power_of_two(least) if least > 0 else 1.0


def _without_broadcasts(graph: Graph, problem: FusionProblem) -> Graph:
    """Returns a padded graph with the uses of a fusion; what is no kernel there is an input."""
    count = int(problem.num_accesses)
    tensor, op = np.asarray(problem.tensor)[:count], np.asarray(problem.access)[:count]
    is_use = np.diff(tensor, prepend=-1) == 0  # after the maker of each tensor
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
    """Returns which ops may run wherever any of their readers may, bool `[N]`."""
    count = np.diff(problem.first_use)
    maker = np.repeat(np.arange(len(count)), count)
    is_not = (allowed[problem.consumer[: len(maker)]] & ~allowed[maker]).any(1)
    return np.bincount(maker, is_not, minlength=len(count)) == 0
