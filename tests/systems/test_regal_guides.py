import numpy as np
import pytest

from gopt.cost.hardware import ideal
from gopt.cost.schedule.problem import Problem, prepare
from gopt.graph import padding
from gopt.graph.graph import Graph, is_input
from gopt.heuristics import critical_path, etf, heft
from gopt.heuristics.schedule.orders.memory_orders import lowest_order
from gopt.heuristics.schedule.placement.spectral import sides
from gopt.learning.graphs import OP_FEATURES, to_graphs_tuple
from gopt.systems import regal
from tests.reference.execution import run
from tests.strategies import NASTY, random_graph


def task(graph: Graph, devices: int = 3) -> tuple[Graph, Problem]:
    padded = padding.pad(graph)
    return padded, prepare(padded, ideal(devices), seconds=np.ones((int(graph.num_ops), devices)))


CASES = {name: make() for name, make in NASTY.items()} | {
    f"random {seed}": random_graph(np.random.default_rng(seed), 20, 0.2, "distinct")
    for seed in range(4)
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("objective", ["makespan", "capped_makespan"])
def test_the_guide_of_a_time_is_the_fastest_list_schedule(name, objective):
    graph, problem = task(CASES[name])
    schedules = [run(problem, heuristic(problem)) for heuristic in (heft, etf, critical_path)]
    fastest = min(schedules, key=lambda schedule: schedule.makespan)
    order, side = regal.guide(problem, objective=objective)
    given = np.asarray(is_input(graph))
    ops = int(graph.num_ops)
    assert order.tolist() == [item for item in fastest.order if item < ops and not given[item]]
    assert side is not None
    np.testing.assert_allclose(side[:ops], sides(np.array(fastest.device[:ops]), 3), atol=1e-12)
    inputs = regal.inputs(graph, problem, settings=regal.Settings(), objective=objective)
    read = inputs.graphs.nodes["features"]
    np.testing.assert_allclose(read[:ops, OP_FEATURES.index("side_x")], side[:ops, 0], atol=1e-6)
    assert regal.schedules_compared(objective) == 3


@pytest.mark.parametrize("name", CASES)
def test_the_guide_of_the_peak_is_the_lowest_order(name):
    graph, problem = task(CASES[name])
    order, side = regal.guide(problem, objective="peak_memory")
    assert order.tolist() == lowest_order(problem).tolist() and side is None
    settings = regal.Settings()
    inputs = regal.inputs(graph, problem, settings=settings, objective="peak_memory")
    read = inputs.graphs
    np.testing.assert_array_equal(read.nodes["features"], to_graphs_tuple(graph).nodes["features"])


def test_sides_are_directions_of_devices():
    np.testing.assert_allclose(sides(np.arange(2), 2), [[1, 0], [-1, 0]], atol=1e-12)
    np.testing.assert_allclose(
        sides(np.arange(4), 4), [[1, 0], [0, 1], [-1, 0], [0, -1]], atol=1e-12
    )


def test_the_random_schedules_have_different_fastest_heuristics():
    """So that the test above would notice if only one of them were tried."""
    fastest = set()
    for seed in range(20):
        _, problem = task(random_graph(np.random.default_rng(seed), 20, 0.2, "distinct"))
        spans = [
            run(problem, heuristic(problem)).makespan for heuristic in (heft, etf, critical_path)
        ]
        if len(set(spans)) == 3:
            fastest.add(int(np.argmin(spans)))
    assert len(fastest) > 1
