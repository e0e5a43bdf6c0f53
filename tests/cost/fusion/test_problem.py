"""What is quantised of a graph whose ops may be fused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gopt.cost.fusion.problem import MAX_UNFUSED_TICKS, fusion_bucket, power_of_two, prepare_fusion
from gopt.cost.fusion.rules import EXPENSIVE, REPEATABLE, RULES, Rules, kind_fusion_masks
from gopt.cost.hardware import unit_rate_devices
from gopt.graph import graph as graphs
from gopt.graph.graph import Op, Output
from gopt.graph.kinds import KINDS, kind_index
from gopt.graph.tracing import trace

SLOW = unit_rate_devices(1, flop_rate=1e9, memory_bandwidth=1.0)  # a byte a second


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def reads(problem):
    """Bytes that each op reads, by maker and reader."""
    tensor, access = problem.tensor, problem.access
    found, maker = {}, None
    for k in range(int(problem.num_accesses)):
        if k == 0 or tensor[k] != tensor[k - 1]:
            maker = int(access[k])
        else:
            found[maker, int(access[k])] = float(problem.read[k] * problem.tick)
    return found


def ops(graph, name):
    return np.flatnonzero(np.asarray(graph.kind) == kind_index(name)).tolist()


def test_readers_make_broadcasts_themselves():
    def model(x, y, w):
        wide = jnp.broadcast_to(x[:, None] * 2, (10, 30))
        return wide + y, wide @ w

    graph = trace(model, shape(10), shape(10, 30), shape(30, 5)).graph
    problem = prepare_fusion(graph, SLOW)
    (wide,), (add,), (dot,), (double,) = (
        ops(graph, name) for name in ("broadcast_in_dim", "add", "dot_general", "mul")
    )
    found = reads(problem)
    assert found[double, add] == pytest.approx(40, rel=1e-4)  # what is broadcast
    assert found[wide, dot] == pytest.approx(1200, rel=1e-4)  # a product reads what is in memory
    assert problem.is_kernel[wide]
    use = next(
        k for k in range(*problem.first_use[double : double + 2]) if problem.consumer[k] == add
    )
    assert problem.repetitions[use] == 30


def test_a_broadcast_that_nobody_reads_from_memory_is_no_kernel():
    def model(x, y):
        return jnp.broadcast_to(x[:, None], (10, 30)) + y

    graph = trace(model, shape(10), shape(10, 30)).graph
    problem = prepare_fusion(graph, SLOW)
    (wide,) = ops(graph, "broadcast_in_dim")
    assert not problem.is_kernel[wide]
    assert int(problem.is_kernel.sum()) == 1


def test_a_part_is_paid_for_as_a_part():
    graph = trace(lambda x: jnp.exp(x[:10]), shape(1000)).graph
    problem = prepare_fusion(graph, SLOW)
    (part,) = ops(graph, "slice")
    assert reads(problem)[0, part] == pytest.approx(40, rel=1e-4)


def test_an_update_in_place_moves_what_it_replaces():
    graph = trace(
        lambda x, y: jax.lax.dynamic_update_slice(x, y, (3,)), shape(1000), shape(10)
    ).graph
    problem = prepare_fusion(graph, SLOW)
    (update,) = ops(graph, "dynamic_update_slice")
    found = reads(problem)
    assert found[0, update] == 0
    assert found[1, update] == pytest.approx(40, rel=1e-4)
    assert float(problem.memory[update] * problem.tick) == pytest.approx(40, rel=0.2)


def test_what_moves_more_than_its_tensors_pays_for_it():
    op = Op("while", ((0, 0),), (Output(8, (2,), pinned=True),), bytes=1000.0)
    problem = prepare_fusion(graphs.from_ops([Op("input", outputs=(Output(8, (2,)),)), op]), SLOW)
    assert float((problem.memory[1]) * problem.tick) == pytest.approx(992, rel=1e-4)


def test_what_may_be_fused():
    def model(x, w):
        y = jnp.exp(x)  # pinned
        z = jnp.tanh(x @ w)
        return y, jnp.sum(z * y), jax.lax.top_k(z, 2)[0]

    graph = trace(model, shape(8, 8), shape(8, 8)).graph
    problem = prepare_fusion(graph, SLOW)
    configurable = {
        name: bool(problem.configurable[i])
        for name in ("exp", "dot_general", "tanh", "mul", "reduce_sum", "top_k")
        for i in ops(graph, name)
    }
    assert configurable == {
        "exp": False,
        "dot_general": False,
        "tanh": True,
        "mul": True,
        "reduce_sum": False,
        "top_k": False,
    }
    chosen = problem.choices[: int(problem.num_choices)].tolist()
    assert chosen == sorted(np.flatnonzero(problem.configurable).tolist(), reverse=True)
    fewer = prepare_fusion(
        graph, SLOW, rules=Rules((("element-wise", ("element-wise",)),), max_kernel_ops=2)
    )
    assert int(fewer.max_kernel_ops) == 2
    assert fewer.fuses_into[ops(graph, "mul")[0]] < problem.fuses_into[ops(graph, "mul")[0]]


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_ticks_use_the_range(scale):
    graph = trace(lambda x: jnp.tanh(x) * x + 1, shape(100)).graph
    problem = prepare_fusion(graph, unit_rate_devices(1, memory_bandwidth=scale, flop_rate=scale))
    total = int(problem.compute.sum()) + int(problem.memory.sum()) + int(problem.read.sum())
    assert MAX_UNFUSED_TICKS / 2 < total <= MAX_UNFUSED_TICKS + 10


def test_an_op_has_the_time_that_is_given():
    graph = trace(lambda x: jnp.tanh(x) + 1, shape(100)).graph
    problem = prepare_fusion(graph, SLOW, compute=[0, 5000, 300])
    assert (problem.compute[:3] * float(problem.tick)).tolist() == pytest.approx(
        [0, 5000, 300], rel=1e-4
    )


@pytest.mark.parametrize(
    ("function", "work"),
    [(jnp.exp, 11), (jax.lax.erfc, 9), (jax.lax.logistic, 11), (jax.lax.rsqrt, 4), (jnp.abs, 1)],
)
def test_a_function_is_work_by_element_however_it_is_expanded(function, work):
    machine = unit_rate_devices(1, flop_rate=2.0, memory_bandwidth=np.inf)
    problem = prepare_fusion(trace(function, jnp.ones((8, 5))).graph, machine)
    assert np.max(problem.compute) * float(problem.tick) == pytest.approx(work * 40 / 2, rel=1e-5)


def test_nothing_to_do_takes_no_time():
    problem = prepare_fusion(graphs.from_ops([Op("input", outputs=(Output(0),)), Op("exp")]), SLOW)
    assert int(problem.compute.sum()) == int(problem.memory.sum()) == 0
    assert float(problem.tick) == 1


def test_few_shapes_serve_many_graphs():
    shapes = {fusion_bucket(ops, 2 * ops, 4 * ops) for ops in range(1, 3000)}
    assert len(shapes) < 40
    assert all(
        a > ops and b > 2 * ops and c > 4 * ops
        for ops in (1, 15, 16, 500)
        for a, b, c in [fusion_bucket(ops, 2 * ops, 4 * ops)]
    )


def test_bad_input_is_refused():
    graph = trace(lambda x: jnp.tanh(x) + 1, shape(100)).graph
    with pytest.raises(ValueError, match=r"compute has shape \(2,\): expected \(3,\)"):
        prepare_fusion(graph, SLOW, compute=[1, 2])
    with pytest.raises(ValueError, match=r"compute\[1\] is -5.0"):
        prepare_fusion(graph, SLOW, compute=[0, -5, 0])
    with pytest.raises(ValueError, match="rows has 3 ops: expected more than the graph's 3"):
        prepare_fusion(graph, SLOW, rows=(3, 100, 100))
    with pytest.raises(ValueError, match="rows has 2 accesses"):
        prepare_fusion(graph, SLOW, rows=(10, 2, 100))
    with pytest.raises(ValueError, match="rows has 2 visits"):
        prepare_fusion(graph, SLOW, rows=(10, 10, 2))
    with pytest.raises(ValueError, match="fuses_into has role 'loop'"):
        Rules((("element-wise", ("loop",)),))
    with pytest.raises(ValueError, match="fuses_into has no 'reduction' among what moves may be"):
        Rules((("element-wise", ("reduction",)), ("move", ("element-wise", "move"))))
    with pytest.raises(ValueError, match="max_kernel_ops is 0"):
        Rules(RULES["cpu"].fuses_into, max_kernel_ops=0)


def test_a_tick_may_be_given():
    graph = trace(lambda x: jnp.tanh(x) * 2, shape(10)).graph
    own = prepare_fusion(graph, SLOW)
    twice = prepare_fusion(graph, SLOW, tick=2 * own.tick)
    assert twice.tick == 2 * own.tick
    np.testing.assert_array_equal(twice.memory, np.rint(own.memory / 2))
    for tick in (0.0, np.nan, own.tick / 4):
        with pytest.raises(ValueError, match=r"tick is .* s: expected one in which .* s fit"):
            prepare_fusion(graph, SLOW, tick=tick)


def test_ops_may_be_kept_apart():
    graph = trace(lambda x: jnp.tanh(jnp.sin(x)) * 2, shape(10)).graph
    own = prepare_fusion(graph, SLOW)
    (sin, tanh), n = np.flatnonzero(own.configurable), int(own.num_ops)
    problem = prepare_fusion(graph, SLOW, fusible=np.arange(n) != tanh)
    assert np.flatnonzero(problem.configurable).tolist() == [sin] == problem.choices[:1].tolist()
    assert problem.fuses_into[tanh] == 0 and problem.num_choices == 1
    # What is not fused takes no room in a kernel.
    assert problem.reach.may_contain_mask.sum() == -1 and own.reach.may_contain_mask.sum() == -3
    with pytest.raises(ValueError, match=r"fusible has shape \(1,\): expected \(\d,\)"):
        prepare_fusion(graph, SLOW, fusible=[True])


def test_every_kind_that_may_be_fused_is_cheap_or_dear_knowingly():
    """What a new kind costs to compute again has to be thought of: it is in this list, or dear."""
    cheap = {
        *(
            "add",
            "sub",
            "mul",
            "neg",
            "abs",
            "sign",
            "max",
            "min",
            "integer_pow",
            "square",
            "floor",
        ),
        *("ceil", "round", "clamp", "select_n", "convert_element_type", "reduce_precision"),
        *("nextafter", "copy", "add_any", "stop_gradient", "sin", "cos", "tan", "eq", "ne", "lt"),
        *("le", "gt", "ge", "and", "or", "xor", "not", "is_finite", "shift_left", "clz"),
        *("shift_right_logical", "shift_right_arithmetic", "population_count", "reshape"),
        *("squeeze", "expand_dims", "bitcast_convert_type", "broadcast_in_dim", "transpose", "rev"),
        *("pad", "concatenate", "split", "slice", "dynamic_slice", "iota"),
    }
    fuses_into = kind_fusion_masks(RULES["cpu"])
    assert {KINDS[k] for k in np.flatnonzero(fuses_into & REPEATABLE)} == cheap
    assert {KINDS[k] for k in np.flatnonzero(fuses_into)} - cheap <= EXPENSIVE


@pytest.mark.parametrize("exponent", [-40, 0, 7])
def test_a_tick_is_the_smallest_power_of_two_that_is_long_enough(exponent):
    at = 2.0**exponent
    assert power_of_two(at) == at and power_of_two(np.nextafter(at, 0)) == at
    assert power_of_two(np.nextafter(at, np.inf)) == 2 * at and power_of_two(1.5 * at) == 2 * at
