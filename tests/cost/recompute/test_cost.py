"""Costs of sequences of runs against the plain reference, bit for bit."""

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.recompute.cost import Cost, cost_of_runs, evaluate, runs_of
from gopt.cost.recompute.problem import prepare
from gopt.cost.recompute.runs import Choices
from gopt.graph import padding
from gopt.graph.graph import Op, Output, from_ops
from tests import strategies
from tests.reference import recompute as reference
from tests.strategies import HUBS, KEYS, LARGE, NASTY, SMALL, WIDE
from tests.tiers import slow

pytestmark = pytest.mark.optimized

fast = jax.jit(evaluate)
ONE = unit_rate_devices(1)


def random_problem(rng, graph, shape, max_runs, seconds=None):
    n = int(graph.num_ops)
    seconds = rng.integers(0, 9, n).astype(float) if seconds is None else seconds
    pairs = zip(graph.tensor.tolist(), graph.consumer.tolist(), strict=True)
    return prepare(
        padding.pad(graph, shape),
        ONE,
        max_runs=max_runs,
        seconds=seconds,
        may_repeat=rng.random(n) < rng.choice([0.0, 0.8, 1.0]),
        in_place=[pair for pair in pairs if rng.random() < 0.4],
    )


def random_choices(rng, problem, max_runs, kind="uniform"):
    shape = problem.num_rows, max_runs - 1
    splits = rng.integers(-4, 5, shape) * (rng.random(shape) < rng.random())
    priority = KEYS[kind](rng, shape[:1]).astype(np.float32) if rng.random() < 0.7 else None
    return Choices(priority, splits.astype(np.int32))


def assert_as_the_reference(rng, problem, choices):
    runs = reference.sequence(problem, choices)
    budget = int(rng.integers(0, 1 + max(1, int(problem.size.sum(dtype=np.int64)) // 2)))
    assert runs_of(problem, choices) == runs
    cost = jax.device_get(fast(problem, choices, budget))
    assert tuple(map(int, cost)) == reference.cost(problem, runs, budget)
    assert cost_of_runs(problem, runs) == (int(cost.ticks), int(cost.peak))


@pytest.mark.parametrize("max_runs", [1, 2, *slow(3, 4)])
@given(case=strategies.cases(1))
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
def test_random_programs(case, max_runs):
    rng = np.random.default_rng(case.recipe["seed"])
    problem = random_problem(rng, case.graph, SMALL, max_runs, case.seconds[:, 0])
    choices = random_choices(rng, problem, max_runs, case.recipe["keys"])
    assert_as_the_reference(rng, problem, choices)


@pytest.mark.parametrize("name", NASTY)
def test_nasty_programs(name):
    rng = np.random.default_rng(0)
    for kind in KEYS:
        for max_runs in (2, 3):
            problem = random_problem(rng, NASTY[name](), SMALL, max_runs)
            assert_as_the_reference(rng, problem, random_choices(rng, problem, max_runs, kind))


@pytest.mark.parametrize("name", slow(*HUBS))
def test_hubs(name):
    rng = np.random.default_rng(0)
    problem = random_problem(rng, HUBS[name](), LARGE, 2)
    assert_as_the_reference(rng, problem, random_choices(rng, problem, 2))


def test_padding_changes_nothing():
    rng = np.random.default_rng(1)
    for _ in range(20):
        graph = strategies.random_graph(rng, 20, 0.2)
        n = int(graph.num_ops)
        seconds, repeats = rng.random(n), rng.random(n) < 0.8
        found = []
        splits, priority = rng.integers(-4, 5, (n, 1)), rng.random(n)
        for shape in (SMALL, WIDE):
            padded = padding.pad(graph, shape)
            problem = prepare(padded, ONE, max_runs=2, seconds=seconds, may_repeat=repeats)
            rows = problem.num_rows - n
            choices = Choices(
                np.append(priority, np.zeros(rows)).astype(np.float32),
                np.append(splits, np.ones((rows, 1)), 0).astype(np.int32),
            )
            cost = jax.device_get(fast(problem, choices, 5))
            found.append((tuple(map(int, cost)), runs_of(problem, choices)))
        assert found[0] == found[1]


def test_a_population_has_the_costs_of_its_candidates():
    rng = np.random.default_rng(2)
    problem = random_problem(rng, strategies.random_graph(rng, 20, 0.2), SMALL, 3)
    shape = 7, problem.num_rows
    population = Choices(
        rng.random(shape).astype(np.float32), rng.integers(-4, 5, (*shape, 2)).astype(np.int32)
    )
    costs = jax.jit(jax.vmap(evaluate, (None, 0, None)))(problem, population, 9)
    for k in range(7):
        one = jax.tree.map(lambda leaf, k=k: leaf[k], population)
        assert jax.tree.map(lambda leaf, k=k: int(leaf[k]), costs) == Cost(
            *map(int, fast(problem, one, 9))
        )


def chain():
    """Returns a forward chain of three ops, and a backward chain that reads it in reverse."""
    forward = [Op(outputs=(Output(4.0),))]
    forward += [Op(inputs=((k, 0),), outputs=(Output(4.0),)) for k in range(2)]
    backward = [Op(inputs=((2, 0),), outputs=(Output(1.0),))]
    backward += [Op(inputs=((2 - k, 0), (2 + k, 0)), outputs=(Output(1.0),)) for k in (1, 2)]
    return from_ops([*forward, *backward])


def test_what_is_read_late_runs_again_just_before_its_reader():
    problem = prepare(chain(), ONE, max_runs=2, seconds=np.ones(6))
    splits = np.zeros((problem.num_rows, 1), np.int32)
    splits[1] = 1  # op 1 is read by 2, and by 4 of the backward chain
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 3, 1, 4, 5]
    splits[0] = 1  # and so is what it reads
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 3, 0, 1, 4, 5]


def test_a_split_just_before_a_reader_makes_a_run_for_it_alone():
    ops = [Op(outputs=(Output(4.0),)), Op(inputs=((0, 0),), outputs=(Output(4.0),))]
    ops += [Op(inputs=((1, 0),), outputs=(Output(1.0),)) for _ in range(2)]  # 3 reads 1 again
    ops += [Op(inputs=((0, 0), (2, 0), (3, 0)), outputs=(Output(1.0),))]
    problem = prepare(from_ops(ops), ONE, max_runs=3, seconds=np.ones(5))
    splits = np.zeros((problem.num_rows, 2), np.int32)
    splits[1, 0] = 1
    splits[0] = 1, 0  # the second run of op 0 is for op 1 and for op 4
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 0, 1, 3, 4]
    splits[0] = 1, -2  # and now a third one, just before op 4
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 0, 1, 3, 0, 4]
    splits[0] = -2, 0  # only for op 4
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 1, 3, 0, 4]


