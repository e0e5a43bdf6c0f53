"""Places of graphs that are too large to factorise, and the cut that is made along places."""

import math

import numpy as np
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import schedules_tried
from gopt.heuristics.schedule.orders import memory_orders
from gopt.heuristics.schedule.placement import order_splits, spectral
from gopt.sources import synthetic
from tests import strategies
from tests.reference.execution import run
from tests.strategies import SMALL

COUNT = 3


def of(graph):
    """Sender and receiver of all uses of a graph."""
    tensor = graph.tensor[: int(graph.num_uses)]
    return graph.producer[tensor], graph.consumer[: len(tensor)]


def towers(count, ops):
    """Chains that the program goes through side by side, joined at their ends."""
    sender = np.r_[np.arange(ops - count), np.arange(ops - count, ops - 1)]
    return sender, np.r_[np.arange(count, ops), np.arange(ops - count + 1, ops)]


def step(ops):
    """A chain and its gradient, which reads it backwards."""
    half = np.arange(ops // 2)
    forward, back = half[:-1], half[:-1] + ops // 2
    sender = np.r_[forward, back, ops // 2 - 1, half]
    return sender, np.r_[forward + 1, back + 1, ops // 2, ops - 1 - half]


GRAPHS = {
    "layered": (400, of(synthetic.layered(0, 400))),
    "random": (400, of(synthetic.erdos_renyi(0, 400, density=0.01))),
    "two towers": (5000, towers(2, 5000)),
    "step": (5000, step(5000)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_iterations_come_close_to_the_eigenvectors(monkeypatch, name):
    ops, (sender, receiver) = GRAPHS[name]
    args = sender, receiver, np.ones(len(sender)), np.ones(ops), COUNT
    exact = spectral.spectral_coordinates(*args)
    monkeypatch.setattr(spectral, "EXACT", 10)
    monkeypatch.delattr(spectral.linalg, "eigsh")
    close = spectral.spectral_coordinates(*args)
    for one, other in zip(exact, close, strict=True):
        assert abs(np.corrcoef(one, other)[0, 1]) > 0.999


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("devices", (1, 2, 3))
def test_the_cut_that_peaks_least_is_kept(seed, devices):
    rng = np.random.default_rng(seed)
    graph = strategies.random_graph(rng, 20, 0.15)
    problem = strategies.random_case(rng, graph, devices, allowed=0.7).problem(SMALL)
    order = memory_orders.lowest_order(problem)
    x, y = spectral.op_coordinates(problem, 2)
    tried = [[device] * len(order) for device in range(devices)]
    for count in range(2, devices + 1):
        for turn in range(spectral.TURNS):
            ways = [2 * math.pi * (d + turn / spectral.TURNS) / count for d in range(count)]
            along = [[x[op] * math.cos(w) + y[op] * math.sin(w) for w in ways] for op in order]
            tried.append([reach.index(max(reach)) for reach in along])
    peaks = [
        memory_orders.peak_memory_of(
            problem, *order_splits.serial_schedule(problem, order, np.array(wanted))
        ).max()
        for wanted in tried
    ]
    assert max(run(problem, spectral.spectral_cut(problem)).peak) == min(peaks)
    assert schedules_tried("spectral_cut", devices) == len(memory_orders.ORDERS) + len(tried)


def test_parts_that_hardly_touch_get_a_device_each():
    """Two ladders whose tensors all live to the end, with one small use from one to the other."""
    made = (Output(8, pinned=True), Output(1))
    ops = []
    for first in (0, 10):
        ops.append(Op(inputs=((9, 1),) if first else (), outputs=made))
        ops.append(Op(inputs=((first, 0),), outputs=made))
        ops += [
            Op(inputs=((op - 1, 0), (op - 2, 0)), outputs=made)
            for op in range(first + 2, first + 10)
        ]
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    schedule = run(problem, spectral.spectral_cut(problem))
    assert {*schedule.device[:10]} | {*schedule.device[10:20]} == {0, 1}
    assert len({*schedule.device[:10]}) == len({*schedule.device[10:20]}) == 1
