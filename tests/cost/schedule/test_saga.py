"""Schedules of another package, replayed: without contention its makespans are ours."""

import itertools
import warnings

import jax
import numpy as np
import pytest

from gopt.cost.hardware import no_channels, unit_rate_devices
from gopt.cost.schedule.decoding import Keys, decode
from gopt.cost.schedule.execution import evaluate, simulate
from gopt.cost.schedule.problem import prepare, to_seconds
from gopt.graph import graph as graphs
from gopt.graph import padding
from tests.reference.execution import run

saga = pytest.importorskip("saga")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from saga import schedulers
    from saga.schedulers.data import random as families
    from saga.utils import random_graphs

ROWS = graphs.Shape(24, 32, 32)  # of all problems: one program
BYTES = 2.0**30  # of one unit of data: sizes are whole bytes


class Whole:
    """Weights whose quotients are whole, as one of the package's distributions."""

    def __init__(self, rng):
        self.rng = rng

    def sample(self) -> np.ndarray:
        return 4.0 * self.rng.integers(0, 10, 1)


def trees(generate):
    def one(weights):
        return generate(1, 3, 2, lambda _: weights.sample()[0], lambda *_: weights.sample()[0])[0]

    return one


FAMILIES = {
    "chain": lambda weights: random_graphs.get_chain_dag(8, weights),
    "diamond": random_graphs.get_diamond_dag,
    "fork": random_graphs.get_fork_dag,
    "branching": lambda weights: random_graphs.get_branching_dag(4, 2, weights),
    "out tree": trees(families.gen_out_trees),
    "in tree": trees(families.gen_in_trees),
    "parallel chains": trees(families.gen_parallel_chains),
}


def random_network(rng, count: int):
    names = [str(i) for i in range(count)]
    nodes = [(name, float(rng.choice([1, 2, 4]))) for name in names]
    pairs = itertools.combinations(names, 2)
    return saga.Network.create(nodes, [(a, b, float(rng.choice([1, 2, 4]))) for a, b in pairs])


def replay(schedule):
    """The problem and the keys of a schedule: one tensor for each dependency, nothing contends."""
    tasks, network = schedule.task_graph, schedule.network
    order = [task.name for task in tasks.topological_sort()]
    nodes = sorted(node.name for node in network.nodes)
    edges = sorted(
        (order.index(e.source), order.index(e.target), e.size) for e in tasks.dependencies
    )
    graph = graphs.from_arrays(
        producer=[source for source, _, _ in edges],
        size=np.rint([size * BYTES for _, _, size in edges]),
        tensor=range(len(edges)),
        consumer=[target for _, target, _ in edges],
        num_ops=len(order),
    )
    speed = np.array([network.get_node(name).speed for name in nodes])
    cost = np.array([tasks.get_task(name).cost for name in order])
    links = [[network.get_edge(a, b).speed * BYTES for b in nodes] for a in nodes]
    hardware = unit_rate_devices(len(nodes), channel=no_channels)._replace(
        bandwidth=np.array(links)
    )
    problem = prepare(padding.pad(graph, ROWS), hardware, seconds=cost[:, None] / speed)

    placed = {task.name: task for _, tasks in schedule.items() for task in tasks}
    start, end = ([getattr(placed[name], field) for name in order] for field in ("start", "end"))
    rows, devices = problem.shape, problem.num_devices
    device = np.zeros((rows.ops, devices), np.float32)
    device[range(len(order)), [nodes.index(placed[name].node) for name in order]] = 1
    # Transfers first, then ops by start time, so that no op has to wait for its turn.
    priority = np.ones(rows.ops, np.float32)
    by_start = sorted(range(len(order)), key=lambda i: (start[i], end[i], i))
    priority[by_start] = np.linspace(0.25, 0.75, len(order))
    return problem, Keys(device, priority, np.zeros((rows.tensors, devices), np.float32)), start


@jax.jit
def cost_and_schedule(problem, keys):
    return evaluate(problem, keys), simulate(problem, decode(problem, keys))


@pytest.mark.parametrize("name", ["Heft", "Cpop", "ETF"])
@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_schedules_have_the_same_times(family, name):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tasks, network = FAMILIES[family](Whole(rng)), random_network(rng, 3)
        schedule = getattr(schedulers, f"{name}Scheduler")().schedule(network, tasks)
        problem, keys, start = replay(schedule)
        cost, found = cost_and_schedule(problem, keys)
        # The trees of the package have tasks of 1e-9: with these no tick makes all times whole.
        slack = 0 if problem.tick == 1 else 2 * len(start) * problem.tick
        assert cost.makespan > 0
        assert abs(to_seconds(problem, cost.makespan) - schedule.makespan) <= slack
        ours = to_seconds(problem, found.start)[: len(start)]
        np.testing.assert_allclose(ours, start, rtol=0, atol=slack)
        assert cost.makespan == run(problem, keys).makespan


@pytest.mark.parametrize("family", ["chain", "diamond", "fork", "branching", "parallel chains"])
def test_whole_schedules_are_replayed_in_ticks_of_a_second(family):
    rng = np.random.default_rng(0)
    tasks = FAMILIES[family](Whole(rng))
    problem, _, _ = replay(schedulers.HeftScheduler().schedule(random_network(rng, 3), tasks))
    assert problem.tick == 1
