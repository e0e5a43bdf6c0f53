"""List scheduling on examples worked out elsewhere or by hand, and against plain versions."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gopt.cost.hardware import bus_channels, h100s, ideal, unit_rate_devices
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import critical_path, etf, heft
from gopt.heuristics.schedule.placement.list_scheduling import levels, mean_transfer_ticks
from gopt.heuristics.schedule.placement.partial_schedule import PartialSchedule
from gopt.heuristics.schedule.placement.timeline import Tail
from gopt.heuristics.schedule.readiness import ReadinessTracker
from gopt.sources.synthetic import watts_strogatz
from tests import strategies
from tests.reference.execution import run
from tests.strategies import SMALL

# The example of Topcuoglu, Hariri, Wu 2002: ten tasks on three processors.
TIMES = [
    *([14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10]),
    *([13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16]),
]
EDGES = [
    *((0, 1, 18), (0, 2, 12), (0, 3, 9), (0, 4, 11), (0, 5, 14), (1, 7, 19), (1, 8, 16)),
    *((2, 6, 23), (3, 7, 27), (3, 8, 23), (4, 8, 13), (5, 7, 15), (6, 9, 17), (7, 9, 11)),
    (8, 9, 13),
]


@pytest.fixture
def published():
    outputs = [[Output(cost) for u, _, cost in EDGES if u == task] for task in range(10)]
    edges = [[(u, v) for u, v, _ in EDGES if u == task] for task in range(10)]
    inputs = [
        [(u, k) for u in range(10) for k, (_, reader) in enumerate(edges[u]) if reader == v]
        for v in range(10)
    ]
    ops = [Op(inputs=tuple(i), outputs=tuple(o)) for i, o in zip(inputs, outputs, strict=True)]
    return prepare(from_ops(ops), ideal(3), seconds=TIMES)


def test_upward_ranks_of_the_published_example(published):
    ranks = levels(published, mean_transfer_ticks(published))[:10]
    expected = [108, 77, 80, 80, 69, 63 + 1 / 3, 42 + 2 / 3, 35 + 2 / 3, 44 + 1 / 3, 14 + 2 / 3]
    np.testing.assert_allclose(ranks, expected)


def test_heft_reaches_the_published_makespan(published):
    assert run(published, heft(published)).makespan == 80


def test_heft_fills_a_gap():
    """Device 0 waits from 2 to 12 for a tensor; the op of lowest rank goes there."""
    graph = from_ops(
        [
            Op(outputs=(Output(1),)),
            Op(outputs=(Output(10),)),
            Op(inputs=((0, 0), (1, 0))),
            Op(),
        ]
    )
    seconds = [[2, 2], [2, 2], [9, 9], [3, 3]]
    only = [[1, 0], [0, 1], [1, 0], [1, 0]]
    problem = prepare(graph, ideal(2), seconds=seconds, allowed=only)
    expected = run(problem, heft(problem))
    assert (expected.start[2], expected.start[3]) == (12, 2)
    assert run(problem, critical_path(problem)).start[3] == 21  # which only appends


@pytest.mark.parametrize("heuristic", (heft, etf, critical_path))
def test_the_longer_path_goes_first(heuristic):
    graph = from_ops([Op(), Op(outputs=(Output(1),)), Op(inputs=((1, 0),))])
    problem = prepare(graph, ideal(1), seconds=[2, 1, 2])
    assert run(problem, heuristic(problem)).start[1] == 0


@pytest.mark.parametrize("heuristic", (heft, etf, critical_path))
def test_tensors_are_sent_as_they_are_made(heuristic):
    """The tensor of lower index is made at 4, after the other one at 1; a link takes 3 for each."""
    ops = [
        Op(outputs=(Output(3),)),
        Op(outputs=(Output(3),)),
        Op(inputs=((0, 0), (1, 0))),
    ]
    only = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    hardware = unit_rate_devices(3, channel=lambda d: np.zeros((d, d), np.int32))
    problem = prepare(from_ops(ops), hardware, seconds=[4, 1, 1], allowed=only)
    expected = run(problem, heuristic(problem))
    assert (expected.start[2], expected.makespan) == (7, 8)


@pytest.mark.parametrize("heuristic", (heft, etf, critical_path))
def test_contention_is_seen(heuristic):
    """Four ops of 3 s read an own tensor each: a shared link is worth less than own links."""
    maker = Op(outputs=tuple(Output(2) for _ in range(4)))
    readers = [Op(inputs=((0, k),)) for k in range(4)]
    graph = from_ops([maker, *readers])
    seconds = [1, 3, 3, 3, 3]
    free = prepare(graph, ideal(5), seconds=seconds)
    bus = prepare(graph, unit_rate_devices(5, channel=bus_channels), seconds=seconds)
    # Own links: one reader stays, three read from 3 s on. A bus sends at 1, 3 and 5 s: the
    # second reader at home (4 to 7 s) is as good as the third that is sent (5 to 8 s).
    assert run(free, heuristic(free)).makespan == 6
    assert run(bus, heuristic(bus)).makespan == 8


@pytest.mark.parametrize("heuristic", (heft, etf, critical_path))
def test_a_slow_link_keeps_a_chain_on_one_device(heuristic):
    ops = [Op(outputs=(Output(50),))]
    ops += [Op(inputs=((i, 0),), outputs=(Output(50),)) for i in range(6)]
    graph = from_ops(ops)
    for synchronous in (False, True):
        problem = prepare(graph, ideal(3, synchronous=synchronous), seconds=[1] * 7)
        expected = run(problem, heuristic(problem))
        assert expected.makespan == 7
        assert len(set(expected.device)) == 1


@pytest.mark.parametrize("heuristic", (heft, etf, critical_path))
def test_an_input_is_at_its_first_reader(heuristic):
    """Both ops may run on device 1 only: the input is there, and nothing has to be sent."""
    reader = Op(inputs=((0, 0),))
    graph = from_ops([Op("input", outputs=(Output(9),)), reader, reader])
    allowed = [[1, 1], [0, 1], [0, 1]]
    problem = prepare(graph, ideal(2), seconds=[0, 2, 2], allowed=allowed)
    expected = run(problem, heuristic(problem))
    assert (expected.device, expected.makespan) == ([1, 1, 1], 4)


@pytest.mark.parametrize("heuristic", (heft, etf, critical_path))
def test_an_input_that_may_not_be_there_is_as_near_as_it_may(heuristic):
    graph = from_ops([Op("input", outputs=(Output(6),)), Op(inputs=((0, 0),))])
    hardware = unit_rate_devices(3)
    hardware.bandwidth[0, 2] = 1.0
    hardware.bandwidth[1, 2] = 3.0
    allowed = [[1, 1, 0], [0, 0, 1]]
    problem = prepare(graph, hardware, seconds=[0, 1], allowed=allowed)
    expected = run(problem, heuristic(problem))
    assert (expected.device, expected.makespan) == ([1, 2], 3)


def rescan(problem):
    """ETF that looks at every ready op on every device at each step."""
    level = levels(problem, np.zeros(problem.shape.tensors))
    schedule, waiting = PartialSchedule(problem, Tail), ReadinessTracker(problem)
    ready = set(waiting.sources)
    while ready:
        _, _, op, device = min(
            (schedule.trial(op, device)[0], -level[op], op, device)
            for op in ready
            for device in schedule.allowed[op]
        )
        schedule.place(op, device)
        ready.remove(op)
        ready.update(waiting.issue(op))
    return schedule.keys()


@pytest.mark.parametrize("devices", (1, 2, 4))
def test_lazy_etf_is_etf(devices):
    @settings(
        max_examples=150, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
    )
    @given(strategies.cases(devices))
    def same(case):
        # An input that is moved, or a synchronous transfer, can let an op start earlier than
        # it could before: then the lower bounds are not bounds.
        hardware = case.hardware._replace(synchronous=np.bool_(False))
        everywhere = np.ones_like(case.allowed)
        problem = dataclasses.replace(case, hardware=hardware, allowed=everywhere).problem(SMALL)
        for lazy, plain in zip(etf(problem), rescan(problem), strict=True):
            np.testing.assert_array_equal(lazy, plain)

    same()


@pytest.mark.parametrize("heuristic, tries", ((heft, 4), (critical_path, 4), (etf, 40)))
def test_work_does_not_grow_with_the_square(monkeypatch, heuristic, tries):
    """Ops tried on a device, for each op: a rescan would try hundreds of ready ops each time."""
    count = 0
    place = PartialSchedule.place

    def counted(self, op, device):
        nonlocal count
        count += 1
        return place(self, op, device)

    monkeypatch.setattr(PartialSchedule, "place", counted)
    problem = prepare(watts_strogatz(0, 2000), h100s(4))
    heuristic(problem)
    assert count <= (tries + 1) * 2000
