"""The fast path against the plain reference, bit for bit."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, execution, objectives
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.decoding import Cost, Keys
from gopt.cost.schedule.problem import MAX_TICKS, MAX_UNITS, prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Op, Output
from tests import strategies
from tests.reference.execution import run
from tests.strategies import HUBS, KEYS, LARGE, NASTY, SMALL, WIDE, Case
from tests.tiers import slow

pytestmark = pytest.mark.optimized


def quick(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
    )


@jax.jit
def fast(problem, keys):
    decision = decoding.decode(problem, keys)
    schedule, cost = execution.simulate(problem, decision), execution.evaluate(problem, keys)
    alone = Cost(execution.makespan(problem, keys), execution.peaks(problem, keys))
    return decision, schedule, cost, alone


evaluate = jax.jit(execution.evaluate)


def assert_schedule(expected, schedule, *costs):
    """A schedule, and costs, are those of the reference."""
    schedule, costs = jax.tree.map(np.asarray, (schedule, costs))
    count = len(expected.order)
    assert schedule.num_items == count
    assert schedule.order[:count].tolist() == expected.order
    assert (schedule.order[count:] == -1).all()
    for field, times in (("start", expected.start), ("end", expected.end)):
        dense = np.zeros(schedule.order.size, np.int64)
        dense[list(times)] = list(times.values())
        np.testing.assert_array_equal(getattr(schedule, field), dense, err_msg=field)
    assert schedule.usage[:count].tolist() == expected.usage
    for found in (schedule, *costs):
        assert found.peak.tolist() == expected.peak
        assert found.makespan == expected.makespan
        chex.assert_type([*found], np.int32)


def assert_matches(problem, keys, decision, schedule, *costs):
    """Everything that the fast path says of a candidate is what the reference says."""
    expected = run(problem, keys)
    n = int(problem.num_ops)
    decision = jax.tree.map(np.asarray, decision)

    np.testing.assert_array_equal(decision.device[:n], expected.device)
    key = np.concatenate([np.ravel(keys.priority), np.ravel(keys.transfer)])
    by_key = sorted(range(key.size), key=lambda item: (key[item], item))
    np.testing.assert_array_equal(np.argsort(decision.rank), by_key)

    chex.assert_type([*decision], np.int32)
    assert_schedule(expected, schedule, *costs)


def check_random(check, devices: int, examples: int) -> None:
    """Check random problems."""

    @quick(examples)
    @given(strategies.cases(devices))
    def matches(case):
        check(case)

    matches()


def check(case: Case, shape=SMALL):
    problem, keys = case.problem(shape), case.padded_keys(shape)
    assert_matches(problem, keys, *fast(problem, keys))


@pytest.mark.parametrize("devices", (1, 2, *slow(3, 5, 8)))
def test_random_problems_match_the_reference(devices):
    check_random(check, devices, 80)


@strategies.on_nasty_graphs
def test_nasty_graphs_match_the_reference(name, channel):
    for case in strategies.nasty_cases(name, channel):
        check(case)


def test_subnormal_keys_are_not_zero():
    rng = np.random.default_rng(0)
    case = strategies.random_case(rng, strategies.random_graph(rng, 20, 0.3), 3)
    shape = graphs.shape_of(case.graph)
    keys = jax.tree.map(
        lambda leaf: rng.choice(np.float32([0.0, 1e-45, 1e-40]), leaf.shape),
        strategies.random_keys(rng, "uniform", shape, 3),
    )
    check(dataclasses.replace(case, keys=keys))


@pytest.mark.slow
@pytest.mark.parametrize("name", HUBS)
def test_hubs_match_the_reference(name):
    rng = np.random.default_rng(0)
    for keys, channel, synchronous in (("uniform", "bus", False), ("tied", "pair", True)):
        case = strategies.random_case(
            rng, HUBS[name](), 3, keys=keys, channel=channel, synchronous=synchronous
        )
        check(case, LARGE)


def golden(synchronous: bool):
    """Two devices; op 2 runs on device 1, the rest on device 0."""
    graph = graphs.from_ops(
        [
            Op("input", outputs=(Output(8, pinned=True),)),
            Op(outputs=(Output(10), Output(3)), workspace=2),
            Op(inputs=((0, 0), (1, 0)), outputs=(Output(4, pinned=True),)),
            Op(outputs=(Output(10, pinned=True),)),
        ]
    )
    hardware = unit_rate_devices(2, latency=1.0, synchronous=synchronous)
    problem = prepare(graph, hardware, seconds=[0.0, 2.0, 3.0, 1.0])
    device = np.zeros((5, 2), np.float32)
    device[2] = 0, 1
    transfer = np.full((problem.shape.tensors, 2), 0.5, np.float32)
    transfer[0, 1], transfer[1, 1] = 0.2, 0.3
    return problem, Keys(device, np.float32([0.0, 0.1, 0.9, 0.8, 0.0]), transfer)


@pytest.mark.parametrize(
    ("synchronous", "makespan", "intervals"),
    [
        (False, 23, [(0, 0), (0, 2), (0, 9), (9, 20), (2, 3), (20, 23)]),
        (True, 25, [(0, 0), (0, 2), (2, 11), (11, 22), (22, 23), (22, 25)]),
    ],
)
def test_golden_example(synchronous, makespan, intervals):
    problem, keys = golden(synchronous)
    decision, schedule, cost, _ = fast(problem, keys)
    p_to_1, a_to_1 = 5 + 0 * 2 + 1, 5 + 1 * 2 + 1
    order = [0, 1, p_to_1, a_to_1, 3, 2]
    assert (problem.tick, problem.unit) == (1, 1)
    assert schedule.order[:6].tolist() == order
    found = [(int(schedule.start[item]), int(schedule.end[item])) for item in order]
    assert found == intervals
    assert cost.makespan == schedule.makespan == makespan
    assert cost.peak.tolist() == schedule.peak.tolist() == [23, 22]
    assert schedule.usage[:6].tolist() == [8, 23, 8, 18, 18, 22]
    assert_matches(problem, keys, decision, schedule, cost)


def names(order, problem):
    """Issued items as ops or (tensor, destination) pairs: these do not depend on padding."""
    n, d = problem.shape.ops, problem.num_devices
    return [int(i) if i < n else divmod(int(i) - n, d) for i in np.asarray(order) if i >= 0]


@pytest.mark.slow
@quick(80)
@given(strategies.cases(3), st.sampled_from([0.0, 1.0]))
def test_padding_changes_nothing(case, fill):
    results = []
    for shape in (SMALL, WIDE):
        problem = case.problem(shape)
        _, schedule, cost, _ = fast(problem, case.padded_keys(shape, fill))
        order = np.asarray(schedule.order)
        issued = order[order >= 0]
        times = np.asarray(schedule.start)[issued], np.asarray(schedule.end)[issued]
        usage = np.asarray(schedule.usage)[: issued.size]
        results.append((names(order, problem), *(x.tolist() for x in (*times, usage, *cost))))
    assert results[0] == results[1]


@pytest.mark.parametrize("synchronous", [False, True])
def test_one_padding_row_is_enough(synchronous):
    problem, _ = golden(synchronous)
    assert problem.shape.ops == int(problem.num_ops) + 1
    rng = np.random.default_rng(0)
    graph = strategies.random_graph(rng, 20, 0.3)
    case = strategies.random_case(rng, graph, 3, keys="tied", synchronous=synchronous)
    check(case, graphs.Shape(*(rows + 1 for rows in graphs.shape_of(graph))))


def population(seed: int, count: int):
    rng = np.random.default_rng(seed)
    found = [
        strategies.random_case(
            rng, strategies.random_graph(rng, 22 - 5 * i, 0.3), 3, synchronous=i % 2 == 1
        ).problem(SMALL)
        for i in range(3)
    ]
    kinds = [*KEYS] * count
    keys = [strategies.random_keys(rng, kind, SMALL, 3) for kind in kinds[:count]]
    return found, jax.tree.map(lambda *rows: np.stack(rows), *keys)


@pytest.mark.slow
def test_vmap_jit_and_one_alone_agree():
    graphs_, keys = population(0, 7)
    many = jax.vmap(execution.evaluate, (None, 0))
    batched = jax.jit(jax.vmap(many, (0, None)))(problems.stack(graphs_), keys)
    over_graphs = jax.jit(jax.vmap(execution.evaluate, (0, None)))
    chex.assert_shape(batched, [(3, 7), (3, 7, 3)])
    for g, problem in enumerate(graphs_):
        chex.assert_trees_all_equal(
            jax.jit(many)(problem, keys), jax.tree.map(lambda leaf, g=g: leaf[g], batched)
        )
        for p in range(7):
            one = jax.tree.map(lambda leaf, p=p: leaf[p], keys)
            cost = jax.tree.map(lambda leaf, g=g, p=p: leaf[g, p], batched)
            expected = run(problem, one)
            assert (int(cost.makespan), cost.peak.tolist()) == (expected.makespan, expected.peak)
            chex.assert_trees_all_equal(evaluate(problem, one), cost)
    first = jax.tree.map(lambda leaf: leaf[0], keys)
    chex.assert_trees_all_equal(
        over_graphs(problems.stack(graphs_), first), jax.tree.map(lambda leaf: leaf[:, 0], batched)
    )
    alone = execution.evaluate(graphs_[0], first)
    chex.assert_trees_all_equal(alone, jax.tree.map(lambda leaf: leaf[0, 0], batched))


@pytest.mark.slow
def test_simulate_composes_with_vmap():
    graphs_, keys = population(1, 4)
    decisions = jax.vmap(decoding.decode, (None, 0))(graphs_[0], keys)
    schedules = jax.jit(jax.vmap(execution.simulate, (None, 0)))(graphs_[0], decisions)
    for p in range(4):
        one, decision, schedule = jax.tree.map(
            lambda leaf, p=p: leaf[p], (keys, *[decisions, schedules])
        )
        assert_matches(graphs_[0], one, decision, schedule, evaluate(graphs_[0], one))


@pytest.mark.slow
def test_twenty_graphs_compile_one_program_for_each_bucket():
    rng = np.random.default_rng(0)
    hardware = unit_rate_devices(2)
    padded = [
        padding.pad(strategies.random_graph(rng, n, 0.1))
        for n in range(2, strategies.SMALL.ops - 1)
    ][:20]
    buckets = {graphs.shape_of(graph) for graph in padded}
    assert len(padded) == 20 and len({int(graph.num_ops) for graph in padded}) == 20
    assert 1 < len(buckets) < 10

    chex.clear_trace_counter()
    counted = jax.jit(chex.assert_max_traces(execution.evaluate, n=len(buckets)))
    for graph in padded:
        problem = prepare(graph, hardware)
        keys = strategies.random_keys(rng, "uniform", problem.shape, 2)
        expected = run(problem, keys)
        assert int(counted(problem, keys).makespan) == expected.makespan


@pytest.mark.parametrize("field", Keys._fields)
def test_keys_of_the_wrong_shape_raise(field):
    problem, keys = golden(False)
    wrong = keys._replace(**{field: getattr(keys, field)[:-1]})
    for function in (decoding.decode, execution.evaluate, jax.jit(execution.evaluate)):
        with pytest.raises(ValueError, match=rf"keys\.{field} has shape"):
            function(problem, wrong)
    with pytest.raises(ValueError, match=r"keys\.device has shape \(2, 5, 2\)"):
        execution.evaluate(problem, jax.tree.map(lambda leaf: np.stack([leaf, leaf]), keys))


def test_objectives():
    problem, keys = golden(False)
    problem = problem._replace(capacity=np.int32([20, 22]))
    cost = evaluate(problem, keys)
    assert objectives.objective(problem, cost, "peak_memory") == 23
    assert objectives.objective(problem, cost, "makespan") == 23
    capped = objectives.objective(problem, cost, "capped_makespan")
    np.testing.assert_allclose(capped, MAX_TICKS * (1 + 3 / 20), rtol=1e-6)
    for name in objectives.OBJECTIVES:
        chex.assert_type(objectives.objective(problem, cost, name), jnp.float32)
    fits = problem._replace(capacity=np.int32([23, 22]))
    assert objectives.objective(fits, cost, "capped_makespan") == 23
    nothing = problem._replace(capacity=np.int32([0, 22]))
    assert objectives.objective(nothing, cost, "capped_makespan") > MAX_TICKS
    empty = Cost(cost.makespan, jnp.int32([0, 23]))
    assert objectives.objective(nothing, empty, "capped_makespan") > MAX_TICKS
    with pytest.raises(ValueError, match="memory"):
        objectives.objective(problem, cost, "memory")


@pytest.mark.slow
def test_the_relaxed_cost_of_capacities_grows_with_the_excess():
    problem, keys = golden(False)
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], keys)
    exact = evaluate(problem, keys)

    def relaxed(*capacity: int) -> float:
        tight = problem._replace(capacity=np.int32(capacity))
        cost = objectives.relaxed_cost(tight, "capped_makespan")(one)
        chex.assert_shape(cost, (1,))
        chex.assert_type(cost, jnp.float32)
        return float(cost[0])

    first, second = (int(peak) for peak in exact.peak)
    assert second > 0
    assert relaxed(first, second) == relaxed(2 * first, 2 * second) == exact.makespan
    assert relaxed(first - 3, second) == pytest.approx(
        int(exact.makespan) * (first / (first - 3)) ** 4
    )
    # The worst device counts.
    assert relaxed(first - 3, 1) == pytest.approx(
        int(exact.makespan) * max(first / (first - 3), second) ** 4
    )
    assert np.isfinite(relaxed(0, 0)) and relaxed(0, 0) > exact.makespan
    assert objectives.relaxed_cost(problem, "makespan") is None
    assert objectives.relaxed_cost(problem, "peak_memory") is None


def test_a_schedule_that_fits_beats_any_that_does_not():
    problem, _ = golden(False)
    problem = problem._replace(capacity=np.int32([MAX_UNITS - 1, MAX_UNITS - 1]))
    slow = Cost(jnp.int32(MAX_TICKS - 1), jnp.int32([MAX_UNITS - 1] * 2))
    fat = Cost(jnp.int32(0), jnp.int32([0, MAX_UNITS]))
    name = "capped_makespan"
    costs = [objectives.objective(problem, cost, name) for cost in (slow, fat)]
    assert costs[0] <= costs[1]
    half = problem._replace(capacity=np.int32([MAX_UNITS, MAX_UNITS // 2]))
    worse = objectives.objective(half, fat, name)
    assert costs[1] < worse
    batch = Cost(jnp.stack([slow.makespan, fat.makespan]), jnp.stack([slow.peak, fat.peak]))
    chex.assert_trees_all_equal(objectives.objective(problem, batch, name), jnp.stack(costs))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_64_bit_mode_changes_nothing(devices):
    case = strategies.random_case(np.random.default_rng(0), NASTY["broadcast"](), devices)
    problem, keys = case.problem(SMALL), case.padded_keys(SMALL)
    with jax.enable_x64(True):
        found = jax.jit(lambda *args: fast.__wrapped__(*args))(problem, keys)
        assert_matches(problem, keys, *found)
