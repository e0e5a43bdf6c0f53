"""m-ETF against a plain version, and what groups and memory do to list schedules."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gopt.cost.hardware import ideal, unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.decoding import devices_of
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics import critical_path, etf, heft
from gopt.heuristics.schedule.placement.list_scheduling import memory_etf
from gopt.heuristics.schedule.placement.ready_pairs import ReadyPairs
from tests.reference import memory_etf as reference
from tests.reference.execution import run
from tests.strategies import HUBS, NASTY, SMALL, WIDE, cases

MANY = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
LIMITS = (0.0, 0.1, 0.3, 0.6, 2.0)  # capacities in shares of all tensors


def limited(case, shape, share):
    """The problem with asynchronous transfers, all devices allowed, and little memory."""
    hardware = case.hardware._replace(synchronous=np.bool_(False))
    everywhere = np.ones_like(case.allowed)
    problem = dataclasses.replace(case, hardware=hardware, allowed=everywhere).problem(shape)
    total = problem.size.astype(np.int64).sum() * share
    capacity = np.minimum(total * np.array([1.0, 0.5, 0.7, 1.0])[: problem.num_devices], 2**31 - 1)
    return problem._replace(capacity=capacity.astype(np.int32))


def groups(problem, count, seed):
    return np.random.default_rng(seed).integers(0, count, int(problem.num_ops))


@pytest.mark.parametrize("devices, shape", ((1, SMALL), (2, SMALL), (2, WIDE), (4, SMALL)))
def test_it_is_the_plain_version(devices, shape):
    @MANY
    @given(cases(devices), st.sampled_from(LIMITS), st.integers(1, 24), st.integers(0, 99))
    def same(case, share, count, seed):
        problem = limited(case, shape, share)
        group = groups(problem, count, seed)
        found = memory_etf(problem, group)
        n = int(problem.num_ops)
        assert found.shape == (shape.ops,) and found.dtype == np.int32
        expected = reference.run(problem, group)
        read = [i for i in range(n) if not problem.is_input[i] or i in makers(problem)]
        assert [found[i] for i in read] == [expected[i] for i in read]

    same()


def makers(problem):
    return set(problem.producer[problem.tensor[: int(problem.num_uses)]].tolist())


@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs(name):
    problem = prepare(NASTY[name](), ideal(3))
    n = int(problem.num_ops)
    for share in LIMITS:
        short = problem._replace(capacity=(share * problem.size.sum(keepdims=True)).repeat(3))
        for group in (np.arange(n), np.zeros(n, int), groups(problem, 3, 0)):
            found = memory_etf(short, group)
            read = [i for i in range(n) if not problem.is_input[i] or i in makers(problem)]
            expected = reference.run(short, group)
            assert [found[i] for i in read] == [expected[i] for i in read]


@pytest.mark.slow
@pytest.mark.parametrize("devices", (2, 4))
def test_of_single_ops_with_room_it_is_etf(devices):
    @MANY
    @given(cases(devices))
    def same(case):
        problem = case.problem(SMALL)
        n = int(problem.num_ops)
        problem = problem._replace(capacity=np.full(devices, 2**31 - 1, np.int32))
        # Copies count, so that room for all tensors can be too little.
        problem = problem._replace(size=problem.size // (2 * devices))
        device = devices_of(problem, etf(problem))
        expected = np.asarray(dispatch.legalize_placement(problem, device))
        placed = ~problem.is_input[:n]
        found = memory_etf(problem, np.arange(n))
        np.testing.assert_array_equal(found[:n][placed], expected[:n][placed])

    same()


@pytest.mark.slow
@pytest.mark.parametrize("heuristic", (heft, critical_path))
@pytest.mark.parametrize("devices", (2, 3))
def test_groups_are_kept_together_where_they_may_and_keys_decode_to_the_schedule(
    heuristic, devices
):
    @MANY
    @given(cases(devices), st.integers(1, 24), st.integers(0, 99))
    def kept(case, count, seed):
        problem = case.problem(SMALL)
        group = groups(problem, count, seed)
        found = run(problem, heuristic(problem, group))
        check_together(problem, group, found.device)
        check_together(problem, group, memory_etf(problem, group).tolist())

    kept()


def check_together(problem, group, device):
    """Some device has all ops of a group that may be there; others are on their first one."""
    for one in np.unique(group):
        ops = [i for i in np.flatnonzero(group == one) if not problem.is_input[i]]
        first = {i: int(np.argmax(problem.allowed[i])) for i in ops}
        homes = [
            d
            for d in range(problem.num_devices)
            if all(device[i] == (d if problem.allowed[i, d] else first[i]) for i in ops)
        ]
        assert homes or not ops


@pytest.mark.parametrize("heuristic", (heft, critical_path))
def test_each_op_alone_is_the_default(heuristic):
    @MANY
    @given(cases(3))
    def same(case):
        problem = case.problem(SMALL)
        alone = heuristic(problem, np.arange(int(problem.num_ops)))
        for leaf, expected in zip(alone, heuristic(problem), strict=True):
            np.testing.assert_array_equal(leaf, expected)

    same()


@pytest.mark.parametrize("method", (heft, critical_path, memory_etf))
def test_a_group_for_each_op_is_asked_for(method):
    problem = prepare(NASTY["chain"](), ideal(2))
    with pytest.raises(ValueError, match=r"group has shape \(3,\): expected one group for 22 ops"):
        method(problem, np.zeros(3, int))


@pytest.mark.parametrize("method", (heft, critical_path, memory_etf))
def test_two_groups_run_side_by_side(method):
    """Two chains, each on a device, tied by nothing; single ops of each are one group."""
    ops = []
    for k in range(12):
        ops.append(Op(inputs=((k - 2, 0),) if k > 1 else (), outputs=(Output(5.0),), flops=1.0))
    problem = prepare(from_ops(ops), unit_rate_devices(2))
    found = method(problem, np.arange(12) % 2)
    device = found if method is memory_etf else np.asarray(devices_of(problem, found))
    assert device[:12].tolist() in ([0, 1] * 6, [1, 0] * 6)


def weights(count, capacity):
    """Readers of weights of 6 bytes each, all ready at once, on two devices."""
    ops = [Op("input", outputs=(Output(6.0, pinned=True),)) for _ in range(count)]
    ops += [Op(inputs=((k, 0),), flops=1.0) for k in range(count)]
    return prepare(from_ops(ops), unit_rate_devices(2, capacity=capacity))


def test_a_full_device_gets_nothing_more():
    """Device 1 has room for one weight; without limits the readers alternate."""
    problem = weights(4, 24.0)
    assert memory_etf(problem, np.arange(8))[4:8].tolist() == [0, 1, 0, 1]
    short = problem._replace(capacity=np.array([24, 11], np.int32))
    assert memory_etf(short, np.arange(8))[4:8].tolist() == [0, 1, 0, 0]


def test_a_group_needs_room_for_all_that_it_keeps():
    """Weights of 6: a group of two needs 12, which device 0 does not have."""
    problem = weights(3, 24.0)._replace(capacity=np.array([11, 24], np.int32))
    group = np.array([0, 0, 1, 0, 0, 1])
    assert memory_etf(problem, group)[:6].tolist() == [1, 1, 0, 1, 1, 0]


def test_where_nothing_fits_the_nearest_is_taken():
    problem = weights(2, 24.0)._replace(capacity=np.array([2, 3], np.int32))
    assert memory_etf(problem, np.arange(4))[2:4].tolist() == [1, 0]


def test_what_is_read_by_all_is_freed():
    """A chain of tensors of 4 bytes fits 8 on one device, however long it is; sending is slow."""
    ops = [Op(outputs=(Output(4.0),), flops=1.0)]
    ops += [Op(inputs=((k, 0),), outputs=(Output(4.0),), flops=1.0) for k in range(20)]
    problem = prepare(from_ops(ops), unit_rate_devices(2, capacity=8.0))
    assert not memory_etf(problem, np.arange(21))[:21].any()
    tight = problem._replace(capacity=np.array([7, 8], np.int32))
    assert memory_etf(tight, np.arange(21))[1:21].all()


@pytest.mark.parametrize("capacity", (1.0, 1e9))
@pytest.mark.parametrize("name", HUBS)
def test_work_does_not_grow_with_the_square(monkeypatch, name, capacity):
    """Pairs added, for each op; with a capacity that nothing, or everything, fits."""
    count = 0
    add = ReadyPairs.add

    def counted(self, op, devices):
        nonlocal count
        count += len(list(devices))
        add(self, op, devices)

    monkeypatch.setattr(ReadyPairs, "add", counted)
    problem = prepare(HUBS[name](), unit_rate_devices(2))
    problem = problem._replace(capacity=np.full(2, int(capacity), np.int32))
    memory_etf(problem, np.arange(int(problem.num_ops)))
    assert count <= 20 * 1001


def test_room_that_is_freed_is_used():
    """Op 1 does not fit beside op 0; once op 2 has read that, it does, and then op 3 does not."""
    ops = [Op(outputs=(Output(8.0),)), Op(outputs=(Output(8.0, pinned=True),))]
    ops += [Op(inputs=((0, 0),), outputs=(Output(0.0),))]
    ops += [Op(inputs=((2, 0),), outputs=(Output(8.0, pinned=True),))]
    problem = prepare(from_ops(ops), unit_rate_devices(2), seconds=[9, 4, 1, 3])
    problem = problem._replace(capacity=np.array([10, 3], np.int32))
    assert memory_etf(problem, np.arange(4))[:4].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("method", (heft, critical_path, memory_etf))
def test_inputs_are_with_their_group_before_they_are_read(method):
    """The first reader of the input comes late; the other one goes where the input will be."""
    ops = [Op("input", outputs=(Output(10.0),)), Op(outputs=(Output(1.0),))]
    ops += [Op(inputs=((0, 0), (1, 0))), Op(inputs=((0, 0),))]
    problem = prepare(from_ops(ops), unit_rate_devices(2), seconds=[0, 2, 1, 1])
    found = method(problem, np.array([1, 0, 0, 1]))
    device = found if method is memory_etf else np.asarray(devices_of(problem, found))
    assert device[:4].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("method", (heft, critical_path, memory_etf))
def test_what_may_not_be_with_its_group_is_where_it_may_be_first(method):
    graph = from_ops([Op(), Op()])
    times, allowed = [[9, 9, 9], [1, 5, 1]], [[1, 0, 0], [0, 1, 1]]
    problem = prepare(graph, unit_rate_devices(3), seconds=times, allowed=allowed)
    found = method(problem, np.zeros(2, int))
    device = found if method is memory_etf else np.asarray(devices_of(problem, found))
    assert device[:2].tolist() == [0, 1]
