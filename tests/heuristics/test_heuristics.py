"""What all heuristics promise: keys that decode to the schedule that they built."""

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gopt.cost.schedule import decoding, execution
from gopt.heuristics import HEURISTICS, makespan_bound, peak_bound
from gopt.heuristics.schedule.orders.memory_orders import peak_memory_of
from gopt.heuristics.schedule.placement import list_scheduling, order_splits
from gopt.heuristics.schedule.placement import partial_schedule as partial
from tests import strategies
from tests.reference.execution import run
from tests.strategies import CHANNELS, NASTY, SMALL

LIST = ("heft", "etf", "critical_path")
MEMORY = ("depth_first", "breadth_first", "greedy_release", "xla", "spectral_cut")


def quick(examples):
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
    )


def build(name, problem):
    """Returns the keys of a heuristic, the devices and items it encoded, and its own times."""
    built, schedules = [], []

    def record(problem, device, items):
        built.append((list(device), list(items)))
        return keys_from_items(problem, device, items)

    class Recorded(partial.PartialSchedule):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            schedules.append(self)

    keys_from_items = partial.keys_from_items
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial, "keys_from_items", record)
        patch.setattr(order_splits, "keys_from_items", record)
        patch.setattr(list_scheduling, "PartialSchedule", Recorded)
        keys = HEURISTICS[name](problem)
    times = {item: (start, end) for start, end, item in schedules[0].items} if schedules else None
    return keys, *built[-1], times


def check(name, problem):
    keys, device, items, times = build(name, problem)
    expected = run(problem, keys)
    assert expected.device == device
    assert expected.order == items
    if name in LIST:
        assert times == {item: (expected.start[item], expected.end[item]) for item in items}
    assert expected.makespan >= makespan_bound(problem)
    assert max(expected.peak) >= peak_bound(problem)


def test_every_heuristic_is_tested():
    assert sorted(HEURISTICS) == sorted(LIST + MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("devices", (1, 2, 3, 5))
@pytest.mark.parametrize("name", HEURISTICS)
def test_keys_decode_to_the_schedule_that_was_built(name, devices):
    @quick(60)
    @given(strategies.cases(devices))
    def decodes(case):
        check(name, case.problem(SMALL))

    decodes()


@pytest.mark.parametrize("graph", NASTY)
@pytest.mark.parametrize("name", HEURISTICS)
def test_nasty_graphs(name, graph):
    rng = np.random.default_rng(0)
    for channel in CHANNELS:
        for synchronous in (False, True):
            case = strategies.random_case(
                rng, NASTY[graph](), 3, channel=channel, synchronous=synchronous, allowed=0.5
            )
            check(name, case.problem(SMALL))


@pytest.mark.parametrize("synchronous", (False, True))
@pytest.mark.parametrize("name", HEURISTICS)
def test_the_fast_path_gives_the_same_times(name, synchronous):
    rng = np.random.default_rng(1)
    graph = strategies.random_graph(rng, 20, 0.2)
    case = strategies.random_case(rng, graph, 3, channel="bus", synchronous=synchronous)
    problem = case.problem(SMALL)
    keys, _, items, times = build(name, problem)
    schedule = jax.jit(execution.simulate)(problem, decoding.decode(problem, keys))
    order = np.asarray(schedule.order)
    assert order[: int(schedule.num_items)].tolist() == items
    if name in LIST:
        start, end = np.asarray(schedule.start), np.asarray(schedule.end)
        assert times == {item: (start[item], end[item]) for item in items}


@pytest.mark.parametrize("devices", (1, 2, 4))
def test_no_candidate_is_below_the_bounds_and_peaks_are_the_simulators(devices):
    @quick(150)
    @given(strategies.cases(devices))
    def bounded(case):
        problem = case.problem(SMALL)
        expected = run(problem, case.padded_keys(SMALL))
        assert expected.makespan >= makespan_bound(problem)
        assert max(expected.peak) >= peak_bound(problem)
        found = peak_memory_of(problem, np.asarray(expected.device), expected.order)
        assert found.tolist() == expected.peak

    bounded()


@pytest.mark.parametrize("name", HEURISTICS)
def test_heuristics_are_deterministic_and_leave_the_problem_alone(name):
    rng = np.random.default_rng(2)
    case = strategies.random_case(rng, strategies.random_graph(rng, 20, 0.2), 2, allowed=0.8)
    problem = case.problem(SMALL)
    before = jax.tree.map(np.copy, problem)
    first, second = HEURISTICS[name](problem), HEURISTICS[name](problem)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    jax.tree.map(np.testing.assert_array_equal, before, problem)
