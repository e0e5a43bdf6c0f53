"""Memory orders, and their splits over devices, on graphs whose peaks are known."""

import numpy as np
import pytest

from gopt.cost.hardware import ideal
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import (
    HEURISTICS,
    breadth_first,
    depth_first,
    greedy_release,
    spectral_cut,
    xla,
)
from gopt.heuristics.schedule.orders.memory_orders import (
    ORDERS,
    held_at_peak,
    lowest_order,
    relative_positions,
)
from tests import strategies
from tests.reference.execution import run
from tests.reference.features import peak_of_order
from tests.strategies import SMALL

MEMORY = (depth_first, breadth_first, greedy_release, xla, spectral_cut)


def peak(graph, order, devices=1, **settings):
    problem = prepare(graph, ideal(devices), **settings)
    return run(problem, order(problem)).peak


def binary_tree(height):
    """A tree towards its root; leaves first."""
    ops = [Op(outputs=(Output(1),)) for _ in range(2**height)]
    first = 0
    for width in (2**h for h in reversed(range(height))):
        last = len(ops)
        for k in range(width):
            pair = ((first + 2 * k, 0), (first + 2 * k + 1, 0))
            ops.append(Op(inputs=pair, outputs=(Output(1, pinned=width == 1),)))
        first = last
    return from_ops(ops)


@pytest.mark.parametrize("height", (1, 3, 5))
def test_binary_trees(height):
    """Depth first holds a tensor for each level and two more; breadth first all leaves."""
    assert peak(binary_tree(height), depth_first) == [height + 2]
    assert peak(binary_tree(height), greedy_release) == [height + 2]
    assert peak(binary_tree(height), breadth_first) == [2**height + 1]


def test_breadth_first_may_be_the_better_one():
    """Two ops each read two others: going on from one of these first holds more."""
    ops = [
        *(Op(outputs=(Output(2),)), Op(outputs=(Output(2),))),
        *(Op(inputs=((0, 0), (1, 0)), outputs=(Output(1),)) for _ in range(2)),
        *(Op(inputs=((k, 0),), outputs=(Output(3, pinned=True),)) for k in (2, 3)),
    ]
    assert peak(from_ops(ops), breadth_first) == [7]
    assert peak(from_ops(ops), depth_first) == [8]


def order_of(graph, heuristic):
    problem = prepare(graph, ideal(1))
    return run(problem, heuristic(problem)).order


def test_greedy_release_counts_what_an_op_is_the_last_to_read():
    """Op 3 makes 4 and is the only reader of 10; op 2 makes 2 and releases nothing."""
    ops = [
        Op(outputs=(Output(10),)),
        Op(outputs=(Output(1),), inputs=((0, 0),)),
        Op(outputs=(Output(2),)),
        Op(inputs=((0, 0),), outputs=(Output(4, pinned=True),)),
        Op(inputs=((1, 0), (2, 0)), outputs=(Output(1, pinned=True),)),
    ]
    # Op 3 releases 10 only once op 1 has read it too: first 2, 0, 1 by what they make.
    assert order_of(from_ops(ops), greedy_release) == [2, 0, 1, 3, 4]


def test_greedy_release_notices_a_ready_op_that_becomes_the_last_reader():
    ops = [
        Op("input", outputs=(Output(10),)),
        Op(inputs=((0, 0),), outputs=(Output(1, pinned=True),)),
        Op(inputs=((0, 0),), outputs=(Output(5, pinned=True),)),
        Op(outputs=(Output(2, pinned=True),)),
    ]
    # After op 1, op 2 adds 5 - 10; before, it would have added 5.
    assert order_of(from_ops(ops), greedy_release) == [0, 1, 2, 3]


def test_ties_go_to_the_lowest_index():
    graph = from_ops([Op(outputs=(Output(1, pinned=True),)) for _ in range(5)])
    assert order_of(graph, greedy_release) == [0, 1, 2, 3, 4]
    assert order_of(graph, breadth_first) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", MEMORY)
