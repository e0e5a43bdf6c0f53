import jax
import numpy as np
import pytest
from hypothesis import given, settings

from gopt.cost.hardware import op_seconds, unit_rate_devices
from gopt.cost.schedule import problem as problems
from gopt.cost.schedule.problem import MAX_TICKS, MAX_UNITS, Problem, prepare, to_bytes, to_seconds
from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Op, Output
from tests import strategies
from tests.strategies import SMALL

pytestmark = pytest.mark.small


def two_ops(size: float = 4, workspace: float = 0):
    ops = [Op(outputs=(Output(size),), workspace=workspace), Op(inputs=((0, 0),))]
    return graphs.from_ops(ops)


def test_whole_seconds_and_bytes_are_kept():
    hardware = unit_rate_devices(2, latency=2.0, bandwidth=4.0, capacity=100.0)
    problem = prepare(two_ops(8, 3), hardware, seconds=[5.0, 7.0])
    assert (problem.tick, problem.unit) == (1, 1)
    assert problem.op_ticks[:2].tolist() == [[5, 5], [7, 7]]
    assert problem.transfer_ticks[0].tolist() == [[0, 4], [4, 0]]
    assert problem.size[0] == 8 and problem.workspace[0] == 3
    assert problem.capacity.tolist() == [100, 100]
    for field, leaf in problem._asdict().items():
        kinds = {"tick": "f", "unit": "f", "allowed": "b", "pinned": "b"}
        kinds |= {"synchronous": "b", "is_input": "b"}
        assert np.asarray(leaf).dtype.kind == kinds.get(field, "i"), field
        assert np.asarray(leaf).dtype.itemsize == {"i": 4, "f": 8, "b": 1}[kinds.get(field, "i")]


def test_the_roofline_is_the_default_and_given_times_include_overheads():
    graph = graphs.from_ops([Op(flops=40, bytes=6, outputs=(Output(1),))])
    hardware = unit_rate_devices(1, flop_rate=2.0, launch=3.0)
    assert prepare(graph, hardware).op_ticks[0] == op_seconds([40], [6], hardware) == 23
    assert prepare(graph, hardware, seconds=[20.0]).op_ticks[0] == 20


def test_inputs_take_no_time_and_no_workspace():
    graph = graphs.from_ops(
        [Op("input", outputs=(Output(4),), workspace=9), Op(inputs=((0, 0),), workspace=2)]
    )
    problem = prepare(graph, unit_rate_devices(2), seconds=[3.0, 4.0])
    assert problem.op_ticks[:2].tolist() == [[0, 0], [4, 4]]
    assert problem.workspace[:2].tolist() == [0, 2]
    assert problem.is_input.tolist() == [True, False, False]


def test_disallowed_and_unread_take_no_ticks():
    """So that the sums of ticks are as small, and ticks as fine, as they can be."""
    graph = graphs.from_ops([Op(outputs=(Output(2**40), Output(4))), Op(inputs=((0, 1),))])
    allowed = np.array([[True, False], [True, True]])
    seconds = np.array([[1.0, 2.0**40], [1.0, 1.0]])
    problem = prepare(graph, unit_rate_devices(2), seconds=seconds, allowed=allowed)
    assert problem.tick == 1
    assert problem.op_ticks[:2].tolist() == [[1, 0], [1, 1]]
    assert problem.allowed[:2].tolist() == allowed.tolist() and problem.allowed[2:].all()
    assert problem.transfer_ticks[:2, 0, 1].tolist() == [0, 4]


@settings(deadline=None, max_examples=150)
@given(strategies.cases(3))
def test_sums_stay_below_their_limits_and_rounding_is_small(case):
    problem = case.problem(SMALL)
    ticks = problem.op_ticks.astype(np.int64).max(1).sum()
    ticks += problem.transfer_ticks.astype(np.int64).max(1).sum()
    assert ticks < MAX_TICKS
    units = problem.size.astype(np.int64).sum() + problem.workspace.max()
    assert units <= MAX_UNITS

    n, t = case.seconds.shape[0], case.graph.size.size
    runs = np.where(case.allowed & ~problem.is_input[:n, None], case.seconds, 0)
    error = np.abs(to_seconds(problem, problem.op_ticks[:n]) - runs)
    assert (error <= problem.tick / 2).all()
    if problem.tick != 1:
        assert np.log2(problem.tick) % 1 == 0
        # No smaller power of two fits: at most half of the range is left unused.
        assert ticks * 2 >= MAX_TICKS - problem.op_ticks.shape[0] - problem.transfer_ticks.size
    extra = to_bytes(problem, problem.size[:t]) - case.graph.size
    assert ((extra >= 0) & (extra < problem.unit)).all()
    assert np.log2(problem.unit) % 1 == 0
    if problem.unit > 1:
        half = problem.unit / 2
        workspace = np.where(problem.is_input[:n], 0, case.graph.workspace)
        assert np.ceil(case.graph.size / half).sum() + np.ceil(workspace / half).max() > MAX_UNITS


