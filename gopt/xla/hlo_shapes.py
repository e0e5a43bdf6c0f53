"""Shapes of XLA in text form, such as `f32[2,3]` or `(s32[], f32[2,3])`."""

import math
import re
from dataclasses import dataclass

_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{[^}]*\})?")
_DTYPE = re.compile(
    r"pred|token|opaque|[su](?:[1248]|16|32|64)|bf16|f(?:16|32|64)|c64|c128|f[468]e\w+"
)
_DIM = re.compile(r"\s*(?:<=)?(\d{1,18})\s*")
_MAX_DEPTH = 100  # of tuples in tuples


@dataclass(frozen=True)
class Array:
    """An array type, such as `f32[2,3]`.

    Attributes:
      dtype: element type, in XLA's notation.
      dims: sizes of the dimensions.
    """

    dtype: str
    dims: tuple[int, ...]


Shape = Array | tuple["Shape", ...]


def leaves(shape: Shape) -> list[Array]:
    """Return the arrays of a shape, depth first."""
    return (
        [shape] if isinstance(shape, Array) else [leaf for part in shape for leaf in leaves(part)]
    )


def leaf_range(shape: Shape, path: tuple[int, ...]) -> range:
    """Return the indices into `leaves(shape)` of the arrays under an index path.

    Args:
      shape: array or nested tuple.
      path: index at each level of the tuple.

    Raises:
      ValueError: the path goes into an array, or beyond a tuple.
    """
    start = 0
    for index in path:
        if isinstance(shape, Array) or not 0 <= index < len(shape):
            raise ValueError(f"index path {path} goes into an array, or beyond a tuple")
        start += sum(len(leaves(part)) for part in shape[:index])
        shape = shape[index]
    return range(start, start + len(leaves(shape)))


def expect(pattern: re.Pattern[str], text: str, at: int, expected: str) -> re.Match[str]:
    """Return the match of a pattern at a position of a text.

    Raises:
      ValueError: it does not match there. The message has `expected`.
    """
    match = pattern.match(text, at)
    if match is None:
        raise ValueError(f"expected {expected} at {text[at : at + 20]!r}")
    return match


def read_shape(text: str, at: int, depth: int = 0) -> tuple[Shape, int]:
    """Return the shape at a position of a text, and the position after it.

    Raises:
      ValueError: there is another text, an array has an unknown size, or tuples are too deep.
      IndexError: the text ends before the shape does.
    """
    if text[at] != "(":
        match = expect(_ARRAY, text, at, "a shape such as f32[2,3]")
        return _array(match[1], match[2]), match.end()
    if depth >= _MAX_DEPTH:
        raise ValueError(f"a tuple in {_MAX_DEPTH} others: expected fewer")
    parts: list[Shape] = []
    at += 1
    while text[at] != ")":
        if text[at] in ", ":
            at += 1
        else:
            part, at = read_shape(text, at, depth + 1)
            parts.append(part)
    return tuple(parts), at + 1


def _array(dtype: str, sizes: str) -> Array:
    if not _DTYPE.fullmatch(dtype):
        raise ValueError(f"{dtype} is no element type of XLA")
    dims = []
    for size in sizes.split(",") if sizes.strip() else []:
        match = _DIM.fullmatch(size)
        if match is None:
            raise ValueError(f"a dimension is {size!r}: expected a whole number")
        dims.append(int(match[1]))
    if math.prod(dims) >= 2**58:
        raise ValueError(f"an array of {dtype}[{sizes}]: expected one that fits into memory")
    return Array(dtype, tuple(dims))