def test_devices_share_what_stays(order):
    """Eight tensors that stay are spread evenly over 1, 2 and 4 devices."""
    graph = from_ops([Op(outputs=(Output(6, pinned=True),)) for _ in range(8)])
    for devices in (1, 2, 4):
        assert peak(graph, order, devices) == [48 // devices] * devices


@pytest.mark.parametrize("order", MEMORY)
def test_inputs_are_spread_with_their_readers(order):
    ops = [Op("input", outputs=(Output(10, pinned=True),)) for _ in range(4)]
    ops += [Op(inputs=((k, 0),), outputs=(Output(1, pinned=True),)) for k in range(4)]
    assert peak(from_ops(ops), order, 2) == [22, 22]


@pytest.mark.parametrize("order", MEMORY)
def test_a_split_that_does_not_pay_is_not_made(order):
    """A chain holds two tensors at a time anywhere; a copy would only add to that."""
    ops = [Op(outputs=(Output(5),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(5),)) for k in range(6)]
    assert sorted(peak(from_ops(ops), order, 2)) == [0, 10]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "name", ("depth_first", "breadth_first", "greedy_release", "xla", "spectral_cut")
)
def test_more_devices_are_never_worse(name, seed):
    rng = np.random.default_rng(seed)
    graph = strategies.random_graph(rng, 20, 0.15)
    best = []
    for devices in (1, 2, 3, 4):
        case = strategies.random_case(rng, graph, devices)
        problem = case.problem(SMALL)
        best.append(max(run(problem, HEURISTICS[name](problem)).peak))
    assert best == sorted(best, reverse=True)


@pytest.mark.parametrize("order", MEMORY)
def test_ops_are_balanced_over_the_devices_that_they_are_allowed_on(order):
    """Pieces would be cut for three devices and leave 24 and 12; greedy balance leaves 18 each."""
    graph = from_ops([Op(outputs=(Output(6, pinned=True),)) for _ in range(6)])
    problem = prepare(graph, ideal(3), allowed=[[1, 0, 1]] * 6)
    assert run(problem, order(problem)).peak == [18, 0, 18]


@pytest.mark.parametrize("seed", range(30))
def test_the_lowest_order_and_what_it_holds_at_its_peak(seed):
    rng = np.random.default_rng(seed)
    graph = strategies.random_graph(rng, 1 + seed // 2, (0.0, 0.1, 0.3)[seed % 3])
    problem = strategies.random_case(rng, graph, 1).problem(SMALL if seed % 2 else None)
    order = lowest_order(problem)
    peaks = [peak_of_order(problem, list(each(problem)))[0] for each in ORDERS]
    peak, place, held = peak_of_order(problem, order.tolist())
    assert peak == min(peaks)
    assert order.tolist() == list(ORDERS[int(np.argmin(peaks))](problem))
    found, at = held_at_peak(problem, order)
    assert at == place
    np.testing.assert_array_equal(found, held)


def test_inputs_have_the_position_of_their_first_reader():
    ops = [
        Op("input", outputs=(Output(1),)),
        Op("input", outputs=(Output(1),)),
        Op("input", outputs=(Output(1),)),
        Op(inputs=((1, 0),), outputs=(Output(1),)),
        Op(inputs=((0, 0), (3, 0)), outputs=(Output(1, pinned=True),)),
    ]
    problem = prepare(from_ops(ops), ideal(1))
    real = int(problem.num_ops)
    np.testing.assert_array_equal(
        relative_positions(problem, np.array([3, 4]))[:real], [0.5, 0, 1, 0, 0.5]
    )
    assert (relative_positions(problem, np.array([3, 4]))[real:] == 1).all()


def test_each_of_the_orders_may_be_the_lowest():
    chosen = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        problem = prepare(strategies.random_graph(rng, 14, 0.2), ideal(1))
        order = lowest_order(problem).tolist()
        chosen |= {each.__name__ for each in ORDERS if list(each(problem)) == order}
    assert chosen == {each.__name__ for each in ORDERS}
