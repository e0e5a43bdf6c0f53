"""What is quantised of a graph whose ops are placed and fused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.problem import MAX_UNFUSED_TICKS
from gopt.cost.fusion.rules import RULES, Rules
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.joint.problem import MAX_SLOWDOWN, MAX_TRANSFER_TICKS, prepare_joint, unfused_ticks
from gopt.cost.schedule.problem import MAX_TICKS
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Op, Output, Shape
from gopt.graph.kinds import kind_index
from gopt.graph.tracing import trace
from tests.strategies import NASTY


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def model(x, y, w):
    wide = jnp.broadcast_to(x[:, None] * 2, (10, 30))
    return (jnp.tanh(wide + y) @ w) - 3


GRAPH = trace(model, shape(10), shape(10, 30), shape(30, 5)).graph


def uses(problem):
    count = int(problem.num_uses)
    maker = problem.producer[problem.tensor[:count]]
    return [*zip(maker.tolist(), problem.consumer[:count].tolist(), strict=True)]


def op(graph, name):
    (found,) = np.flatnonzero(graph.kind == kind_index(name))
    return int(found)


def test_an_op_takes_what_a_kernel_of_its_own_does_on_each_kind_of_device():
    hardware = unit_rate_devices(4, memory_bandwidth=1e9, overlap=0.5, bandwidth=1e9)
    hardware = hardware._replace(flop_rate=np.array([1e9, 5e9, 1e9, 5e9]))
    joint = prepare_joint(GRAPH, hardware)
    assert len(joint.fusion) == 2 and joint.kind.tolist() == [0, 1, 0, 1]
    for device, kind in enumerate(joint.kind):
        ticks = unfused_ticks(joint.fusion[kind])
        assert joint.schedule.op_ticks[:, device].tolist() == ticks.tolist()
    tanh = op(GRAPH, "tanh")
    compute, moved = 9 * 300 / 1e9, 2 * 1200 / 1e9  # tanh counts as nine flops
    seconds = joint.schedule.op_ticks[tanh, :2] * joint.schedule.tick
    assert seconds[0] == pytest.approx(compute + moved / 2, rel=1e-5)
    assert seconds[1] == pytest.approx(compute / 5 / 2 + moved, rel=1e-5)
    assert {float(problem.tick) for problem in joint.fusion} == {float(joint.schedule.tick)}


def test_broadcasts_that_readers_make_are_gone():
    joint = prepare_joint(GRAPH, unit_rate_devices(2))
    wide, double, add = (op(GRAPH, name) for name in ("broadcast_in_dim", "mul", "add"))
    assert joint.schedule.is_input[wide] and not joint.schedule.op_ticks[wide].any()
    assert not joint.schedule.size[joint.schedule.producer == wide].any()
    assert (double, add) in uses(joint.schedule)
    assert not any(wide in use for use in uses(joint.schedule))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("latency", [0.0, 1.0, 1e4])
def test_the_slowest_kernels_and_all_transfers_fit_into_few_bits(scale, latency):
    hardware = unit_rate_devices(2, memory_bandwidth=1 / scale, latency=latency * scale)
    hardware = hardware._replace(flop_rate=np.array([1.0, 2.0]) / scale)
    schedule = prepare_joint(GRAPH, hardware).schedule
    ops = schedule.op_ticks.astype(np.int64).max(1).sum()
    sent = schedule.transfer_ticks.astype(np.int64).max(1).sum()
    assert MAX_SLOWDOWN * ops + sent < MAX_TICKS
    assert ops > MAX_UNFUSED_TICKS / 8 or sent > MAX_TRANSFER_TICKS / 4


def test_an_op_is_fused_only_if_it_may_run_where_its_readers_may():
    ops = [Op("input", outputs=(Output(4),))]
    ops += [Op("neg", ((i, 0),), (Output(4, pinned=i == 3),)) for i in range(4)]
    allowed = np.array([[1, 1], [1, 1], [0, 1], [1, 1], [1, 0]], bool)
    for rows in (None, (30, 40)):
        joint = prepare_joint(
            graphs.from_ops(ops), unit_rate_devices(2), allowed=allowed, rows=rows
        )
        (fusion,) = joint.fusion
        # Op 2 may not run on device 0, where op 3 may.
        assert np.flatnonzero(fusion.configurable).tolist() == [1, 3]
        assert fusion.num_choices == 2


def test_rows():
    padded = padding.pad(GRAPH, Shape(40, 50, 60))
    joint = prepare_joint(padded, unit_rate_devices(2), rows=(90, 80))
    (fusion,) = joint.fusion
    assert joint.schedule.shape == (40, 50, 60)
    assert (len(fusion.compute), len(fusion.access), len(fusion.reach.kernel)) == (40, 90, 80)
    joint = prepare_joint(
        GRAPH, unit_rate_devices(2), rules=Rules(RULES["cpu"].fuses_into, allow_duplication=True)
    )
    assert not joint.fusion[0].allow_duplication
    real = np.add((GRAPH.num_ops, GRAPH.num_tensors, GRAPH.num_uses), 1).tolist()
    assert [*joint.schedule.shape] == real
    with pytest.raises(ValueError, match="rows has 2 accesses"):
        prepare_joint(GRAPH, unit_rate_devices(2), rows=(2, 80))


@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs(name):
    graph = NASTY[name]()
    schedule = prepare_joint(graph, unit_rate_devices(3, bandwidth=np.inf)).schedule
    assert int(schedule.num_uses) == int(graph.num_uses)
    assert schedule.tick > 0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"allowed\[1\] allows no device"):
        prepare_joint(GRAPH, unit_rate_devices(2), allowed=np.arange(GRAPH.num_ops) != 1)
    with pytest.raises(ValueError, match=r"flop_rate\[0\] is -1\.0"):
        prepare_joint(GRAPH, unit_rate_devices(1)._replace(flop_rate=np.array([-1.0])))