def test_sizes_round_up_and_capacities_round_down():
    graph = graphs.from_ops([Op(outputs=(Output(2**33), Output(1), Output(0)), workspace=5)])
    problem = prepare(graph, unit_rate_devices(2, capacity=2**33 + 7))
    assert problem.unit == 8
    assert problem.size[:3].tolist() == [2**30, 1, 0] and problem.workspace[0] == 1
    assert problem.capacity.tolist() == [2**30, 2**30]
    assert prepare(graph, unit_rate_devices(1)).capacity == MAX_UNITS


@pytest.mark.parametrize(
    ("size", "workspace", "unit"),
    [(2**31 - 1, 0, 1), (2**31 - 2, 1, 1), (2**31 - 1, 1, 2), (2**31, 0, 2), (2.0**70, 0, 2**40)],
)
def test_unit_is_the_smallest_power_of_two(size, workspace, unit):
    problem = prepare(two_ops(size, workspace), unit_rate_devices(2))
    assert problem.unit == unit
    assert problem.size[0] == -(-int(size) // unit)


@pytest.mark.parametrize(
    ("seconds", "tick"),
    [
        ([2.0**29, 2.0**29 - 1], 1),  # the largest sum of whole seconds
        ([2.0**29, 2.0**29], 2),
        ([0.0, 0.0], 1),
        ([0.5, 0.0], 2.0**-30),
        ([2.0**29 - 0.5, 0.0], 0.5),
        ([0.5, 0.25], 2.0**-30),
        ([5e-324, 0.0], 2.0**-1022),
        ([1e300, 1e300], 2.0**968),
    ],
)
def test_tick_is_one_or_the_smallest_power_of_two(seconds, tick):
    problem = prepare(two_ops(0), unit_rate_devices(1), seconds=seconds)
    assert problem.tick == tick
    assert problem.op_ticks.sum(dtype=np.int64) < MAX_TICKS


def test_a_tick_may_be_given():
    hardware, seconds = unit_rate_devices(2), [0.5, 0.25]
    problem = prepare(two_ops(), hardware, seconds=seconds, tick=2.0**-10)
    assert problem.tick == 2.0**-10
    assert problem.op_ticks[:2, 0].tolist() == [512, 256]
    assert problem.transfer_ticks[0, 0, 1] == 4096
    for tick in (0.0, -1.0, np.nan, 2.0**-29):  # of the last, 8.75 s are more than 2³⁰
        with pytest.raises(ValueError, match=r"tick is .* s: expected one in which 8\.75 s fit"):
            prepare(two_ops(), hardware, seconds=seconds, tick=tick)


def test_results_are_float64_seconds_and_integer_bytes():
    problem = prepare(two_ops(2**40), unit_rate_devices(1, bandwidth=np.inf), seconds=[0.5, 0.25])
    assert to_seconds(problem, np.int32(3 * 2**28)) == 0.75
    assert to_seconds(problem, jax.numpy.arange(2)).dtype == np.float64
    size = to_bytes(problem, problem.size[0])
    assert size == 2**40 and type(size) is int
    many = to_bytes(problem, problem.size)
    assert many.dtype == np.int64 and many[0] == 2**40


@settings(deadline=None, max_examples=50)
@given(strategies.cases(2))
def test_tables_agree_with_the_graph(case):
    graph, problem = case.graph, case.problem(SMALL)
    n, t, e = graphs.shape_of(graph)
    assert problem.shape == SMALL and problem.num_devices == 2
    assert (problem.num_ops, problem.num_tensors, problem.num_uses) == (n, t, e)
    uses = set(zip(graph.tensor.tolist(), graph.consumer.tolist(), strict=True))
    assert uses == {
        (tensor, int(reader))
        for tensor in range(t)
        for reader in problem.consumer[problem.first_use[tensor] : problem.first_use[tensor + 1]]
    }
    for op in range(n):
        read = problem.read[problem.first_read[op] : problem.first_read[op + 1]].tolist()
        assert read == sorted(tensor for tensor, reader in uses if reader == op)
        made = range(problem.first_tensor[op], problem.first_tensor[op + 1])
        assert list(made) == np.flatnonzero(graph.producer == op).tolist()
    assert problem.first_use[t] == e and problem.first_read[n] == e
    assert problem.first_tensor[n] == t


@settings(deadline=None, max_examples=50)
@given(strategies.cases(3))
def test_padding_changes_no_number(case):
    alone = prepare(case.graph, case.hardware, seconds=case.seconds, allowed=case.allowed)
    padded = case.problem(SMALL)
    n, t, e = graphs.shape_of(case.graph)
    assert alone.shape == (n + 1, t + 1, e + 1)
    rows = dict.fromkeys(("op_ticks", "workspace", "allowed", "is_input"), n)
    rows |= dict.fromkeys(("transfer_ticks", "size", "pinned", "producer"), t)
    rows |= {"consumer": e, "read": e, "first_tensor": n + 1, "first_use": t + 1}
    rows |= {"tensor": e, "first_read": n + 1}
    for field in Problem._fields:
        count = rows.get(field)
        cut = slice(count) if count is not None else ()
        np.testing.assert_array_equal(
            np.asarray(getattr(alone, field))[cut], np.asarray(getattr(padded, field))[cut], field
        )
    for field in ("op_ticks", "workspace"):
        assert not getattr(padded, field)[n:].any()
    for field in ("transfer_ticks", "size", "pinned"):
        assert not getattr(padded, field)[t:].any()


def test_seconds_and_allowed_may_have_padding_rows():
    graph = padding.pad(two_ops())
    rows = graphs.shape_of(graph).ops
    seconds, allowed = np.full((rows, 2), 9.0), np.zeros((rows, 2), bool)
    seconds[:2] = 1
    allowed[:2, 0] = True
    problem = prepare(graph, unit_rate_devices(2), seconds=seconds, allowed=allowed)
    expected = prepare(graph, unit_rate_devices(2), seconds=[1.0, 1.0], allowed=allowed[:2])
    for field, a, b in zip(Problem._fields, problem, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=field)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": [1.0, -1.0]}, r"seconds\[1\] is -1\.0 on device 0: expected a finite number"),
        ({"seconds": [[1, 1], [1, np.nan]]}, r"seconds\[1\] is nan on device 1: expected a finite"),
        ({"seconds": [np.inf, 1.0]}, r"seconds\[0\] is inf on device 0"),
        ({"seconds": [1.0]}, r"seconds has shape \(1, 2\): expected \(2,\) or \(2, 2\)"),
        ({"seconds": np.ones((2, 3))}, r"seconds has shape \(2, 3\)"),
        ({"seconds": [1e308, 1e308]}, "seconds, or the times of transfers, have no finite sum"),
        ({"allowed": np.eye(2)[[0, 0]] * 0}, r"allowed\[0\] allows no device: expected at least"),
        ({"allowed": [[1, 0], [0, 0]]}, r"allowed\[1\] allows no device: expected at least one"),
        ({"allowed": [[True]]}, r"allowed has shape \(1, 1\)"),
    ],
)
def test_bad_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        prepare(two_ops(), unit_rate_devices(2), **settings)


