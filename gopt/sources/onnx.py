"""Import ONNX models as JAX functions, through `jaxonnxruntime`. Needs the extra `onnx`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Var

from gopt.host.extras import optional
from gopt.program.program import trace_program

onnx = optional("onnx", "onnx", "ONNX models")
call_onnx = optional("jaxonnxruntime.call_onnx", "onnx", "ONNX models")
protobuf = optional("google.protobuf.message", "onnx", "ONNX models")


class OnnxModel(NamedTuple):
    """An ONNX model as a function of its weights and inputs.

    It can be traced, scheduled and rewritten like any function:

        model = read_onnx("model.onnx")
        result = gopt.rewrite(model.fn, model.weights, *model.inputs, constant_argnums=0)

    Attributes:
      fn: function of the weights and the inputs; it returns the outputs as a tuple.
      weights: weights by name.
      inputs: shape of each input.
    """

    fn: Callable[..., tuple[jax.Array, ...]]
    weights: dict[str, np.ndarray]
    inputs: tuple[jax.ShapeDtypeStruct, ...]


def read_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> OnnxModel:
    """Return an ONNX model as a function.

    The importer runs the model once, on zeros, op by op, which takes seconds. It supports most ops
    of opsets 9 to 12 and 14 to 21. Export with one of these, or convert older models with
    `onnx.version_converter`. The package `jax2onnx` exports a rewritten function to ONNX. It needs
    an older `orbax-checkpoint`, and so an environment of its own.

    Args:
      model: path of a file, or a loaded model.
      shapes: shapes of inputs by name, for inputs with open sizes; others come from the model.

    Raises:
      ValueError: the file is not an ONNX model; an input is not an array, has an open size, has
        another shape than given, or determines a shape or an axis; or the importer lacks an op, or
        the required version of an op, or cannot infer a shape.
    """
    model = _loaded(model)
    fixed = {tensor.name for tensor in model.graph.initializer}
    values = {each.name: each for each in model.graph.input if each.name not in fixed}
    for name in shapes:
        if name not in values:
            raise ValueError(f"there is no input {name!r}: expected some of {sorted(values)}")
    inputs = tuple(_shape(each, shapes.get(name)) for name, each in values.items())
    zeros = {name: np.zeros(x.shape, x.dtype) for name, x in zip(values, inputs, strict=True)}
    try:
        run, weights = call_onnx.call_onnx_model(model, zeros)
    except NotImplementedError as error:
        raise ValueError(f"the importer lacks an op: {error}") from error

    def fn(weights: dict[str, Any], *given: Any) -> tuple[jax.Array, ...]:
        if len(given) != len(values):
            raise ValueError(f"there are {len(given)} inputs, expected {[*values]}")
        return tuple(run(weights, dict(zip(values, given, strict=True))))

    found = OnnxModel(fn, {name: np.asarray(x) for name, x in weights.items()}, inputs)
    _check_inputs(found, values, {name for node in model.graph.node for name in node.input})
    return found


def _loaded(model: Any) -> Any:
    """Return a copy of a model with constants as initializers, so that the importer knows them.

    Raises:
      ValueError: the file is not an ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
    else:
        try:
            copy = onnx.load(str(model))
        except protobuf.DecodeError as error:
            raise ValueError(f"{model} is no ONNX model: {error}") from error
    graph = copy.graph
    for node in list(graph.node):
        if node.op_type == "Constant" and [each.name for each in node.attribute] == ["value"]:
            tensor = graph.initializer.add()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            graph.node.remove(node)
    return copy


def _check_inputs(model: OnnxModel, names: Iterable[str], read: set[str]) -> None:
    """Raise `ValueError` if an op reads an input that the function does not depend on.

    The importer takes shapes and axes from the values of its run, so they are fixed afterwards.
    """
    program = trace_program(model.fn, model.weights, *model.inputs)
    live: set[Any] = {atom for atom in program.outputs if isinstance(atom, Var)}
    for equation in reversed(program.equations):
        if not live.isdisjoint(equation.outvars):
            live.update(atom for atom in equation.invars if isinstance(atom, Var))
    for name, variable in zip(names, program.inputs[len(model.weights) :], strict=True):
        if name in read and variable not in live:
            raise ValueError(
                f"a shape or an axis depends on input {name!r}: make it an initializer"
            )


def _shape(value: Any, given: Sequence[int] | None) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an input.

    Raises:
      ValueError: it is not an array, has an open size, or has another shape than given.
    """
    if not value.type.HasField("tensor_type"):
        raise ValueError(f"input {value.name!r} is no array")
    tensor = value.type.tensor_type
    sizes: list[int | str] | None = None
    if tensor.HasField("shape"):
        axes = tensor.shape.dim
        sizes = [
            axis.dim_value if axis.HasField("dim_value") else axis.dim_param or "?" for axis in axes
        ]
    shape = sizes if given is None else list(given)
    if shape is None or any(isinstance(size, str) for size in shape):
        own = "of any shape" if sizes is None else sizes
        raise ValueError(f"input {value.name!r} is {own}: say its shape in `shapes`")
    own_sizes = shape if sizes is None else sizes
    fits = len(shape) == len(own_sizes) and all(
        isinstance(size, int) and size >= 0 and (isinstance(own, str) or size == own)
        for size, own in zip(shape, own_sizes, strict=True)
    )
    if not fits:
        raise ValueError(f"input {value.name!r} is {own_sizes}: {shape} does not fit")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return jax.ShapeDtypeStruct(tuple(shape), jax.dtypes.canonicalize_dtype(dtype))
