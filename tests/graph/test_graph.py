import numpy as np
import pytest

from gopt.graph import graph as graphs
from gopt.graph import padding
from gopt.graph.graph import Graph, Op, Output
from gopt.graph.kinds import KINDS
from tests.strategies import random_graph

pytestmark = pytest.mark.small


def two_ops() -> Graph:
    return graphs.from_ops([Op(outputs=(Output(4),)), Op(inputs=((0, 0),))])


def assert_same(a: Graph, b: Graph):
    for field, x, y in zip(Graph._fields, a, b, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=field)
        assert np.asarray(x).dtype == np.asarray(y).dtype, field


def sample(num_ops: int) -> Graph:
    return random_graph(np.random.default_rng(num_ops), num_ops, 0.3)


def test_from_ops_numbers_ops_in_topological_order():
    ops = [
        Op("add", inputs=((2, 1), (1, 0), (2, 1)), flops=7),
        Op("exp", inputs=((2, 0),), outputs=(Output(5, (1, 5), "int8"),), workspace=3),
        Op("split", outputs=(Output(8), Output(2, pinned=True)), bytes=100),
    ]
    assert graphs.topological_order(ops) == [2, 1, 0]
    graph = graphs.from_ops(ops)
    assert [KINDS[k] for k in graph.kind] == ["split", "exp", "add"]
    assert graph.producer.tolist() == [0, 0, 1]
    assert graph.size.tolist() == [8, 2, 5]
    assert graph.pinned.tolist() == [False, True, False]
    # Op 0 reads the second output of op 2 twice: one use.
    assert list(zip(graph.tensor, graph.consumer, strict=True)) == [(0, 1), (1, 2), (2, 2)]
    assert graph.flops.tolist() == [0, 0, 7]
    assert graph.bytes.tolist() == [100, 8 + 5, 2 + 5]
    assert graph.workspace.tolist() == [0, 3, 0]
    assert graph.shape[2].tolist() == [1, 5, -1, -1, -1, -1]
    assert graph.rank.tolist() == [0, 0, 2]
    assert graphs.DTYPES[graph.dtype[2]] == "int8"
    assert graphs.shape_of(graph) == (3, 3, 3)


def test_topological_order_is_the_identity_wherever_that_is_one():
    ops = [Op(), Op(outputs=(Output(1),)), Op(), Op(inputs=((1, 0),)), Op()]
    assert graphs.topological_order(ops) == [0, 1, 2, 3, 4]


def test_shapes_of_high_rank_keep_the_last_dimensions():
    shape = (2, 3, 4, 5, 6, 7, 8)
    graph = graphs.from_ops([Op(outputs=(Output(0, shape),))])
    assert graph.shape[0].tolist() == [6, 4, 5, 6, 7, 8]
    assert graph.rank[0] == 7


def test_from_arrays_sorts_uses_and_spreads_scalars():
    graph = graphs.from_arrays([0, 0, 1], 3, [2, 0, 0], [2, 2, 1], num_ops=3, flops=2.0)
    assert list(zip(graph.tensor, graph.consumer, strict=True)) == [(0, 1), (0, 2), (2, 2)]
    assert graph.size.tolist() == [3, 3, 3] and graph.flops.tolist() == [2, 2, 2]


def test_a_graph_of_one_op_without_tensors_works():
    graph = padding.pad(graphs.from_ops([Op()]))
    assert (graph.num_ops, graph.num_tensors, graph.num_uses) == (1, 0, 0)
    graphs.check(graph)


