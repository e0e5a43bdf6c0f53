"""Constraint programming finds the optimum of tiny problems, and proves it."""

import json
from pathlib import Path

import numpy as np
import pytest
from ortools.sat.python import cp_model

from gopt.cost.hardware import ideal, unit_rate_devices
from gopt.cost.schedule.decoding import Keys, keys_shape
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.graph.padding import pad
from gopt.heuristics import HEURISTICS, makespan_bound
from gopt.heuristics.solvers import cp_sat
from gopt.sources.instances import makespan_instance, peak_memory_instance
from gopt.sources.synthetic import layered
from tests.reference.execution import run
from tests.reference.exhaustive import least_costs
from tests.strategies import CHANNELS, NASTY, SMALL, random_case, random_graph

DATA = Path(__file__).parents[2] / "data"
PEAK_MEMORY = json.loads((DATA / "peak_memory.json").read_text())
MAKESPAN = json.loads((DATA / "makespan.json").read_text())[:3]
OBJECTIVES = ("peak_memory", "makespan")


def cost(problem, keys, objective):
    schedule = run(problem, keys)
    return schedule.makespan if objective == "makespan" else max(schedule.peak)


def bad_keys(problem):
    """A candidate that nobody would start from."""
    rng = np.random.default_rng(0)
    shape = keys_shape(problem)
    return Keys(*(rng.random(leaf.shape).astype(np.float32) for leaf in shape))


def solve(problem, objective, initial=None, seconds=30):
    initial = bad_keys(problem) if initial is None else initial
    found = cp_sat.solve(problem, initial, objective=objective, seconds=seconds, workers=1)
    assert found.cost == cost(problem, found.keys, objective) <= cost(problem, initial, objective)
    assert found.bound <= found.cost
    return found


def tiny(seed):
    """A problem of at most four ops, on two or three devices, with few enough schedules."""
    rng = np.random.default_rng(seed)
    while True:
        graph = random_graph(rng, int(rng.integers(2, 5)), 0.6)
        devices = 2 if rng.random() < 0.8 else 3
        readers = np.bincount(graph.tensor[: int(graph.num_uses)], minlength=1)
        if np.minimum(readers, devices - 1).sum() <= (4 if devices == 2 else 2):
            break
    case = random_case(
        rng,
        graph,
        devices,
        channel=str(rng.choice(list(CHANNELS))),
        synchronous=bool(rng.random() < 0.5),
        allowed=float(rng.choice([1.0, 0.6, 0.0])),
    )
    return case.problem(SMALL)


@pytest.mark.parametrize("seed", range(24))
def test_no_schedule_of_a_tiny_problem_costs_less(seed):
    problem = tiny(seed)
    least = least_costs(problem)
    for objective in OBJECTIVES:
        found = solve(problem, objective)
        assert found.cost == found.bound == least[objective]


# Two devices, an op of 10 bytes of work beside 10 bytes that are held: 20 on any order.
HELD_UNTIL_SENT = (
    (0, 0, 1, 1),
    [
        Op(outputs=(Output(10), Output(0))),
        Op(inputs=((0, 1),), outputs=(Output(0),), workspace=10),
        Op(inputs=((1, 0),), outputs=(Output(0),), workspace=10),
        Op(inputs=((0, 0), (2, 0))),
    ],
)
SENT_BEFORE_IT_IS_READ = (
    (0, 1, 1, 1),
    [
        Op(outputs=(Output(10),)),
        Op(outputs=(Output(10), Output(0))),
        Op(inputs=((0, 0), (1, 1)), outputs=(Output(0),)),
        Op(inputs=((1, 0), (2, 0))),
    ],
)


