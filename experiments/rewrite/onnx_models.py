"""The models that come with the package `onnx`, by name. Needs the extra `onnx`.

They have no weights: each is one number, over and over. Here these are arguments, of which numbers
are drawn. What comes before the last softmax is compared.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np

from experiments.cases import Case

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


def light(name: str) -> Case:
    """Returns a model, its weights and its input."""
    import onnx

    from gopt.sources.onnx import read_onnx

    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = onnx.load(str(folder / f"light_{name}.onnx"))
    graph = model.graph
    known = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "ConstantOfShape":
            shape = known[node.input[0]]
            graph.initializer.append(
                onnx.numpy_helper.from_array(np.zeros(shape, np.float32), node.output[0])
            )
            graph.node.remove(node)
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.output[0].name = last.input[0]
        graph.node.remove(last)
    found = read_onnx(model)
    weights = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), found.weights)
    return Case(found.fn, (weights, *found.inputs))


ONNX_MODELS: dict[str, Callable[[], Case]] = {
    f"{name}, ONNX": partial(light, file) for name, file in NAMES.items()
}
