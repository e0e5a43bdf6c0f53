"""Partitions part what belongs apart, and their schedules are valid."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gopt.cost.hardware import unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics.schedule.orders.memory_orders import depth_first_order
from gopt.heuristics.schedule.placement.list_scheduling import mean_transfer_ticks
from gopt.heuristics.solvers.metis import (
    _between,
    _links,
    _parts,
    partition_by_time,
    partition_depth_first,
)
from tests.reference.execution import run
from tests.strategies import HUBS, NASTY, SMALL, cases


def two_halves(bridge):
    """Two chains whose ops read all ops before them in their chain, tied by one small tensor."""
    ops = []
    for half in range(2):
        first = len(ops)
        for k in range(8):
            inputs = [(first + i, 0) for i in range(k)]
            if half and k == 7:
                inputs.append((0, 1))
            outputs = [Output(100)] + [Output(bridge)] * (not half and k == 0)
            ops.append(Op(inputs=tuple(inputs), outputs=tuple(outputs)))
    return from_ops(ops)


@pytest.mark.parametrize("seed", range(3))
def test_two_halves_are_parted_between_devices(seed):
    problem = prepare(two_halves(1), unit_rate_devices(2))
    found = run(problem, partition_depth_first(problem, seed=seed))
    halves = {tuple(found.device[:8]), tuple(found.device[8:])}
    assert halves == {(0,) * 8, (1,) * 8}


def test_many_bytes_keep_ops_together():
    """Pairs of a maker and a reader stay together, and the pairs are shared out."""
    ops = []
    for pair in range(6):
        ops += [Op(outputs=(Output(50),)), Op(inputs=((2 * pair, 0),), outputs=(Output(50),))]
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    device = run(problem, partition_depth_first(problem)).device
    assert device[::2] == device[1::2] and sum(device) == 6


def test_the_order_goes_depth_first_and_sends_before_the_first_reader():
    problem = prepare(two_halves(1), unit_rate_devices(2))
    order = run(problem, partition_depth_first(problem)).order
    assert [item for item in order if item < problem.shape.ops] == depth_first_order(problem)
    (transfer,) = (k for k, item in enumerate(order) if item >= problem.shape.ops)
    assert order[transfer + 1] == 15


@pytest.mark.parametrize("devices", (1, 2, 3, 16))
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs_do_not_raise(name, devices):
    partition_depth_first(prepare(NASTY[name](), unit_rate_devices(devices)))


def test_bytes_are_shared_out_where_nothing_is_read():
    problem = prepare(NASTY["no edges"](), unit_rate_devices(2))
    device = np.array(run(problem, partition_depth_first(problem)).device)
    assert 80 <= np.arange(20)[device == 0].sum() <= 110  # of 190


def test_what_is_read_first_counts_where_it_is_read():
    """An input of 60 bytes, and six tensors of 10: it stands against all of them."""
    ops = [Op("input", outputs=(Output(60),)), Op(inputs=((0, 0),), outputs=(Output(0),))]
    ops += [Op(outputs=(Output(10),)) for _ in range(6)]
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    device = run(problem, partition_depth_first(problem)).device
    assert device[0] == device[1] and set(device[2:]) == {1 - device[0]}


@pytest.mark.parametrize("name", HUBS)
def test_hubs(name):
    problem = prepare(HUBS[name](), unit_rate_devices(2))
    device = np.argmax(partition_depth_first(problem).device[: int(problem.num_ops)], 1)
    assert 0.4 < device.mean() < 0.6


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(cases(devices=3))
def test_ops_run_where_they_may(case):
    problem = case.problem(SMALL)
    found = run(problem, partition_depth_first(problem))
    order = depth_first_order(problem)
    part = _parts(problem, np.array(order, int), 0)
    assert all(found.device[op] == part[op] for op in order if problem.allowed[op, part[op]])
    again = run(problem, partition_depth_first(problem))
    assert again.order == found.order and again.device == found.device


@pytest.mark.parametrize("divide_transfer_cost", (False, True))
def test_by_time_two_chains_are_parted(divide_transfer_cost):
    """Two chains of large tensors, an op of each in turn, that small ones tie."""
    ops = []
    for k in range(16):
        inputs = ((k - 2, 0),) * (k > 1) + ((k - 1, 1),) * (k % 2)
        ops.append(Op(inputs=inputs, outputs=(Output(50.0), Output(1.0)), flops=3.0))
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    device = partition_by_time(problem, seed=2, divide_transfer_cost=divide_transfer_cost)
    assert device.shape == (problem.shape.ops,) and device.dtype == np.int32
    assert device[:16].tolist() in ([0, 1] * 8, [1, 0] * 8)


def test_by_time_devices_take_equal_time():
    """Twelve ops that nothing connects, and one that takes as long as all of them."""
    ops = [Op(flops=12.0 if k == 5 else 1.0) for k in range(13)]
    device = partition_by_time(prepare(from_ops(ops), unit_rate_devices(2)))[:13]
    assert (np.delete(device, 5) == 1 - device[5]).all()


def test_a_larger_imbalance_lets_less_be_sent():
    """One chain of eight ops, and one of four, tied by little: two in three parts or the half."""
    ops = [Op(outputs=(Output(90.0),), flops=1.0)]
    ops += [
        Op(inputs=((k - 1, 0),), outputs=(Output(1.0 if k == 7 else 90.0),), flops=1.0)
        for k in range(1, 12)
    ]
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    even, uneven = (partition_by_time(problem, imbalance=i)[:12] for i in (1.001, 1.5))
    assert np.bincount(even).tolist() == [6, 6]
    assert sorted(np.bincount(uneven)) == [4, 8] and len(set(uneven[:8])) == 1


@pytest.mark.parametrize("divide_transfer_cost, expected", ((True, 0.3), (False, 3.0)))
def test_what_many_read_ties_less_if_it_is_shared_out(divide_transfer_cost, expected):
    """Ten ops read a hub of 60 bytes, and one of them another tensor of 20."""
    ops = [Op(outputs=(Output(60.0),)), Op(outputs=(Output(20.0),))]
    ops += [Op(inputs=((0, 0), (1, 0))), *[Op(inputs=((0, 0),))] * 9]
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    links = _links(
        problem, mean_transfer_ticks(problem), divide_transfer_cost=divide_transfer_cost
    ).toarray()
    assert (links == links.T).all() and not links.diagonal().any()
    np.testing.assert_allclose(links[0, 2:] / links[1, 2], expected, rtol=1e-6)
    assert not links[1, 3:].any()


def test_by_time_groups_stay_together():
    """Six layers of two steps; a large tensor goes from step to step, a small one within a step."""
    ops = [Op(outputs=(Output(90.0), Output(1.0)), flops=1.0)]
    for k in range(1, 12):
        inputs = ((k - 1, 1),) * (k != 6) + ((k - 6, 0),) * (k >= 6)
        ops.append(Op(inputs=inputs, outputs=(Output(90.0), Output(1.0)), flops=1.0))
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    layer, step = np.arange(12) % 6, np.arange(12) // 6
    by_layer = partition_by_time(problem, layer)[:12]
    assert (by_layer[:6] == by_layer[6:]).all() and by_layer.sum() == 6
    alone = partition_by_time(problem)[:12]
    assert alone.tolist() in (by_layer.tolist(), (1 - by_layer).tolist())
    by_step = partition_by_time(problem, step)[:12]
    assert by_step[:6].tolist() == 6 * [by_step[0]] and (by_step[6:] == 1 - by_step[0]).all()


def test_by_time_groups_are_tied_by_all_that_goes_between_them():
    problem = prepare(two_halves(1), unit_rate_devices(2))
    links = _links(problem, mean_transfer_ticks(problem), divide_transfer_cost=False)
    group = np.array([2, 0, 1, 1] * 4)
    found = _between(links, group).toarray()
    for one in range(3):
        for other in range(3):
            ties = links.toarray()[np.ix_(group == one, group == other)].sum()
            assert found[one, other] == (ties if one != other else 0)
    assert (_between(links, np.arange(16)) != links).nnz == 0


@pytest.mark.parametrize("devices", (1, 2, 3, 16))
@pytest.mark.parametrize("name", NASTY)
def test_by_time_nasty_graphs_do_not_raise(name, devices):
    problem = prepare(NASTY[name](), unit_rate_devices(devices))
    for group in (None, np.arange(int(problem.num_ops)) // 3):
        device = partition_by_time(problem, group)
        assert device.min() >= 0 and device.max() < devices
    count, placed = int(problem.num_ops), ~np.asarray(problem.is_input)
    for op in range(1, count):  # the last has groups; inputs go where they are read
        if group[op] == group[op - 1] and placed[op] and placed[op - 1]:
            assert device[op] == device[op - 1]


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(cases(devices=3))
def test_by_time_placements_are_settled(case):
    problem = case.problem(SMALL)
    device = partition_by_time(problem)
    n = int(problem.num_ops)
    assert problem.allowed[np.arange(n), device[:n]].all()
    np.testing.assert_array_equal(dispatch.legalize_placement(problem, device), device)


def test_an_imbalance_above_one_is_asked_for():
    with pytest.raises(ValueError, match=r"imbalance is 1\.0: expected more than 1"):
        partition_by_time(prepare(NASTY["chain"](), unit_rate_devices(2)), imbalance=1.0)


def test_a_group_for_each_op_is_asked_for():
    problem = prepare(NASTY["chain"](), unit_rate_devices(2))
    with pytest.raises(ValueError, match="group"):
        partition_by_time(problem, np.zeros(int(problem.num_ops) + 1, int))


def test_groups_may_have_any_numbers():
    problem = prepare(two_halves(1), unit_rate_devices(2))
    half = np.arange(16) // 8
    assert (partition_by_time(problem, half) == partition_by_time(problem, 7 * half - 3)).all()