def test_no_split_holds_and_a_split_behind_all_readers_repeats_for_later_runs():
    problem = prepare(chain(), ONE, max_runs=2, seconds=np.ones(6))
    splits = np.zeros((problem.num_rows, 1), np.int32)
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 3, 4, 5]
    splits[:3, 0] = 9  # behind all readers: nothing runs again
    assert runs_of(problem, Choices(None, splits)) == [0, 1, 2, 3, 4, 5]


def test_the_result_takes_the_place_of_what_is_read_last():
    ops = [
        Op(outputs=(Output(4.0),)),
        *(Op(inputs=((k, 0),), outputs=(Output(4.0),)) for k in (0, 1)),
    ]
    plain = prepare(from_ops(ops), ONE, max_runs=1)
    assert cost_of_runs(plain, [0, 1, 2])[1] == 8
    one = prepare(from_ops(ops), ONE, max_runs=1, in_place=[(0, 1)])
    assert cost_of_runs(one, [0, 1, 2])[1] == 8
    both = prepare(from_ops(ops), ONE, max_runs=1, in_place=[(0, 1), (1, 2)])
    assert cost_of_runs(both, [0, 1, 2])[1] == 4


def test_what_only_waits_reads_no_later_run():
    rng = np.random.default_rng(3)
    for _ in range(20):
        graph = strategies.random_graph(rng, 20, 0.2)
        pairs = [
            (int(graph.producer[t]), int(op))
            for t, op in zip(graph.tensor, graph.consumer, strict=True)
        ]
        waits = {pair for pair in pairs if rng.random() < 0.3}
        problem = prepare(
            padding.pad(graph, SMALL), ONE, max_runs=3, seconds=np.ones(20), waits=waits
        )
        choices = random_choices(rng, problem, 3)
        assert runs_of(problem, choices) == reference.sequence(problem, choices, waits)


def test_ticks_of_all_runs_stay_below_the_bound():
    problem = prepare(chain(), ONE, max_runs=4, seconds=np.full(6, 2.0**27))
    assert problem.ticks.sum() * 4 < 2**30
    assert problem.tick > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_runs": 0}, "max_runs is 0: expected 1 at least"),
        ({"hardware": unit_rate_devices(2)}, "hardware has 2 devices: expected 1"),
        ({"may_repeat": [True]}, r"may_repeat has shape \(1,\): expected \(6,\)"),
        ({"seconds": [1.0]}, "seconds has shape"),
    ],
)
def test_wrong_arguments(change, message):
    options = {"hardware": ONE, "max_runs": 2} | change
    with pytest.raises(ValueError, match=message):
        prepare(chain(), options.pop("hardware"), **options)


def test_wrong_shapes_of_a_candidate():
    problem = prepare(chain(), ONE, max_runs=2)
    n = problem.num_rows
    with pytest.raises(ValueError, match="splits has shape"):
        evaluate(problem, Choices(None, np.zeros(n, np.int32)), 0)
    with pytest.raises(ValueError, match="priority has shape"):
        evaluate(problem, Choices(np.zeros(1), np.zeros((n, 1), np.int32)), 0)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([0, 1, 2, 3, 4], "op 5 is not among the runs"),
        ([0, 2, 1, 3, 4, 5], r"runs\[1\] is op 2: it reads op 1, which has not run"),
        ([0, 1, 2, 3, 4, 9], r"runs\[5\] is 9: expected an op in 0..5"),
        ([0, 1, 2, 3, 4, 5, 5], r"runs\[6\] is op 5 again, which may not repeat"),
    ],
)
def test_sequences_that_are_no_programs(runs, message):
    may_repeat = [True] * 5 + [False]
    problem = prepare(chain(), ONE, max_runs=2, may_repeat=may_repeat)
    with pytest.raises(ValueError, match=message):
        cost_of_runs(problem, runs)
