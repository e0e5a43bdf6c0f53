"""When ops run in a schedule and how urgent they are, against the plain reference."""

import jax
import numpy as np
import pytest
from hypothesis import given

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, dispatch
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from tests import strategies
from tests.cost.schedule.test_dispatch import placement
from tests.cost.schedule.test_execution import golden, quick
from tests.reference.timing import timing
from tests.strategies import SMALL

fast = jax.jit(dispatch.timed)


def check(problem, keys):
    for candidate in (keys, placement(keys)):
        found, expected = fast(problem, candidate), timing(problem, candidate)
        for name, values in expected.items():
            array = np.asarray(getattr(found, name))
            assert array[: len(values)].tolist() == values, name
            assert not array[len(values) :].any(), name
        assert int(found.makespan) == max(expected["end"], default=0)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_random_problems_match_the_reference(devices):
    @quick(40)
    @given(strategies.cases(devices))
    def matches(case):
        check(case.problem(SMALL), case.padded_keys(SMALL))

    matches()


@strategies.on_nasty_graphs
def test_nasty_graphs_match_the_reference(name, channel):
    for case in strategies.nasty_cases(name, channel):
        check(case.problem(SMALL), case.padded_keys(SMALL))


@pytest.mark.parametrize(
    ("synchronous", "slack"), [(False, [0, 7, 0, 20, 0]), (True, [0, 0, 0, 2, 0])]
)
def test_golden_example(synchronous, slack):
    assert fast(*golden(synchronous)).slack.tolist() == slack


def test_an_op_yields_where_only_its_device_is_waited_for():
    graph = from_ops([Op(outputs=(Output(1, pinned=True),)) for _ in range(3)])
    problem = prepare(graph, unit_rate_devices(2), seconds=[2.0, 3.0, 4.0])
    device = np.eye(2, dtype=np.float32)[[0, 0, 1, 0]]
    found = fast(problem, decoding.Keys(device, np.float32([0, 1, 2, 3]), None))
    assert found.slack.tolist() == [0, 0, 1, 0]
    assert found.local_slack.tolist() == [3, 0, 1, 0]
