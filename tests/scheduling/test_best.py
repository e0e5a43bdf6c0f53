from functools import partial

import jax
import numpy as np
import pytest

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, objectives
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.problem import prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.heuristics import HEURISTICS
from gopt.heuristics.schedule import baselines
from gopt.heuristics.schedule.orders import memory_orders
from gopt.heuristics.schedule.placement import order_splits
from gopt.scheduling import best
from gopt.search import annealing, brkga
from gopt.systems import regal
from tests import strategies
from tests.reference.execution import run as replay
from tests.strategies import SMALL


def problem(seed, devices, **settings):
    rng = np.random.default_rng(seed)
    graph = strategies.random_graph(rng, 20, 0.2)
    return strategies.random_case(rng, graph, devices, **settings).problem(SMALL)


def measure(problem, keys, objective):
    """The objective by the plain reference."""
    found = replay(problem, keys)
    cost = decoding.Cost(np.int32(found.makespan), np.int32(found.peak))
    return float(objectives.objective(problem, cost, objective))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "devices", "settings"),
    [
        ("peak_memory", 1, {}),
        ("makespan", 1, {}),
        ("peak_memory", 2, {"channel": "bus"}),
        ("makespan", 3, {"channel": "none", "allowed": 0.6}),
        ("capped_makespan", 2, {"synchronous": True}),  # in two runs, by a relaxed cost first
    ],
)
def test_best_beats_all_starts_and_costs_what_it_says(objective, devices, settings):
    wins = 0
    for seed in range(3):
        case = problem(seed, devices, **settings)
        found = best.search(jax.random.key(seed), case, objective=objective, evaluations=500)
        starts = best.starts(case, objective).keys
        costs = [
            measure(case, jax.tree.map(lambda leaf, row=row: leaf[row], starts), objective)
            for row in range(len(starts.priority))
        ]
        assert measure(case, found.best, objective) == found.cost <= min(costs)
        assert (np.minimum.accumulate(found.history) == found.history).all()
        assert (np.diff(found.evaluations) > 0).all()
        assert (found.history[-1], found.evaluations[-1]) == (found.cost, 500)
        wins += found.cost < min(costs)
    assert wins > 0 or devices == 1


@pytest.mark.parametrize(
    ("devices", "evaluations"),
    [  # what heuristics return and try, and the least that is spent in two runs
        *((1, evaluations) for evaluations in (1, 8, 9, 18, 19, 100)),
        *((2, evaluations) for evaluations in (1, 9, 43, 44, 62, 63, 100)),
    ],
)
def test_the_budget_is_exact(devices, evaluations, monkeypatch):
    spent = []

    def counted(*args, **settings):
        spent.append(settings["evaluations"])
        return loop(*args, **settings)

    loop = annealing.loop
    monkeypatch.setattr(annealing, "loop", counted)
    case = problem(0, devices)
    starts = best.starts(case, "makespan")
    found = jax.eval_shape(
        lambda key: best.improve(key, case, starts, objective="makespan", evaluations=evaluations),
        jax.random.key(0),
    )
    left = max(1, evaluations - baselines.tried(case))
    assert sum(spent) == left
    assert len(spent) == (2 if devices > 1 and left >= 28 else 1)
    assert found.best.device.shape == (SMALL.ops, devices)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_what_the_heuristics_try_is_counted(devices, monkeypatch):
    compared = []
    peaks = memory_orders.peak_memory_of
    for module in (memory_orders, order_splits):
        monkeypatch.setattr(module, "peak_memory_of", lambda *a: compared.append(a) or peaks(*a))
    case = problem(0, devices)
    best.starts(case, "makespan")
    assert len(compared) > 0
    # Each memory order returns one of the schedules that it compares.
    assert baselines.tried(case) == len(compared) - 5


