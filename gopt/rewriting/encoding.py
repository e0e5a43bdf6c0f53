"""Attributes of terms as JSON values."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gopt.host.files import read_fields
from gopt.rewriting.ir.operators import Literal
from gopt.rewriting.ir.terms import Terms

# Kinds of the fields of an encoded attribute, by its first field.
_ENCODED: dict[str, dict[str, Any]] = {
    **{"tuple": {"tuple": [object]}, "precision": {"precision": str}, "dtype": {"dtype": str}},
    "literal": {"literal": str, "dtype": str, "shape": [range(2**31)]},
    "term": {"term": range(2**31), "attribute": str},
}


def encode(value: Any, terms: Terms, num_terms: int) -> Any:
    """Return an attribute as JSON values.

    Attributes of other kinds, such as equations, refer to a term of the function that has them.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if type(value) is tuple:
        return {"tuple": [encode(part, terms, num_terms) for part in value]}
    if isinstance(value, jax.lax.Precision):
        return {"precision": value.name}
    if isinstance(value, Literal):
        dtype, shape = value.value.dtype, value.value.shape
        return {"literal": value.value.tobytes().hex(), "dtype": dtype.name, "shape": list(shape)}
    for k in range(num_terms):
        for name, other in terms[k].attributes:
            if type(other) is type(value) and other == value:
                return {"term": k, "attribute": name}
    try:
        return {"dtype": jnp.dtype(value).name}
    except TypeError as error:
        raise ValueError(f"the plan has an attribute that cannot be saved: {value!r}") from error


def decode(value: Any, terms: Terms) -> Any:
    """Return an attribute from its JSON values."""
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(decode(part, terms) for part in value["tuple"])
    if "precision" in value:
        return jax.lax.Precision[value["precision"]]
    if "literal" in value:
        array = np.frombuffer(bytes.fromhex(value["literal"]), jnp.dtype(value["dtype"]))
        return Literal(array.reshape(value["shape"]).copy())
    if "term" in value:
        return terms[value["term"]].attribute(value["attribute"])
    return jnp.dtype(value["dtype"])


def check_encoded(value: Any, where: str) -> None:
    """Check the types of an encoded attribute from a file.

    Raises:
      ValueError: a value is of another type. The message begins with `where`.
    """
    if isinstance(value, list):
        raise ValueError(f"{where} is a list: expected a number, text or an object")
    if not isinstance(value, dict):
        return
    first = next(iter(value), "")
    if first not in _ENCODED:
        raise ValueError(f"{where} is {value!r}: expected one of {', '.join(_ENCODED)}")
    fields = read_fields(value, _ENCODED[first], f"{where}.")
    for k, part in enumerate(fields.get("tuple", ())):
        check_encoded(part, f"{where}[{k}]")
    if first == "precision" and fields["precision"] not in jax.lax.Precision.__members__:
        raise ValueError(f"{where} is {value!r}: expected a precision of JAX")
    try:
        dtype = _dtype_of(fields.get("dtype", "float32"))
        content = bytes.fromhex(fields.get("literal", ""))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} is {str(value)[:60]}: {error}") from error
    if first == "literal" and math.prod(fields["shape"]) * dtype.itemsize != len(content):
        raise ValueError(
            f"{where} has {len(content)} bytes: expected those of {fields['dtype']}{value['shape']}"
        )


def _dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of numbers or predicates with this name."""
    # NumPy reads text with commas as the fields of a record.
    dtype = jnp.dtype(name if name.isidentifier() else "void")
    if dtype.name != name or not callable(getattr(jnp, name, None)):
        raise ValueError(f"dtype is {name!r}: expected the name of one of JAX")
    return dtype
