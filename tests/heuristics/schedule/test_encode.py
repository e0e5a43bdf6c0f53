"""Keys of an issue order."""

import numpy as np
import pytest

from gopt.cost.hardware import ideal
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import keys_from_items
from tests.reference.execution import run


@pytest.fixture
def problem():
    """Op 0 makes a tensor, op 1 reads it; op 2 is on its own and not allowed on device 0."""
    graph = from_ops([Op(outputs=(Output(2),)), Op(inputs=((0, 0),)), Op()])
    return prepare(graph, ideal(2), allowed=[[1, 1], [1, 1], [0, 1]])


def test_items_are_issued_in_turn(problem):
    transfer = problem.shape.ops + 1  # of tensor 0 to device 1
    for items in ([2, 0, transfer, 1], [0, transfer, 2, 1], [0, 2, transfer, 1]):
        keys = keys_from_items(problem, [0, 1, 1], items)
        expected = run(problem, keys)
        assert (expected.device, expected.order) == ([0, 1, 1], items)


def test_keys_are_distinct_and_items_that_are_not_listed_come_last(problem):
    keys = keys_from_items(problem, [0, 0, 1], [2, 0])
    assert keys.device[:3].tolist() == [[1, 0], [1, 0], [0, 1]]
    assert keys.priority[:3].tolist() == [0.5, 1, 0]
    assert (keys.transfer == 1).all()
    assert all(leaf.dtype == np.float32 for leaf in keys)
    assert run(problem, keys).order == [2, 0, 1]


def test_many_items_keep_distinct_keys():
    count = 1_000_000
    assert np.unique((np.arange(count) / count).astype(np.float32)).size == count


@pytest.mark.parametrize(
    "device, items, message",
    (
        ([0, 0], [0, 1, 2], r"device has shape \(2,\): expected one device for 3 ops"),
        ([0, 0, 0], [0, 1, 2], r"device\[2\] is 0"),
        ([0, 2, 1], [0, 1, 2], r"device\[1\] is 2"),
        ([0, -1, 1], [0, 1, 2], r"device\[1\] is -1"),
        ([0, 0, 1], [0, 1, 99], r"items\[2\] is 99"),
        ([0, 0, 1], [0, -1, 2], r"items\[1\] is -1"),
        ([0, 0, 1], [0, 1, 0], r"items\[2\] is 0: expected each item once"),
    ),
)
def test_what_is_not_valid_is_named(problem, device, items, message):
    with pytest.raises(ValueError, match=message):
        keys_from_items(problem, device, items)
