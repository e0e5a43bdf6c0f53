"""XLA's orders against plain recursion, and on graphs whose peaks are known."""

import numpy as np
import pytest

from gopt.cost.hardware import ideal
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import schedules_tried, xla
from gopt.heuristics.schedule.orders.memory_orders import peak_memory_of
from gopt.heuristics.schedule.orders.xla_orders import (
    XLA_ORDERS,
    list_order,
    post_order,
    sized_post_order,
)
from tests import strategies
from tests.reference import xla_orders as reference
from tests.reference.execution import run
from tests.strategies import SMALL


def check(problem):
    assert list_order(problem) == reference.list_order(problem)
    assert post_order(problem) == reference.post_order(problem, by_size=False)
    assert sized_post_order(problem) == reference.post_order(problem, by_size=True)


@pytest.mark.parametrize("seed", range(60))
def test_orders_equal_the_reference(seed):
    rng = np.random.default_rng(seed)
    sizes = ("small", "distinct")[seed % 2]
    graph = strategies.random_graph(rng, 1 + seed // 3, (0.0, 0.1, 0.3, 0.6)[seed % 4], sizes)
    check(strategies.random_case(rng, graph, 1).problem(SMALL if seed % 2 else None))


@pytest.mark.parametrize("name", strategies.NASTY)
def test_orders_of_nasty_graphs(name):
    check(prepare(strategies.NASTY[name](), ideal(1)))


def test_the_list_does_not_count_what_inputs_free():
    """Op 1 would free a donated input; op 2 makes less."""
    ops = [
        Op("input", outputs=(Output(9),)),
        Op(inputs=((0, 0),), outputs=(Output(3, pinned=True),)),
        Op(outputs=(Output(2, pinned=True),)),
        Op(inputs=((2, 0),), outputs=(Output(4, pinned=True),)),
    ]
    assert list_order(prepare(from_ops(ops), ideal(1))) == [2, 1, 3]


def test_results_come_as_operands_of_the_end():
    """By size the heavier result comes first; in program order it comes last."""
    ops = [Op(outputs=(Output(size, pinned=True),)) for size in (1, 5, 3)]
    problem = prepare(from_ops(ops), ideal(1))
    assert post_order(problem) == [0, 1, 2]
    assert sized_post_order(problem) == [1, 2, 0]


def test_what_is_shared_comes_first_and_then_what_is_large():
    ops = [
        Op(outputs=(Output(1),)),
        Op(outputs=(Output(9),)),
        Op(outputs=(Output(1),)),  # read twice
        Op(inputs=((0, 0), (1, 0), (2, 0)), outputs=(Output(1),)),
        Op(inputs=((2, 0), (3, 0)), outputs=(Output(1, pinned=True),)),
    ]
    problem = prepare(from_ops(ops), ideal(1))
    assert post_order(problem) == [2, 0, 1, 3, 4]
    assert sized_post_order(problem) == [2, 1, 0, 3, 4]


def test_a_long_chain_needs_no_recursion():
    ops = [Op(outputs=(Output(1),))]
    ops += [Op(inputs=((k, 0),), outputs=(Output(1),)) for k in range(5000)]
    problem = prepare(from_ops(ops), ideal(1))
    assert post_order(problem) == sized_post_order(problem) == list(range(5001))


def test_xla_takes_the_order_that_peaks_least_and_each_may_be_it():
    chosen = set()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        problem = prepare(strategies.random_graph(rng, 14, 0.2), ideal(1))
        inputs = np.flatnonzero(problem.is_input[: int(problem.num_ops)]).tolist()
        device = np.zeros(int(problem.num_ops), int)
        each = [
            peak_memory_of(problem, device, [*inputs, *order(problem)]).max()
            for order in XLA_ORDERS
        ]
        assert run(problem, xla(problem)).peak == [min(each)]
        if each.count(min(each)) == 1:
            chosen.add(int(np.argmin(each)))
    assert chosen == {0, 1, 2}


def test_the_orders_that_it_simulates_count_as_evaluations():
    assert schedules_tried("xla", 2) == 3 + schedules_tried("depth_first", 2)