def test_a_device_that_fits_nothing_raises():
    graph = graphs.from_ops(
        [Op("input", outputs=(Output(1),)), Op(outputs=(Output(5),), workspace=2)]
    )
    hardware = unit_rate_devices(2)._replace(capacity=np.array([7.0, 6.0]))
    with pytest.raises(ValueError, match=r"capacity\[1\] is 6\.0 bytes: the device fits nothing"):
        prepare(graph, hardware)
    prepare(graph, unit_rate_devices(2, capacity=7.0))
    prepare(
        graphs.from_ops([Op("input", outputs=(Output(5),))]), unit_rate_devices(1, capacity=1.0)
    )


def test_bad_graphs_and_machines_raise():
    graph = two_ops()
    with pytest.raises(ValueError, match=r"size\[0\] is nan"):
        prepare(graph._replace(size=np.array([np.nan])), unit_rate_devices(1))
    with pytest.raises(ValueError, match=r"flop_rate\[0\] is -1\.0"):
        prepare(graph, unit_rate_devices(1)._replace(flop_rate=np.array([-1.0])))
    slow = unit_rate_devices(1, flop_rate=1e-300)
    with pytest.raises(ValueError, match="no finite sum"):
        prepare(graph._replace(flops=np.array([1e300, 0.0])), slow)
    with pytest.raises(ValueError, match="no finite sum"):
        prepare(two_ops(2.0**1000), unit_rate_devices(2, bandwidth=1e-300))


def test_stack():
    hardware = unit_rate_devices(2)
    found = [
        prepare(
            padding.pad(strategies.random_graph(np.random.default_rng(n), n, 0.2), SMALL), hardware
        )
        for n in (3, 20)
    ]
    batch = problems.stack(found)
    assert batch.shape == SMALL and batch.num_devices == 2
    for field, stacked, first, second in zip(Problem._fields, batch, *found, strict=True):
        np.testing.assert_array_equal(stacked, np.stack([first, second]), err_msg=field)
    with pytest.raises(ValueError, match=r"problems\[1\]\.op_ticks has shape .* expected"):
        problems.stack([found[0], prepare(two_ops(), hardware)])
    with pytest.raises(ValueError, match="problems is empty"):
        problems.stack([])
