"""Schedules of kernels against those of a smaller graph, bit for bit, and by hand."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from gopt.cost.fusion.cost import fusion_cost
from gopt.cost.fusion.levels import fuse_by_level, kernel_ends_by_level
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.joint.cost import contract_kernels
from gopt.cost.joint.problem import MAX_SLOWDOWN, prepare_joint
from gopt.cost.schedule import decoding, dispatch, execution
from gopt.cost.schedule.problem import MAX_TICKS, Problem
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Op, Output, Shape
from gopt.graph.kinds import INPUT, kind_index
from tests.cost.fusion.test_cost import KINDS, random_graph
from tests.cost.fusion.test_levels import sparse
from tests.reference import dispatch as reference_dispatch
from tests.reference import execution as reference_execution
from tests.reference import joint as reference
from tests.strategies import CHANNELS, NASTY, random_hardware, random_keys
from tests.tiers import slow

SHAPE, ROWS = Shape(34, 60, 128), (128, 512)


contract = jax.jit(contract_kernels)


evaluate = jax.jit(dispatch.evaluate)
makespan = jax.jit(dispatch.makespan)


@jax.jit
def costs_of(problem, keys):
    return (
        dispatch.evaluate(problem, keys),
        dispatch.evaluate(problem, keys._replace(priority=None)),
        execution.evaluate(problem, keys),
    )


def machine(rng, devices):
    """Two kinds of devices, one after the other."""
    channel = str(rng.choice(list(CHANNELS)))
    hardware = random_hardware(rng, devices, channel, synchronous=bool(rng.integers(2)))
    second = np.arange(devices) % 2
    return hardware._replace(
        flop_rate=np.array([1.0, 7.0])[second],
        memory_bandwidth=rng.choice([1.0, 3.0], 2)[second],
        launch=rng.choice([0.0, 5.0], 2)[second],
        overlap=np.float64(rng.choice([0.0, 0.95, 1.0])),
    )


def random_allowed(rng, graph, devices):
    allowed = rng.random((int(graph.num_ops), devices)) < rng.choice([0.5, 0.9, 1])
    allowed[np.arange(len(allowed)), rng.integers(0, devices, len(allowed))] = True
    return allowed


def problem_of(rng, graph, devices, *, shape=SHAPE, rows=ROWS):
    workspace = rng.integers(0, 90, int(graph.num_ops)).astype(np.float64)
    return prepare_joint(
        padding.pad(graph._replace(workspace=workspace), shape),
        machine(rng, devices),
        rules=Rules(RULES["gpu"].fuses_into, max_kernel_ops=int(rng.choice([3, 64]))),
        allowed=random_allowed(rng, graph, devices),
        rows=rows,
    )


def check(joint, rng):
    """Returns how many ops are fused by some candidates."""
    rows, devices = joint.schedule.shape, joint.schedule.num_devices
    fused = 0
    for most in (0, 1, 3, 20):
        level = rng.integers(0, most + 1, rows.ops).astype(np.int32)
        keys = random_keys(rng, str(rng.choice(["uniform", "tied"])), rows, devices)
        problem = jax.device_get(contract(joint, level))
        costs = jax.device_get(costs_of(problem, keys))
        is_in_order(problem, joint.schedule)
        small, ops, tensors = reference.contracted(joint, level)
        some = reference.keys_of(keys, ops, tensors)
        right = (
            reference_dispatch.run(small, some),
            reference_dispatch.run(small, some._replace(priority=None)),
            reference_execution.run(small, some),
        )
        for cost, expected in zip(costs, right, strict=True):
            assert cost.makespan == expected.makespan
            assert cost.peak.tolist() == expected.peak
        end = np.asarray(kernel_ends_by_level(joint.fusion[0], level))
        assert not np.any(problem.allowed[end] & ~joint.schedule.allowed)
        gone = end != np.arange(rows.ops)
        assert problem.is_input[gone].all() and not problem.op_ticks[gone].any()
        assert not problem.op_ticks[~problem.allowed].any()
        fused += int(np.sum(gone))
        longest = problem.op_ticks.max(1).sum() + problem.transfer_ticks.max(1).sum()
        assert longest < MAX_TICKS
    return fused


def is_in_order(problem, before):
    """The arrays of uses are those that `prepare` makes, and shapes and types are as before."""
    n, t, _ = problem.shape
    uses = [*zip(problem.tensor.tolist(), problem.consumer.tolist(), strict=True)]
    count = int(problem.num_uses)
    assert uses[:count] == sorted(set(uses[:count]))
    assert set(uses[count:]) == {(t - 1, n - 1)}
    order = np.lexsort((problem.tensor, problem.consumer))
    assert problem.read.tolist() == problem.tensor[order].tolist()
    consumer = problem.consumer[order]
    assert problem.first_use.tolist() == np.searchsorted(problem.tensor, np.arange(t + 1)).tolist()
    assert problem.first_read.tolist() == np.searchsorted(consumer, np.arange(n + 1)).tolist()
    for field, old, new in zip(Problem._fields, before, problem, strict=True):
        if field not in ("tick", "unit"):
            assert (np.shape(new), new.dtype) == (np.shape(old), np.asarray(old).dtype), field


@pytest.mark.slow
@pytest.mark.parametrize("seed", (*range(3), *slow(*range(3, 12))))
def test_random_graphs_match_the_reference(seed):
    rng = np.random.default_rng(seed)
    fused = check(problem_of(rng, sparse(rng, 31, KINDS), 3), rng)
    check(problem_of(rng, random_graph(rng, int(rng.integers(1, 31))), 3), rng)
    assert fused > 0


@pytest.mark.parametrize("name", [name for name in NASTY if name != "broadcast"])
def test_nasty_graphs_match_the_reference(name):
    rng = np.random.default_rng(0)
    graph = NASTY[name]()
    kind = np.where(graph.kind == INPUT, INPUT, kind_index("add"))
    check(problem_of(rng, graph._replace(kind=kind), 3), rng)


def test_where_nothing_is_fused_the_schedule_is_as_it_was():
    rng = np.random.default_rng(5)
    for _ in range(5):
        joint = problem_of(rng, sparse(rng, 31, KINDS), 2)
        level = np.zeros(SHAPE.ops, np.int32)
        found = contract(joint, level)
        jax.tree.map(np.testing.assert_array_equal, found, joint.schedule)


@pytest.mark.slow
def test_on_one_device_the_makespan_is_the_cost_of_the_fusion():
    rng = np.random.default_rng(6)
    for _ in range(5):
        graph = sparse(rng, 31, ("add", "mul", "exp"), sizes=(9,))  # so that nothing is repeated
        joint = problem_of(rng, graph, 1)
        level = rng.integers(0, 4, SHAPE.ops).astype(np.int32)
        keys = random_keys(rng, "uniform", SHAPE, 1)
        (fusion,) = joint.fusion
        expected = fusion_cost(fusion, fuse_by_level(fusion, level))
        assert makespan(contract(joint, level), keys) == expected
        assert expected < joint.schedule.op_ticks.sum()


@pytest.mark.slow
def test_padding_changes_nothing():
    rng = np.random.default_rng(7)
    graph, level = sparse(rng, 25, KINDS), rng.integers(0, 4, 25)
    device, priority = rng.random((25, 2)), rng.random(25)
    found = set()
    for shape, rows in ((Shape(26, 40, 65), (90, 600)), (SHAPE, ROWS), (Shape(48, 99, 70), ROWS)):
        joint = problem_of(np.random.default_rng(8), graph, 2, shape=shape, rows=rows)
        for fill in (0, 20):
            levels = np.full(shape.ops, fill, np.int32)
            levels[:25] = level
            problem = contract(joint, levels)
            keys = decoding.Keys(
                np.ones((shape.ops, 2), np.float32), np.zeros(shape.ops, np.float32), None
            )
            keys.device[:25], keys.priority[:25] = device, priority
            cost = evaluate(problem, keys)
            found.add((int(cost.makespan), *cost.peak.tolist(), int(problem.num_uses)))
    assert len(found) == 1


@pytest.mark.slow
def test_maps_over_graphs_and_candidates_compose():
    rng = np.random.default_rng(10)
    hardware = machine(rng, 2)
    joints = [
        prepare_joint(padding.pad(sparse(rng, 31, KINDS), SHAPE), hardware, rows=ROWS)
        for _ in range(2)
    ]
    level = rng.integers(0, 4, (2, 3, SHAPE.ops)).astype(np.int32)
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *joints)
    found = jax.device_get(jax.jit(jax.vmap(jax.vmap(contract_kernels, (None, 0))))(batch, level))
    for g, joint in enumerate(joints):
        for p in range(3):
            one = jax.tree.map(lambda leaf, at=(g, p): leaf[at], found)
            jax.tree.map(np.testing.assert_array_equal, one, contract(joint, level[g, p]))
    assert len(np.unique(found.num_uses)) > 3


# By hand.


def op(kind, *reads, size=4, pinned=False):
    return Op(kind, tuple((i, 0) for i in reads), (Output(size, (size,), pinned=pinned),))


BYTES = unit_rate_devices(2, memory_bandwidth=1.0, overlap=0.0, flop_rate=1.0)  # a byte a second


def seconds_of(joint, ops, device, fused):
    """Returns when the last op ends, s, and what the devices hold at most, bytes."""
    rows = joint.schedule.shape.ops
    keys = np.zeros((rows, 2), np.float32)
    keys[np.arange(ops), device] = 1
    problem = contract(joint, np.isin(np.arange(rows), fused).astype(np.int32))
    cost = evaluate(problem, decoding.Keys(keys, np.zeros(rows, np.float32), None))
    return float(cost.makespan) * joint.schedule.tick, cost.peak.tolist()


def test_a_kernel_waits_for_all_that_it_reads_and_sends_nothing_inside():
    """x and y are inputs on devices 0 and 1; a = -x; b = -y; c = a + b, on device 1."""
    ops = [op("input"), op("input"), op("neg", 0), op("neg", 1), op("add", 2, 3, pinned=True)]
    joint = prepare_joint(graphs.from_ops(ops), BYTES)
    # x is sent in 4 s and negated in 8; so is y at once; then 12 for the sum.
    assert seconds_of(joint, 5, [0, 1, 1, 1, 1], []) == (8 + 8 + 12, [4, 4 + 4 + 4])
    # x on device 0 is negated there until 8, and sent until 12.
    assert seconds_of(joint, 5, [0, 1, 0, 1, 1], []) == (8 + 4 + 12, [4 + 4, 4 + 4 + 4])
    # One kernel of 12 s, when x has come: device 0 has nothing to do, wherever a was to run.
    for device in (0, 1):
        found = seconds_of(joint, 5, [0, 1, device, 0, 1], [2, 3])
        assert found == (4 + 12, [4, 4 + 4 + 4])
    # Only a is in it.
    assert seconds_of(joint, 5, [0, 1, 0, 1, 1], [2]) == (8 + 12, [4, 4 + 4 + 4])


@pytest.mark.slow
def test_a_kernel_reads_a_tensor_once():
    ops = [op("input"), op("neg", 0), op("exp", 0), op("add", 1, 2, pinned=True)]
    joint = prepare_joint(graphs.from_ops(ops), BYTES)
    assert seconds_of(joint, 4, [0, 1, 1, 1], []) == (4 + 8 + 8 + 12, [4, 4 + 4 + 4])
    assert seconds_of(joint, 4, [0, 1, 1, 1], [1, 2]) == (4 + 8, [4, 4 + 4])
    problem = contract(joint, np.isin(np.arange(joint.schedule.shape.ops), [1, 2]))
    assert (int(problem.num_uses), int(problem.tensor[0]), int(problem.consumer[0])) == (1, 0, 3)


def test_a_kernel_has_the_largest_workspace_of_its_ops():
    ops = [op("input"), op("neg", 0), op("add", 1, pinned=True)]
    ops[1], ops[2] = replace(ops[1], workspace=9), replace(ops[2], workspace=5)
    joint = prepare_joint(graphs.from_ops(ops), BYTES)
    assert seconds_of(joint, 3, [0, 0, 0], [1])[1] == [4 + 4 + 9, 0]


def test_what_is_computed_again_and_again_counts_up_to_a_limit():
    """An element is multiplied 2¹⁰ times instead of once."""
    ops = [op("input", size=4), Op("mul", ((0, 0),), (Output(4, (4,)),), flops=1e6)]
    ops.append(op("add", 1, size=2**12, pinned=True))
    joint = prepare_joint(graphs.from_ops(ops), BYTES._replace(memory_bandwidth=np.full(2, 1e6)))
    before = seconds_of(joint, 3, [0, 0, 0], [])[0]
    assert before == pytest.approx(1e6, rel=1e-3)
    assert seconds_of(joint, 3, [0, 0, 0], [1])[0] == MAX_SLOWDOWN * before


def test_a_bad_candidate_is_refused():
    joint = prepare_joint(graphs.from_ops([Op()]), BYTES)
    with pytest.raises(ValueError, match=r"level has shape \(3,\): expected \(2,\)"):
        contract_kernels(joint, np.zeros(3, np.int32))
