"""ONNX models are functions with the values that ONNX has for them."""

from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import gopt
from gopt.sources.onnx import read_onnx

OUTPUTS = "logits", "odds"


def network(batch=2):
    """A convolution, a norm, two matrices and a softmax, with one input and two outputs."""
    rng = np.random.default_rng(0)
    weights = {
        "kernel": rng.standard_normal((4, 3, 3, 3)),
        **{name: rng.uniform(0.5, 1, 4) for name in ("scale", "bias", "mean", "variance")},
        "matrix": rng.standard_normal((4 * 25, 7)),
        "other": rng.standard_normal((4 * 25, 7)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["conv", "scale", "bias", "mean", "variance"], ["norm"]
        ),
        helper.make_node("Relu", ["norm"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["one"]),
        helper.make_node("MatMul", ["flat", "other"], ["two"]),
        helper.make_node("Add", ["one", "two"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["odds"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 5, 5])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in ("logits", "odds")
        ],
        [numpy_helper.from_array(x.astype(np.float32), name) for name, x in weights.items()],
    )
    return made(graph)


def made(graph):
    """A model of a graph, by version 14 of the operators."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


@pytest.mark.parametrize("open_", [False, True])
def test_values_are_those_of_onnx(open_, tmp_path):
    path = Path(tmp_path) / "network.onnx"
    onnx.save(network("batch" if open_ else 2), path)
    model = read_onnx(path, {"x": (2, 3, 5, 5)} if open_ else {})
    assert [x.shape for x in model.inputs] == [(2, 3, 5, 5)]
    assert set(model.weights) == {"kernel", "scale", "bias", "mean", "variance", "matrix", "other"}
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 5)).astype(np.float32)
    expected = ReferenceEvaluator(network()).run(None, {"x": x})
    ours = jax.jit(model.fn)(model.weights, x)
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_model_is_rewritten():
    model = read_onnx(network())
    found = gopt.rewrite(model.fn, model.weights, *model.inputs, constant_argnums=0, repeats=1)
    assert "xa + xb = x(a + b)" in found.report.rules
    assert found.report.difference <= found.report.tolerance and found.report.is_telling
    assert found.report.costs[1] < found.report.costs[0]


def small(*nodes, **inputs):
    """A model of some nodes with one output, y; inputs are float32, or int64 if they are short."""
    values = [
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name in "ij" else TensorProto.FLOAT, shape
        )
        for name, shape in inputs.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return made(helper.make_graph(nodes, "small", values, [output]))


def test_constants_may_be_shapes():
    shape = numpy_helper.from_array(np.array([3, 2]), "unused")
    model = small(
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
        x=[2, 3],
    )
    names = [node.name for node in model.graph.node]
    found = read_onnx(model)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(found.fn(found.weights, x)[0], x.reshape(3, 2))
    assert [node.name for node in model.graph.node] == names  # what was given stays as it was
    with pytest.raises(ValueError, match=r"there are 0 inputs, expected \['x'\]"):
        found.fn(found.weights)


def test_shapes_that_depend_on_inputs_are_refused():
    cut = small(helper.make_node("Slice", ["x", "i", "j"], ["y"]), x=[5], i=[1], j=[1])
    new = small(helper.make_node("Unsqueeze", ["x", "i"], ["y"]), x=[5], i=[1])
    for model in (cut, new):
        with pytest.raises(ValueError, match="a shape or an axis depends on input 'i'"):
            read_onnx(model)


def test_inputs_may_be_of_any_shape():
    model = small(helper.make_node("Relu", ["x"], ["y"]), x=None)
    assert read_onnx(model, {"x": (2, 0)}).inputs[0].shape == (2, 0)
    with pytest.raises(ValueError, match="'x' is of any shape: say its shape"):
        read_onnx(model)
    with pytest.raises(ValueError, match=r"'x' is .*: \[-1\] does not fit"):
        read_onnx(model, {"x": (-1,)})


def test_what_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"broken.onnx is no ONNX model"):
        read_onnx(tmp_path / "broken.onnx")
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    nodes = [helper.make_node("SequenceLength", ["x"], ["y"])]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    with pytest.raises(ValueError, match="'x' is no array"):
        read_onnx(made(helper.make_graph(nodes, "sequence", [sequence], [output])))
    with pytest.raises(ValueError, match=r"'x' is \['batch', 3, 5, 5\]: say its shape"):
        read_onnx(network("batch"))
    with pytest.raises(ValueError, match=r"'x' is \[2, 3, 5, 5\]: \[4, 3, 5, 5\] does not fit"):
        read_onnx(network(), {"x": (4, 3, 5, 5)})
    with pytest.raises(ValueError, match="there is no input 'y': expected some of"):
        read_onnx(network(), {"y": (4,)})
    graph = helper.make_graph(
        [helper.make_node("Det", ["x"], ["y"])],
        "unknown",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    with pytest.raises(ValueError, match=r"the importer lacks an op: .*Det"):
        read_onnx(made(graph))
