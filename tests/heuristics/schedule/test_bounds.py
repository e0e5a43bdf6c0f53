"""Lower bounds that are reached. That nothing is below them is tested with the heuristics."""

import pytest

from gopt.cost.hardware import ideal
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import heft, makespan_bound, peak_bound
from tests.reference.execution import run


def chain(length, **settings):
    ops = [Op(outputs=(Output(5),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(5),), **settings) for k in range(length - 1)]
    return from_ops(ops)


def test_a_chain_takes_as_long_as_its_ops_at_their_fastest():
    problem = prepare(chain(4), ideal(2), seconds=[[3, 9], [3, 2], [9, 3], [3, 3]])
    assert makespan_bound(problem) == 3 + 2 + 3 + 3


def test_a_device_that_is_not_allowed_does_not_count():
    problem = prepare(chain(2), ideal(2), seconds=[[9, 1], [9, 1]], allowed=[[1, 0], [1, 1]])
    assert makespan_bound(problem) == 10


@pytest.mark.parametrize("devices, expected", ((1, 21), (2, 11), (3, 7), (8, 3)))
def test_work_is_spread_evenly(devices, expected):
    problem = prepare(from_ops([Op() for _ in range(7)]), ideal(devices), seconds=[3] * 7)
    assert makespan_bound(problem) == expected
    if devices == 3:
        assert run(problem, heft(problem)).makespan == 9  # not reached: whole ops


def test_an_op_needs_what_it_reads_and_makes_and_its_workspace():
    problem = prepare(chain(4, workspace=3), ideal(2))
    assert peak_bound(problem) == 5 + 5 + 3
    assert max(run(problem, heft(problem)).peak) == 13


@pytest.mark.parametrize("devices, expected", ((1, 40 + 10 + 3), (2, 27), (8, 13)))
def test_pinned_inputs_stay_somewhere(devices, expected):
    """Four inputs of 10 stay; an op reads one more and makes 3."""
    ops = [Op("input", outputs=(Output(10, pinned=True),)) for _ in range(4)]
    ops += [Op("input", outputs=(Output(10),)), Op(inputs=((4, 0),), outputs=(Output(3),))]
    problem = prepare(from_ops(ops), ideal(devices))
    assert peak_bound(problem) == expected


@pytest.mark.parametrize("pinned, expected", ((True, 20), (False, 5)))
def test_what_is_pinned_is_there_at_the_end(pinned, expected):
    graph = from_ops([Op(outputs=(Output(5, pinned=pinned),)) for _ in range(8)])
    assert peak_bound(prepare(graph, ideal(2))) == expected


def test_inputs_are_there_at_the_start():
    graph = from_ops([Op("input", outputs=(Output(7),)) for _ in range(6)])
    assert peak_bound(prepare(graph, ideal(2))) == 21
