"""ONNX models as functions of JAX, through `jaxonnxruntime`. Needs the extra `onnx`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx
from jaxonnxruntime import call_onnx


class OnnxModel(NamedTuple):
    """A model as a function of its weights and of its inputs.

    It can be traced, scheduled and rewritten as any other:

        model = read_onnx("model.onnx")
        faster = gopt.rewrite(model.fn, model.weights, *model.inputs, constant_argnums=0)
    """

    fn: Callable[..., tuple[jax.Array, ...]]  # its outputs, in order
    weights: dict[str, np.ndarray]  # initializers, by name
    inputs: tuple[jax.ShapeDtypeStruct, ...]  # in order


def read_onnx(
    model: str | Path | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> OnnxModel:
    """Returns an ONNX model as a function.

    The importer runs it once, on zeros, op by op: it takes seconds.

    Args:
      model: a file, or what was read from one.
      shapes: of inputs by name, where the model leaves sizes open. All others are those of the
        model.

    Raises:
      ValueError: an input has a size that is open, or another shape than is given, or the importer
        lacks an op, or the version of it that the model asks for.
    """
    if not isinstance(model, onnx.ModelProto):
        model = onnx.load(str(model))
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
        return tuple(run(weights, dict(zip(values, given, strict=True))))

    return OnnxModel(fn, {name: np.asarray(x) for name, x in weights.items()}, inputs)


def _shape(value: onnx.ValueInfoProto, given: Sequence[int] | None) -> jax.ShapeDtypeStruct:
    """Returns the shape of an input.

    Raises:
      ValueError: a size is open, or another one than is given.
    """
    tensor = value.type.tensor_type
    sizes = [axis.dim_value or axis.dim_param or "?" for axis in tensor.shape.dim]
    shape = sizes if given is None else list(given)
    fits = len(shape) == len(sizes) and all(
        isinstance(size, str) or size == own for own, size in zip(shape, sizes, strict=True)
    )
    if not fits:
        raise ValueError(f"input {value.name!r} is {sizes}: {shape} does not fit")
    if any(isinstance(size, str) for size in shape):
        raise ValueError(f"input {value.name!r} is {sizes}: say its shape in `shapes`")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return jax.ShapeDtypeStruct(tuple(shape), jax.dtypes.canonicalize_dtype(dtype))