@pytest.mark.parametrize("objective", ["peak_memory", "makespan"])
def test_the_genetic_algorithm_searches_for_peaks_on_several_devices(objective, monkeypatch):
    spent = []
    loop = brkga.loop

    def counted(*args, **settings):
        spent.append((settings["evaluations"], len(settings["initial"].priority)))
        return loop(*args, **settings)

    monkeypatch.setattr(brkga, "loop", counted)
    for devices in (1, 2):
        case = problem(0, devices)
        given = best.starts(case, objective)
        for evaluations in (100, 45, 1):
            jax.eval_shape(
                partial(best.improve, objective=objective, evaluations=evaluations),
                jax.random.key(0),
                case,
                given,
            )
    assert spent == ([(58, 9), (3, 3), (1, 1)] if objective == "peak_memory" else [])


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_proposals_keep_the_lowest_order_and_part_a_chain(devices):
    n = 100
    chain = graphs.from_ops(
        [
            graphs.Op(inputs=((i - 1, 0),) if i else (), outputs=(graphs.Output(7),))
            for i in range(n)
        ]
    )
    shape = padding.bucket(chain)
    case = prepare(padding.pad(chain, shape), unit_rate_devices(devices), seconds=np.ones(n))
    action = best.starts(case, "peak_memory").action.genes
    bins = regal.Settings().bins
    assert action.shape == (shape.ops, devices + 1, 2) and action.dtype == np.int32
    assert action.min() >= 0 and action.max() < bins
    turn = np.arange(n) / n  # the only order that there is
    np.testing.assert_array_equal(action[:n, -1, 0], (turn - turn.mean() + 0.5) * bins // 1)
    first = action[:n, 0, 0]
    assert (np.diff(first) >= 0).all() or (np.diff(first) <= 0).all()
    assert np.ptp(first) >= 3
    if devices == 2:
        assert np.abs(first + action[:n, 1, 0] - (bins - 1)).max() <= 1
        found = best.search(jax.random.key(0), case, objective="peak_memory", evaluations=150)
        assert found.cost <= 2 * 7


def test_proposals_follow_the_lowest_order():
    """Ten tensors of 9 are each read by an op that makes 1; the program makes all of them first."""
    ops = [graphs.Op("input", outputs=(graphs.Output(1),))]
    ops += [graphs.Op(inputs=((0, 0),), outputs=(graphs.Output(9),)) for _ in range(10)]
    ops += [
        graphs.Op(inputs=((1 + i, 0),), outputs=(graphs.Output(1, pinned=True),)) for i in range(10)
    ]
    case = prepare(
        padding.pad(graphs.from_ops(ops), SMALL), unit_rate_devices(2), seconds=np.ones(21)
    )
    level = best.proposed(case, "peak_memory").genes[:21, -1, 0]
    makers, readers = level[1:11], level[11:]
    # In turns: each reader goes just after its maker, and none of them last.
    assert (readers - makers <= 1).all() and (np.diff(np.sort(makers)) <= 2).all()
    assert np.ptp(makers) > 8 and level[0] == level.min()


def test_an_op_that_makes_most_bytes_is_left_to_the_search():
    ops = [
        graphs.Op(inputs=((i - 1, 0),) if i else (), outputs=(graphs.Output(900 if i == 2 else 7),))
        for i in range(20)
    ]
    case = prepare(
        padding.pad(graphs.from_ops(ops), SMALL), unit_rate_devices(2), seconds=np.ones(20)
    )
    action = best.starts(case, "peak_memory").action.genes
    mean, deviation = action[:20, 0, 0], action[:20, -1, 1]
    middle = regal.Settings().bins // 2
    # Op 3 reads it.
    assert mean[2] in (middle - 1, middle) and mean[3] in (middle - 1, middle)
    assert np.abs(mean - middle).max() >= 3
    assert (np.flatnonzero(deviation > deviation[0] + 2) == [2, 3]).all()


def test_starts_are_the_heuristics_and_the_program():
    case = problem(0, 2)
    starts = best.starts(case, "makespan").keys
    assert len(starts.priority) == len(HEURISTICS) + 1
    for row, heuristic in enumerate(HEURISTICS.values()):
        jax.tree.map(
            lambda many, one, row=row: np.testing.assert_array_equal(many[row], one),
            starts,
            heuristic(case),
        )
    program = replay(case, jax.tree.map(lambda leaf: leaf[-1], starts))
    assert program.order == list(range(int(case.num_ops)))
    assert set(program.device) == {0}


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "devices"), [("peak_memory", 2), ("makespan", 3)])
def test_vmap_over_problems_equals_one_at_a_time(objective, devices):
    cases = [problem(seed, devices, channel="bus") for seed in range(3)]
    starts = [best.starts(case, objective) for case in cases]
    keys = jax.random.split(jax.random.key(0), 3)
    settings = {"objective": objective, "evaluations": 500}
    run = partial(best.improve, **settings)
    given = jax.tree.map(lambda *leaves: np.stack(leaves), *starts)
    together = jax.jit(jax.vmap(run))(keys, problems.stack(cases), given)
    for row in range(3):
        jax.tree.map(
            lambda got, expected, row=row: np.testing.assert_array_equal(got[row], expected),
            together,
            best.search(keys[row], cases[row], **settings),
        )


@pytest.mark.slow
def test_more_evaluations_find_more():
    cases = [problem(seed, 3, channel="none") for seed in range(6)]
    few, many = (
        [
            float(best.search(jax.random.key(0), case, objective="makespan", evaluations=n).cost)
            for case in cases
        ]
        for n in (7, 500)
    )
    assert np.sum(many) < np.sum(few)


def test_bad_input():
    with pytest.raises(ValueError, match="evaluations is 0: expected 1 at least"):
        best.search(jax.random.key(0), problem(0, 2), objective="makespan", evaluations=0)
    with pytest.raises(ValueError, match="objective is 'money': expected one of"):
        best.search(jax.random.key(0), problem(0, 2), objective="money", evaluations=50)