def test_is_input():
    graph = graphs.from_ops([Op("input", outputs=(Output(1),)), Op("add", inputs=((0, 0),))])
    assert graphs.is_input(padding.pad(graph))[:3].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([], "ops is empty: a graph needs at least one op"),
        ([Op(inputs=((0, 0),), outputs=(Output(1),))], r"ops\[0\] is on a cycle"),
        (
            [
                Op(),
                Op(inputs=((2, 0),), outputs=(Output(1),)),
                Op(inputs=((1, 0),), outputs=(Output(1),)),
            ],
            r"ops\[1\] is on a cycle",
        ),
        ([Op(inputs=((3, 0),))], r"ops\[0\]\.inputs: there is no op 3, there are 1"),
        ([Op(), Op(inputs=((-1, 0),))], r"ops\[1\]\.inputs: there is no op -1"),
        ([Op(), Op(inputs=((0, 0),))], r"ops\[1\]\.inputs: op 0 has no output 0, it has 0"),
        ([Op(), Op(outputs=(Output(-1),))], r"size\[0\] is -1\.0: expected a finite number"),
        ([Op(outputs=(Output(1), Output(np.nan)))], r"size\[1\] is nan: expected a finite number"),
        ([Op(outputs=(Output(np.inf),))], r"size\[0\] is inf: expected a finite number"),
        ([Op(outputs=(Output(1.5),))], r"size\[0\] is 1\.5: expected whole bytes"),
        ([Op(), Op(flops=-1)], r"flops\[1\] is -1\.0: expected a finite number, not negative"),
        ([Op(flops=np.nan)], r"flops\[0\] is nan: expected a finite number, not negative"),
        ([Op(flops=10**400)], "flops has a number that is too large"),
        ([Op(bytes=-2)], r"bytes\[0\] is -2\.0: expected a finite number, not negative"),
        ([Op(workspace=np.nan)], r"workspace\[0\] is nan: expected a finite number"),
        ([Op(workspace=0.5)], r"workspace\[0\] is 0\.5: expected whole bytes"),
        (
            [Op(outputs=(Output(1),)), Op("input", inputs=((0, 0),))],
            r"consumer\[0\] is 1: expected an op that is no input",
        ),
    ],
)
def test_bad_ops_raise(ops, message):
    with pytest.raises(ValueError, match=message):
        graphs.from_ops(ops)


def arrays(**changes):
    fields = {"producer": [0, 1], "size": [1, 2], "tensor": [0, 1], "consumer": [1, 2]}
    return fields | {"num_ops": 3} | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_ops": 0}, "num_ops is 0: a graph needs at least one op"),
        ({"num_ops": -1}, "num_ops is -1"),
        ({"tensor": [0, 2]}, r"tensor\[1\] is 2: expected a tensor in 0\.\.1"),
        ({"tensor": [-1, 0]}, r"tensor\[0\] is -1: expected a tensor"),
        ({"consumer": [1, 3]}, r"consumer\[1\] is 3: expected an op in 0\.\.2"),
        ({"producer": [0, 3]}, r"producer\[1\] is 3: expected an op in 0\.\.2"),
        ({"producer": [1, 0]}, r"producer\[1\] is 0: expected tensors sorted by producer"),
        ({"consumer": [0, 2]}, r"consumer\[0\] is 0: expected an op after the producer"),
        ({"consumer": [1, 0]}, r"consumer\[1\] is 0: .*no cycles"),
        ({"tensor": [0, 0], "consumer": [1, 1]}, r"consumer\[1\] is 1: expected each .* once"),
        ({"tensor": [0, 2**70]}, "tensor has a number that is too large"),
        ({"consumer": [1]}, "tensor has 2 rows and consumer 1"),
        ({"size": [1, 2, 3]}, r"size has shape \(3,\): expected \(2,\)"),
        ({"flops": [1.0]}, r"flops has shape \(1,\): expected \(3,\)"),
        ({"shape": [1, 2]}, r"shape has shape \(2,\): expected \(2, 6\)"),
        ({"size": [1, -2]}, r"size\[1\] is -2\.0"),
        ({"kind": [0, 0, len(KINDS)]}, r"kind\[2\] is \d+: expected a kind"),
    ],
)
def test_bad_arrays_raise(changes, message):
    with pytest.raises(ValueError, match=message):
        graphs.from_arrays(**arrays(**changes))


def test_arrays_of_other_lengths_raise():
    graph = graphs.from_arrays(**arrays())
    with pytest.raises(ValueError, match=r"workspace has shape \(1,\): expected 3 rows"):
        graphs.check(graph._replace(workspace=np.zeros(1)))
    with pytest.raises(ValueError, match=r"producer has shape \(2,\): expected 5 rows"):
        graphs.check(graph._replace(num_tensors=np.int32(5)))
    with pytest.raises(ValueError, match=r"tensor\[1\] is 0: expected uses sorted"):
        graphs.check(graph._replace(tensor=np.int32([1, 0]), consumer=np.int32([2, 1])))
