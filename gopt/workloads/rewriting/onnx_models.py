"""The models that come with the package `onnx`, by name. Needs the extra `onnx`.

They have no weights: each is one number, over and over. Here these are arguments, of which numbers
are drawn. What comes before the last softmax is compared.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gopt.host.extras import optional
from gopt.workloads.cases import Case

onnx = optional("onnx", "onnx", "ONNX models")

NAMES = {
    "AlexNet": "bvlc_alexnet",
    "DenseNet-121": "densenet121",
    "Inception-v1": "inception_v1",
    "Inception-v2": "inception_v2",
    "ResNet-50": "resnet50",
    "ShuffleNet": "shufflenet",
    "SqueezeNet": "squeezenet",
    "VGG-19": "vgg19",
    "ZFNet-512": "zfnet512",
}


def model(name: str) -> Any:
    """Return a model as a `onnx.ModelProto` with zeros as weights, without its last softmax."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    found = onnx.load(str(folder / f"light_{NAMES[name]}.onnx"))
    found.ir_version = 8  # before 4 all initializers had to be inputs as well
    graph = found.graph
    known = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "ConstantOfShape":
            zeros = np.zeros(known[node.input[0]], np.float32)
            graph.initializer.append(onnx.numpy_helper.from_array(zeros, node.output[0]))
            graph.node.remove(node)
    fixed = {each.name for each in graph.initializer}
    for each in [each for each in graph.input if each.name in fixed]:
        graph.input.remove(each)  # what may be given anew is not folded
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.output[0].name = last.input[0]
        graph.node.remove(last)
    return found


def with_weights(given: Any, weights: Mapping[str, Any]) -> Any:
    """Return a model with other weights.

    Args:
      given: the model.
      weights: float arrays by name.
    """
    found = onnx.ModelProto()
    found.CopyFrom(given)
    for each in found.graph.initializer:
        if each.data_type != onnx.TensorProto.FLOAT:
            continue  # shapes and axes stay
        each.CopyFrom(onnx.numpy_helper.from_array(np.asarray(weights[each.name]), each.name))
    return found


def forward(name: str) -> Case:
    """Return a model as a function of its weights and its input."""
    from gopt.sources.onnx import read_onnx

    found = read_onnx(model(name))
    weights = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), found.weights)
    return Case(found.fn, (weights, *found.inputs))


ONNX_MODELS: dict[str, Callable[[], Case]] = {
    f"{name}, ONNX": partial(forward, name) for name in NAMES
}
