"""m-ETF in plain Python: every ready op is tried on every device, and memory is recounted."""

import copy
import dataclasses
from typing import Any

import numpy as np

from gopt.cost.schedule.problem import Problem


@dataclasses.dataclass
class State:
    """Placed ops and their times.

    Attributes:
      device: device of each placed op. An input is placed with the first of its consumers.
      ops: placed ops in order, without inputs.
      bound: device of each bound group.
      end: end of each placed op, ticks.
      arrival: arrival of each transferred tensor, by tensor and destination, ticks.
      device_free: time at which each device is free, ticks.
      link_free: time at which each link is free, ticks.
    """

    device: dict[int, int]
    ops: list[int]
    bound: dict[int, int]
    end: dict[int, int]
    arrival: dict[tuple[int, int], int]
    device_free: dict[int, int]
    link_free: dict[int, int]


class Graph:
    """A problem as lists. Inputs are in the group of their first consumer."""

    def __init__(self, problem: Problem, group: Any):
        self.problem = problem
        self.ops = range(int(problem.num_ops))
        self.tensors = range(int(problem.num_tensors))
        uses = range(int(problem.num_uses))
        self.readers = {
            t: [int(problem.consumer[e]) for e in uses if problem.tensor[e] == t]
            for t in self.tensors
        }
        self.maker = {t: int(problem.producer[t]) for t in self.tensors}
        self.made = {i: [t for t in self.tensors if self.maker[t] == i] for i in self.ops}
        self.reads = {i: [t for t in self.tensors if i in self.readers[t]] for i in self.ops}
        self.is_input = [bool(problem.is_input[i]) for i in self.ops]
        first = {
            i: min((r for t in self.made[i] for r in self.readers[t]), default=i) for i in self.ops
        }
        self.group = [int(group[first[i] if self.is_input[i] else i]) for i in self.ops]
        self.kept: dict[int, set[int]] = {one: set() for one in self.group}
        for t in self.tensors:  # inputs of a group, and its pinned tensors
            maker = self.maker[t]
            if problem.pinned[t] or (self.is_input[maker] and self.readers[t]):
                self.kept[self.group[maker]].add(t)
        self.level: dict[int, float] = {}
        for i in reversed(self.ops):
            after = [self.level[r] for t in self.made[i] for r in self.readers[t]]
            self.level[i] = float(np.mean(problem.op_ticks[i])) + max(after, default=0.0)


def run(problem: Problem, group: Any) -> list[int]:
    """Return the device of each real op; inputs are on the device of their first consumer by index.

    Transfers must be asynchronous, and all ops must be allowed everywhere.
    """
    graph = Graph(problem, group)
    state = State({}, [], {}, {}, {}, {}, {})
    while True:
        pairs = [
            (op, device)
            for op in graph.ops
            if _is_ready(graph, state, op)
            for device in range(problem.num_devices)
            if state.bound.get(graph.group[op], device) == device
        ]
        if not pairs:
            break
        where = {t: _where(graph, state, t) for t in graph.tensors}
        held = [
            sum(int(problem.size[t]) for t in graph.tensors if device in where[t])
            for device in range(problem.num_devices)
        ]
        beyond = {
            (op, device): held[device]
            + _need(graph, state, op, device)
            - int(problem.capacity[device])
            for op, device in pairs
        }
        after = {pair: _placed(graph, state, *pair) for pair in pairs}
        fitting = [pair for pair in pairs if beyond[pair] <= 0]
        if fitting:

            def earliest(pair: tuple[int, int], after: Any = after) -> tuple[float, ...]:
                start = after[pair].end[pair[0]] - problem.op_ticks[pair]
                return start, -graph.level[pair[0]], *pair

            chosen = min(fitting, key=earliest)
        else:
            chosen = min(pairs, key=lambda pair: (beyond[pair], *pair))
        state = _bind(graph, after[chosen], *chosen)
    device = [state.device.get(op, 0) for op in graph.ops]
    for op in graph.ops:
        if graph.is_input[op]:
            readers = [reader for t in graph.made[op] for reader in graph.readers[t]]
            device[op] = device[min(readers)] if readers else 0
    return device


def _is_ready(graph: Graph, state: State, op: int) -> bool:
    makers = [graph.maker[t] for t in graph.reads[op]]
    waits = any(not graph.is_input[maker] and maker not in state.device for maker in makers)
    return not graph.is_input[op] and op not in state.device and not waits


def _placed(graph: Graph, state: State, op: int, device: int) -> State:
    """Return the state after an op is placed and its missing inputs are transferred."""
    state, problem = State(*(copy.copy(part) for part in vars(state).values())), graph.problem
    for tensor in graph.reads[op]:
        maker = graph.maker[tensor]
        if graph.is_input[maker]:
            state.device.setdefault(maker, device)
            state.end[maker] = 0
    made = {t: state.end[graph.maker[t]] for t in graph.reads[op]}
    for tensor in sorted(graph.reads[op], key=lambda t: (made[t], t)):
        home = state.device[graph.maker[tensor]]
        if home != device and (tensor, device) not in state.arrival:
            link = int(problem.channel[home, device])
            start = max(made[tensor], state.link_free.get(link, 0) if link >= 0 else 0)
            end = start + int(problem.transfer_ticks[tensor, home, device])
            state.arrival[tensor, device] = state.link_free[link] = end
    arrived = [state.arrival.get((t, device), made[t]) for t in graph.reads[op]]
    start = max([state.device_free.get(device, 0), *arrived])
    state.end[op] = state.device_free[device] = start + int(problem.op_ticks[op, device])
    state.device[op] = device
    state.ops.append(op)
    return state


def _bind(graph: Graph, state: State, op: int, device: int) -> State:
    """Return the state after the op's group is bound to a device, with the group's inputs there."""
    if graph.group[op] not in state.bound:
        state.bound[graph.group[op]] = device
        for other in graph.ops:
            if graph.is_input[other] and graph.group[other] == graph.group[op]:
                state.device.setdefault(other, device)
                state.end[other] = 0
    return state


def _need(graph: Graph, state: State, op: int, device: int) -> int:
    """Return the units that an op needs on a device, and also its group if not yet bound."""
    lacks = {*graph.reads[op], *graph.made[op]}
    if graph.group[op] not in state.bound:
        lacks |= graph.kept[graph.group[op]]
    lacks = {t for t in lacks if device not in _ever(graph, state, t)}
    return sum(int(graph.problem.size[t]) for t in lacks) + int(graph.problem.workspace[op])


def _ever(graph: Graph, state: State, tensor: int) -> set[int]:
    """Return the devices that hold, held, or reserve memory for a tensor."""
    maker = graph.maker[tensor]
    ends = [maker, *graph.readers[tensor]]
    where = {state.device[op] for op in ends if op in state.ops}
    if graph.group[maker] in state.bound and tensor in graph.kept[graph.group[maker]]:
        where.add(state.bound[graph.group[maker]])
    return where


def _where(graph: Graph, state: State, tensor: int) -> set[int]:
    """Return the devices on which a tensor takes memory; after its last consumer only if pinned."""
    where, maker = _ever(graph, state, tensor), graph.maker[tensor]
    placed = maker in state.ops or graph.is_input[maker]
    if placed and where and all(reader in state.device for reader in graph.readers[tensor]):
        return where & {state.device[maker]} if graph.problem.pinned[tensor] else set()
    return where
