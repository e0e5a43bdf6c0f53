"""What decisions of GO cost: as by the references, and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.levels import kernel_ends_by_level
from gopt.cost.fusion.rules import RULES
from gopt.cost.hardware import unit_rate_devices
from gopt.cost.joint.problem import prepare_joint
from gopt.cost.schedule import dispatch
from gopt.cost.schedule.problem import prepare
from gopt.graph import padding
from gopt.graph.graph import Op, Output, Shape, from_ops
from gopt.sources.synthetic import layered
from gopt.systems import go
from tests.reference import dispatch as reference_dispatch
from tests.reference import joint as reference_joint
from tests.reference.timing import timing as reference_timing
from tests.strategies import NASTY

SHAPE, ROWS = Shape(96, 96, 256), (256, 1024)
GRAPHS = {"layered": lambda: layered(0, 60)} | NASTY


def problems(name):
    graph = padding.pad(GRAPHS[name](), SHAPE)
    machine = unit_rate_devices(3, flop_rate=1e3, memory_bandwidth=1e3, bandwidth=1e4, launch=0.1)
    return (
        prepare(graph, machine),
        prepare_joint(graph, machine, rules=RULES["gpu"], rows=ROWS),
    )


settled = jax.jit(jax.vmap(dispatch.legalize_placement, (None, 0)))


def random_decisions(rng, problem, count):
    """Decisions `[P, N]`, and an order."""
    rows, n = problem.shape.ops, int(problem.num_ops)
    drawn = (rng.integers(0, k, (count, rows)) for k in (3, len(go.SHIFTS), go.FUSIONS))
    decisions = go.OpDecisions(*(x.astype(np.int32) for x in drawn))
    decisions = decisions._replace(placement=settled(problem, decisions.placement))
    return decisions, go.order_of(problem, rng.permutation(n))


def given_keys(problem, one, order):
    """The keys of one decision about devices and priorities, for the references."""
    keys = jax.device_get(dispatch.placement(problem, one.placement))
    priority = order + np.float32(np.array(go.SHIFTS) - go.SHIFTS[0])[one.scheduling]
    return keys._replace(priority=priority, transfer=np.zeros((SHAPE.tensors, 3), np.float32))


@jax.jit
def cost(problem, decisions, order):
    return go.simulator_of(problem, "makespan", order).cost(decisions)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_decisions_cost_what_the_references_say(name):
    rng = np.random.default_rng(0)
    problem, joint = problems(name)
    decisions, order = random_decisions(rng, problem, 4)
    found = {
        (kind, given is None): np.asarray(cost(each, decisions, given))
        for kind, each in (("alone", problem), ("joint", joint))
        for given in (order, None)
    }
    for row in range(4):
        one = jax.tree.map(lambda x, row=row: np.asarray(x[row]), decisions)
        given = given_keys(problem, one, order)
        small, ops, tensors = reference_joint.contracted(joint, one.fusion)
        for without in (False, True):
            mine = given._replace(priority=None) if without else given
            expected = reference_dispatch.run(problem, mine).makespan
            assert found["alone", without][row] == np.float32(expected)
            expected = reference_dispatch.run(small, reference_joint.keys_of(mine, ops, tensors))
            assert found["joint", without][row] == np.float32(expected.makespan)


@jax.jit
def timing(problem, decision, order):
    return go.simulator_of(problem, "makespan", order).timing(decision)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_ops_run_when_their_kernels_do(name):
    rng = np.random.default_rng(2)
    problem, joint = problems(name)
    decisions, order = random_decisions(rng, problem, 1)
    one = jax.tree.map(lambda x: np.asarray(x[0]), decisions)
    keys = given_keys(problem, one, order)
    small, ops, tensors = reference_joint.contracted(joint, one.fusion)
    of_kernels = reference_timing(small, reference_joint.keys_of(keys, ops, tensors))
    end = np.asarray(kernel_ends_by_level(joint.fusion[0], one.fusion))
    kernel = [ops.index(end[i]) for i in range(int(problem.num_ops))]
    found = {"alone": timing(problem, one, order), "joint": timing(joint, one, order)}
    for field, values in reference_timing(problem, keys).items():
        alone, together = (np.asarray(getattr(each, field)) for each in found.values())
        assert alone[: len(values)].tolist() == values, field
        if field == "transfer_arrival":
            assert together[tensors].tolist() == of_kernels[field], field
            assert together.sum() == np.sum(of_kernels[field])
            continue
        expected = [of_kernels[field][k] for k in kernel]
        assert together[: len(values)].tolist() == expected, field
    assert int(found["joint"].makespan) == max(of_kernels["end"])


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_the_order_in_which_ops_start_is_first_come_first_served(name):
    rng = np.random.default_rng(1)
    problem, joint = problems(name)
    decisions, _ = random_decisions(rng, problem, 4)
    decisions = decisions._replace(scheduling=np.full_like(decisions.scheduling, go.IN_ORDER))
    for each in (problem, joint):
        expected = cost(each, decisions, None)
        for row in range(4):
            one = jax.tree.map(lambda x, row=row: np.asarray(x)[row], decisions)
            order = np.asarray(go.first_come_order(each, one))
            assert ((order >= 0) & (order <= 1)).all()
            assert cost(each, decisions, order)[row] == expected[row]


def test_what_is_shifted_goes_first():
    # Two ops that may start at once; what reads the second is long, and runs elsewhere.
    ops = [Op(flops=1.0, outputs=(Output(0.0),)), Op(flops=1.0, outputs=(Output(0.0),))]
    ops += [Op(inputs=((1, 0),), flops=5.0)]
    problem = prepare(from_ops(ops), unit_rate_devices(2, flop_rate=1.0))
    order = go.order_of(problem, np.arange(problem.shape.ops))
    assert order[:3].tolist() == [0, np.float32(1 / 3), np.float32(2 / 3)]
    device = jnp.int32([0, 0, 1, 0])
    for shift, expected in ((go.IN_ORDER, 7.0), (0, 7.0), (len(go.SHIFTS) - 1, 6.0)):
        # The first is later by less than a third of the ops, and the second is earlier.
        second = go.IN_ORDER if shift <= go.IN_ORDER else 1
        shifts = jnp.int32([shift, second, go.IN_ORDER, go.IN_ORDER])
        decision = go.OpDecisions(device[None], shifts[None], jnp.zeros((1, 4), jnp.int32))
        found = float(cost(problem, decision, order)[0]) * float(problem.tick)
        assert found == pytest.approx(expected, rel=1e-3)
    by_path = go.critical_path_order(problem)
    np.testing.assert_allclose(by_path[:3], [2 / 3, 0, 1 / 3], rtol=1e-6)
    in_order = decision._replace(scheduling=jnp.int32([4 * [go.IN_ORDER]]))
    found = float(cost(problem, in_order, by_path)[0]) * float(problem.tick)
    assert found == pytest.approx(6.0, rel=1e-3)


@jax.jit
def begin(problem, device, fused):
    return go.begin(problem, device, go.simulator_of(problem, "makespan"), fused)


@pytest.mark.slow
def test_a_start_is_where_ops_may_be_and_costs_what_it_says():
    problem, joint = problems("layered")
    wanted = np.random.default_rng(0).integers(0, 3, SHAPE.ops)
    fused = np.random.default_rng(1).random(SHAPE.ops) < 0.5
    for each in (problem, joint):
        found = begin(each, wanted, fused)
        placed = settled(problem, np.int32([wanted]))
        np.testing.assert_array_equal(found.decision.placement, placed[0])
        assert (found.decision.scheduling == go.IN_ORDER).all()
        np.testing.assert_array_equal(found.decision.fusion, fused)
        again = cost(each, jax.tree.map(lambda x: np.stack(4 * [x]), found.decision), None)
        assert (again == found.cost).all() and found.cost > 0


def test_another_objective_raises():
    for each in problems("chain"):
        with pytest.raises(ValueError, match="objective is 'speed': expected one of"):
            go.simulator_of(each, "speed")
