"""Placements that do not fit are moved until they do: against a plain version, and by hand."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gopt.cost.hardware import ideal, unit_rate_devices
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import prepare
from gopt.graph.graph import Op, Output, from_ops
from gopt.heuristics.schedule.placement.repair import fit_memory
from tests.reference import dispatch as reference
from tests.strategies import NASTY, SMALL, cases


def cost(problem, wanted):
    """The settled placement, its excess on each device, and its makespan, by the reference."""
    device = np.asarray(dispatch.legalize_placement(problem, np.asarray(wanted, np.int32)))
    keys = dispatch.placement(problem, device)._replace(
        transfer=np.zeros((problem.shape.tensors, problem.num_devices))
    )
    found = reference.run(problem, keys)
    capacity = problem.capacity.tolist()
    excess = [max(0, p - c) for p, c in zip(found.peak, capacity, strict=True)]
    return device, excess, found.makespan


def plain(problem, wanted, group):
    """The rule in plain Python."""
    device, excess, makespan = cost(problem, wanted)
    while sum(excess) > 0:
        best, least = None, np.inf
        for full in range(problem.num_devices):
            for one in sorted(set(group.tolist())):
                ops = [i for i in range(len(group)) if device[i] == full and group[i] == one]
                for other in range(problem.num_devices):
                    if not ops or not excess[full] or other == full:
                        continue
                    moved = device.copy()
                    moved[ops] = other
                    tried = cost(problem, moved)
                    gone = sum(excess) - sum(tried[1])
                    if gone > 0 and (tried[2] - makespan) / gone < least:
                        best, least = tried, (tried[2] - makespan) / gone
        if best is None:
            break
        device, excess, makespan = best
    return device, excess


@pytest.mark.slow
@pytest.mark.parametrize("devices", (1, 2, 3))
def test_it_is_the_plain_version(devices):
    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(cases(devices), st.sampled_from((0.0, 0.2, 0.4)), st.integers(1, 5), st.integers(0, 99))
    def same(case, share, count, seed):
        problem = case.problem(SMALL)
        total = int(problem.size.astype(np.int64).sum() * share)
        problem = problem._replace(capacity=np.full(devices, total, np.int32))
        rng = np.random.default_rng(seed)
        group = rng.integers(0, count, int(problem.num_ops))
        wanted = rng.integers(0, devices, SMALL.ops) * rng.integers(0, 2)
        expected, _ = plain(problem, wanted, group)
        np.testing.assert_array_equal(fit_memory(problem, wanted, group), expected)

    same()


@pytest.mark.slow
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs_do_not_raise(name):
    problem = prepare(NASTY[name](), ideal(2))
    n = int(problem.num_ops)
    for capacity in (0, 10, 10**6):
        short = problem._replace(capacity=np.full(2, capacity, np.int32))
        found = fit_memory(short, np.zeros(problem.shape.ops, int), np.arange(n) % 3)
        assert found.shape == (problem.shape.ops,) and found.dtype == np.int32


def pinned(*ticks):
    """Ops that make 10 bytes each, to be kept; 25 bytes fit on a device."""
    ops = [Op(outputs=(Output(10.0, pinned=True),)) for _ in ticks]
    return prepare(from_ops(ops), unit_rate_devices(2, capacity=25.0), seconds=list(ticks))


def test_what_fits_is_left_alone_but_for_inputs():
    problem = pinned(1, 2, 3)
    assert fit_memory(problem, np.array([1, 0, 1, 0]), np.arange(3))[:3].tolist() == [1, 0, 1]


def test_the_move_that_lengthens_the_step_least_is_made():
    """Three of four ops are on device 0; the one that is moved runs after 10 s on device 1."""
    problem = pinned(5, 1, 3, 10)
    found = fit_memory(problem, np.array([0, 0, 0, 1, 0]), np.arange(4))
    assert found[:4].tolist() == [0, 1, 0, 1]


def test_what_counts_is_the_time_for_each_byte():
    """Of 35 bytes 10 are too many: 1 s for 4 of them is worse than 2 s for all."""
    ops = [Op(outputs=(Output(size, pinned=True),)) for size in (4.0, 11.0, 20.0, 1.0)]
    problem = prepare(from_ops(ops), unit_rate_devices(2, capacity=25.0), seconds=[1, 2, 3, 10])
    found = fit_memory(problem, np.array([0, 0, 0, 1, 0]), np.arange(4))
    assert found[:4].tolist() == [0, 1, 0, 1]


def test_groups_are_moved_whole():
    problem = pinned(5, 1, 3, 10)
    found = fit_memory(problem, np.array([0, 0, 0, 1, 0]), np.array([0, 1, 1, 2]))
    assert found[:4].tolist() == [1, 0, 0, 1]  # 30 bytes are 5 too many: here and there


@pytest.mark.slow
def test_more_than_fits_anywhere_stays():
    problem = pinned(1, 1, 1, 1, 1, 1)
    found = fit_memory(problem, np.zeros(7, int), np.arange(6))
    assert sorted(np.bincount(found[:6], minlength=2)) in ([2, 4], [3, 3])


def test_a_group_for_each_op_is_asked_for():
    with pytest.raises(ValueError, match=r"group has shape \(2,\): expected one group for 3 ops"):
        fit_memory(pinned(1, 2, 3), np.zeros(4, int), np.zeros(2, int))