@pytest.mark.parametrize("place, ops", (HELD_UNTIL_SENT, SENT_BEFORE_IT_IS_READ))
def test_tensors_are_held_until_they_are_sent_and_sent_before_they_are_read(place, ops):
    problem = prepare(from_ops(ops), ideal(2), allowed=np.eye(2)[list(place)])
    found = solve(problem, "peak_memory")
    assert found.cost == found.bound == 20 == least_costs(problem)["peak_memory"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_schedule_is_in_the_model_at_its_own_cost(objective, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 20)), 0.2)
    channel, synchronous = str(rng.choice(list(CHANNELS))), bool(seed % 2)
    case = random_case(rng, graph, 1 + seed % 3, channel=channel, synchronous=synchronous)
    problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
    model = cp_sat._MODELS[objective]
    variables = model.build(problem, cp_sat._schedule(problem, keys))
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(variables.model) == cp_model.OPTIMAL
    assert solver.objective_value == cost(problem, keys, objective)
    assert cost(problem, variables.keys(solver), objective) <= solver.objective_value


@pytest.mark.slow
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nasty_graphs(name, objective):
    problem = prepare(pad(NASTY[name](), SMALL), unit_rate_devices(2))
    best = min(cost(problem, heuristic(problem), objective) for heuristic in HEURISTICS.values())
    assert solve(problem, objective, seconds=2).bound <= best


@pytest.mark.slow
@pytest.mark.parametrize("instance", PEAK_MEMORY, ids=lambda instance: instance["name"])
def test_peaks_that_are_known(instance):
    problem = prepare(peak_memory_instance(instance).graph, ideal(1))
    found = solve(problem, "peak_memory")
    assert problem.unit == 1 and found.cost == found.bound == instance["best"]


@pytest.mark.parametrize("instance", MAKESPAN, ids=lambda instance: instance["name"])
def test_makespans_that_are_known(instance):
    graph, hardware, seconds, _ = makespan_instance(instance, instance["processors"])
    problem = prepare(graph, hardware, seconds=seconds)
    found = solve(problem, "makespan")
    assert problem.tick == 1 and found.cost == found.bound == instance["best"]


@pytest.mark.parametrize("busy", (0, 1), ids=("the source", "the target"))
@pytest.mark.parametrize("synchronous, expected", ((False, 7), (True, 9)))
def test_a_synchronous_transfer_occupies_both_devices(busy, synchronous, expected):
    """Device 0 makes in 1 s what takes 5 s to send; device 1 reads it in 1 s; one has 3 s more."""
    ops = [Op(outputs=(Output(5),)), Op(inputs=((0, 0),)), Op()]
    hardware = ideal(2)._replace(synchronous=np.bool_(synchronous))
    place = np.eye(2)[[0, 1, busy]]
    problem = prepare(from_ops(ops), hardware, seconds=[1, 1, 3], allowed=place)
    found = solve(problem, "makespan")
    assert found.cost == found.bound == expected == least_costs(problem)["makespan"]


def test_padding_changes_nothing():
    graph = layered(0, 12)
    for objective in OBJECTIVES:
        plain, padded = (
            solve(prepare(g, unit_rate_devices(2)), objective).cost for g in (graph, pad(graph))
        )
        assert plain == padded


def test_without_time_what_was_given_is_returned():
    problem = prepare(layered(0, 200), unit_rate_devices(2))
    initial = HEURISTICS["heft"](problem)
    found = solve(problem, "makespan", initial, seconds=0.001)
    assert found.cost == cost(problem, initial, "makespan")
    assert found.bound >= makespan_bound(problem)
    assert found.keys is initial


def test_another_objective_raises():
    problem = prepare(from_ops([Op(outputs=(Output(1),))]), unit_rate_devices(1))
    with pytest.raises(ValueError, match="objective is 'capped_makespan': expected one of peak_"):
        solve(problem, "capped_makespan")


def test_no_time_raises():
    problem = prepare(from_ops([Op(outputs=(Output(1),))]), unit_rate_devices(1))
    with pytest.raises(ValueError, match="seconds is 0: expected a positive number"):
        solve(problem, "makespan", seconds=0)
