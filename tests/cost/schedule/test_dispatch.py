"""Priority dispatch against the plain reference, bit for bit."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import decoding, dispatch, objectives
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.problem import prepare
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Op, Output
from tests import strategies
from tests.cost.schedule.test_execution import (
    assert_schedule,
    check_random,
    golden,
    names,
    population,
    quick,
)
from tests.reference.dispatch import run
from tests.reference.execution import run as run_by_rank
from tests.strategies import HUBS, LARGE, SMALL, WIDE


@jax.jit
def fast(problem, keys):
    schedule = dispatch.simulate(problem, dispatch.decode(problem, keys))
    return schedule, dispatch.evaluate(problem, keys)


def small(ops, devices, seconds, **settings):
    """A problem of these ops, padded as random ones are, with transfers that take no time."""
    padded = padding.pad(graphs.from_ops(ops), SMALL)
    return prepare(padded, unit_rate_devices(devices, latency=0.0, **settings), seconds=seconds)


def placement(keys):
    return decoding.Keys(keys.device, None, None)


def check(case, shape=SMALL):
    problem, keys = case.problem(shape), case.padded_keys(shape)
    for candidate in (keys, placement(keys)):
        assert_schedule(run(problem, candidate), *fast(problem, candidate))


@pytest.mark.slow
@pytest.mark.parametrize("devices", (1, 2, 3, 8))
def test_random_problems_match_the_reference(devices):
    check_random(check, devices, 60)


@strategies.on_nasty_graphs
def test_nasty_graphs_match_the_reference(name, channel):
    for case in strategies.nasty_cases(name, channel):
        check(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", HUBS)
def test_hubs_are_dispatched_by_rank(name):
    """The reference is too slow for them. Ops that have all arrived go by (key, index)."""
    rng = np.random.default_rng(0)
    case = strategies.random_case(rng, HUBS[name](), 3, channel="bus", keys="tied")
    problem, keys = case.problem(LARGE), case.padded_keys(LARGE)
    schedule, cost = fast(problem, keys)
    assert (schedule.makespan, schedule.peak.tolist()) == (cost.makespan, cost.peak.tolist())
    assert schedule.num_items > problem.num_ops
    n = int(problem.num_ops)
    alike = range(1, n) if name == "1000 readers" else range(n - 1)  # but the hub itself
    start, end, order = (np.asarray(x) for x in (schedule.start, schedule.end, schedule.order))
    issued = sorted(alike, key=lambda i: np.flatnonzero(order == i)[0])
    for d in range(3):
        on = [i for i in issued if schedule.device[i] == d]
        assert on == sorted(on, key=lambda i: (keys.priority[i], i)) and len(on) > 100
        assert (start[on][1:] == end[on][:-1]).all()


@pytest.mark.parametrize(
    ("synchronous", "makespan", "order", "intervals"),
    [
        (False, 23, "ip1a32", [(0, 0), (0, 9), (0, 2), (9, 20), (2, 3), (20, 23)]),
        (True, 25, "ip1a32", [(0, 0), (0, 9), (9, 11), (11, 22), (22, 23), (22, 25)]),
    ],
)
def test_golden_example(synchronous, makespan, order, intervals):
    problem, keys = golden(synchronous)
    schedule, cost = fast(problem, keys)
    items = {"i": 0, "1": 1, "2": 2, "3": 3, "p": 5 + 0 * 2 + 1, "a": 5 + 1 * 2 + 1}
    expected = [items[letter] for letter in order]
    assert schedule.order[:6].tolist() == expected
    assert [(int(schedule.start[i]), int(schedule.end[i])) for i in expected] == intervals
    assert cost.makespan == schedule.makespan == makespan


def on_second(*ops):
    """Keys by which these ops run on device 1, all others on device 0; of four, op 2 is best."""
    device = np.zeros((4, 2), np.float32)
    device[list(ops)] = 0, 1
    keys = decoding.Keys(device, np.float32([0, 0.5, 0.1, 0.9]), np.zeros((0, 2), np.float32))
    return strategies.pad_keys(keys, SMALL)


@pytest.mark.slow
def test_a_device_does_not_wait_for_the_best_op():
    """Op 2 is the best, and arrives at 5; op 1 is better than op 3; all run on device 0."""
    ops = [Op(outputs=(Output(0),)), Op(), Op(inputs=((0, 0),)), Op()]
    problem = small(ops, 2, [5.0, 4.0, 1.0, 4.0])
    keys = on_second(0)
    schedule, _ = fast(problem, keys)
    scale = float(problem.tick)
    starts = np.round(np.asarray(schedule.start)[:4] * scale, 6)
    assert starts.tolist() == [0, 0, 8, 4]
    # Issued by rank, everything on device 0 waits for it.
    start = run_by_rank(problem, keys).start
    assert np.round([start[i] * scale for i in range(4)], 6).tolist() == [0, 6, 5, 10]


@pytest.mark.slow
def test_first_come_first_served():
    """On device 0 op 3 runs until 4; op 1 arrives there at 3, op 2 at 2, though it is better."""
    ops = [Op(outputs=(Output(0),)), Op(inputs=((0, 0),)), Op(outputs=(Output(0),)), Op()]
    ops += [Op(inputs=((2, 0),))]
    problem = small(ops, 3, [3.0, 1.0, 2.0, 4.0, 1.0])
    device = np.zeros((SMALL.ops, 3), np.float32)
    device[0, 1] = device[2, 2] = 1
    schedule, _ = fast(problem, decoding.Keys(device, None, None))
    starts = np.round(np.asarray(schedule.start)[:5] * float(problem.tick), 6)
    assert starts.tolist() == [0, 5, 0, 0, 4]
    by_index = decoding.Keys(device, np.zeros(SMALL.ops, np.float32), None)
    starts = np.round(np.asarray(fast(problem, by_index)[0].start)[:5] * float(problem.tick), 6)
    assert starts.tolist() == [0, 4, 0, 0, 5]


@pytest.mark.parametrize(("synchronous", "begin"), [(False, 1), (True, 100)])
def test_a_synchronous_transfer_keeps_both_of_its_devices(synchronous, begin):
    """Op 0 (1 s) sends to device 1, which is busy for 100 s; op 1 waits on device 0 meanwhile."""
    ops = [Op(outputs=(Output(0),)), Op(), Op(), Op(inputs=((0, 0),))]
    problem = small(ops, 2, [1.0, 10.0, 100.0, 1.0], synchronous=synchronous)
    schedule, _ = fast(problem, on_second(2, 3))
    assert float(schedule.start[1]) * float(problem.tick) == pytest.approx(begin, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_padding_changes_nothing(fill):
    @quick(40)
    @given(strategies.cases(3))
    def same(case):
        results = []
        for shape in (SMALL, WIDE):
            problem = case.problem(shape)
            keys = case.padded_keys(shape, fill)
            results.append([])
            for candidate in (keys, placement(keys)):
                schedule, cost = fast(problem, candidate)
                results[-1] += names(schedule.order, problem), *(leaf.tolist() for leaf in cost)
        assert results[0] == results[1]

    same()


@pytest.mark.slow
def test_vmap_jit_and_one_alone_agree():
    graphs_, keys = population(0, 5)
    many = jax.vmap(dispatch.evaluate, (None, 0))
    batched = jax.jit(jax.vmap(many, (0, None)))(problems.stack(graphs_), keys)
    chex.assert_shape(batched, [(3, 5), (3, 5, 3)])
    for g, problem in enumerate(graphs_):
        for p in range(5):
            one = jax.tree.map(lambda leaf, p=p: leaf[p], keys)
            cost = jax.tree.map(lambda leaf, g=g, p=p: leaf[g, p], batched)
            chex.assert_trees_all_equal(dispatch.evaluate(problem, one), cost)
            assert int(cost.makespan) == run(problem, one).makespan
    decisions = jax.vmap(dispatch.decode, (None, 0))(graphs_[0], keys)
    schedules = jax.vmap(dispatch.simulate, (None, 0))(graphs_[0], decisions)
    chex.assert_trees_all_equal(schedules.makespan, batched.makespan[0])


def test_inputs_follow_their_first_reader_and_ops_go_where_they_may():
    ops = [Op("input", outputs=(Output(1.0),)), Op("input", outputs=(Output(1.0),))]
    ops += [Op(flops=1.0), Op(inputs=((0, 0),), flops=1.0), Op(inputs=((0, 0),), flops=1.0)]
    wanted = jnp.array([0, 0, 1, 2, 2, 0], jnp.int32)
    for forbidden, expected in (
        ((4, 2), [2, 1, 2, 0]),
        ((3, 2), [0, 1, 0, 2]),
        ((0, 2), [0, 1, 2, 2]),
    ):
        allowed = np.ones((5, 3), bool)
        allowed[forbidden] = False
        problem = prepare(graphs.from_ops(ops), unit_rate_devices(3), allowed=allowed)
        device = dispatch.legalize_placement(problem, wanted)
        assert np.asarray(device)[[0, 2, 3, 4]].tolist() == expected
        decision = dispatch.decode(problem, dispatch.placement(problem, device))
        np.testing.assert_array_equal(decision.device, device)
        assert decision.rank is None


@pytest.mark.slow
def test_costs_of_populations():
    graphs_, keys = population(0, 5)
    problem = graphs_[0]
    for candidates in (keys, placement(keys)):
        each = [jax.tree.map(lambda leaf, p=p: leaf[p], candidates) for p in range(5)]
        found = [run(problem, one) for one in each]
        costs = decoding.Cost(
            np.int32([one.makespan for one in found]), np.int32([one.peak for one in found])
        )
        for name in objectives.OBJECTIVES:
            found = dispatch.population_cost(problem, name)(candidates)
            np.testing.assert_array_equal(found, objectives.objective(problem, costs, name))
    with pytest.raises(ValueError, match="objective is 'speed'"):
        dispatch.population_cost(problem, "speed")


def test_64_bit_mode_changes_nothing():
    problem, keys = golden(False)
    with jax.enable_x64(True):
        cost = jax.jit(lambda *args: dispatch.evaluate(*args))(problem, keys)
    chex.assert_trees_all_equal(cost, fast(problem, keys)[1])
    chex.assert_type([*cost], jnp.int32)


def test_keys_of_the_wrong_shape_raise():
    problem, keys = golden(False)
    with pytest.raises(ValueError, match=r"keys\.device has shape \(2, 5, 2\)"):
        dispatch.evaluate(problem, jax.tree.map(lambda leaf: np.stack([leaf, leaf]), keys))
    with pytest.raises(ValueError, match=r"keys\.device has shape \(5, 1\)"):
        dispatch.evaluate(problem, decoding.Keys(keys.device[:, :1], None, None))
