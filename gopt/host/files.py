"""Read and write files completely or not at all."""

import contextlib
import json
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MAX_DEPTH = 100  # of JSON values in others
_TOO_LARGE = 2**63  # for a number of bytes or seconds


@contextlib.contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds.

    Parent folders are created. If the block raises, `path` stays unchanged and the temporary file
    is removed. The temporary name keeps the suffix of `path`, because writers choose formats by it.
    It is hidden, and of this call alone. A symbolic link stays, and the file that it names is
    written. An old file keeps its permissions; the umask decides about a new one.

    Raises:
      OSError: the file cannot be written, or `path` is a folder, a device or a pipe.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(f"{path} is a folder, a device or a pipe: expected a file, or a new name")
    stem = path.stem.encode()[:100].decode(errors="ignore")  # names have at most 255 bytes
    temporary = path.with_name(f".{stem}-{secrets.token_hex(8)}{path.suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the arrays of an `.npz` file by name. The file is closed in any case.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file is truncated, or not an archive of arrays.
    """
    arrays: dict[str, np.ndarray] = {}
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    if name in arrays:
                        raise ValueError(f"{name} is in it twice")
                    arrays[name] = _read_array(archive, member)
        except Exception as error:  # zipfile, zlib and NumPy raise many kinds for damaged files
            raise ValueError(f"no archive of arrays, or truncated: {error}") from error
    return arrays


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Return an array of an archive; its size is checked before any memory is allocated."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{member.filename} has version {version}: expected (1, 0) or (2, 0)")
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, is_fortran, dtype = read_header(stream)
        size, expected = member.file_size - stream.tell(), math.prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or size != expected:
            raise ValueError(
                f"{member.filename} has {size} bytes, shape {shape} and dtype {dtype}: expected as "
                "many bytes as the shape says, and no Python objects"
            )
        content = bytearray(stream.read())
    return np.ndarray(shape, dtype, content, order="F" if is_fortran else "C")


def parse_object(text: str) -> dict[str, Any]:
    """Return a JSON object. Numbers must be finite, and keys unique.

    Raises:
      ValueError: the text is not JSON, or holds another value. The message says where, if it can.
    """

    def number(digits: str) -> float:
        if not math.isfinite(value := float(digits)):
            raise ValueError(f"{digits} is in it: expected a finite number")
        return value

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"{twice!r} is twice in an object: expected each key once")
        return found

    try:
        value = json.loads(
            text, parse_float=number, parse_constant=number, object_pairs_hook=unique
        )
    except RecursionError:
        raise ValueError("values are nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}: expected an object")
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
    if level:
        raise ValueError("values are nested too deeply")
    return value


def read_fields(
    row: Mapping[str, Any], kinds: Mapping[str, Any], where: str = ""
) -> dict[str, Any]:
    """Return the values of a JSON object, with tuples in place of lists.

    Args:
      row: the object.
      kinds: kind of each field: `str`, `bool`, `dict`, `list`, `object` (any value), `float` (a
        number, not negative), a range (a whole number in it), `[kind]` (a list of it), or
        `(None, kind)` (the value may be null).
      where: place of the object, to name in errors.

    Raises:
      ValueError: a field is missing, unknown, or of another kind. The message names it.
    """
    for name in (*kinds, *row):
        if name not in row:
            raise ValueError(f"{where}{name} is missing")
        if name not in kinds:
            raise ValueError(f"{where}{name} is unknown: expected {', '.join(kinds)}")
    return {name: read_value(row[name], kind, f"{where}{name}") for name, kind in kinds.items()}


def read_value(value: Any, kind: Any, where: str) -> Any:
    """Return a JSON value of a kind, see `read_fields`.

    Raises:
      ValueError: the value is of another kind. The message names the place.
    """
    if isinstance(kind, tuple):
        return None if value is None else read_value(value, kind[1], where)
    if isinstance(kind, list):
        if isinstance(value, list):
            return tuple(read_value(v, kind[0], f"{where}[{k}]") for k, v in enumerate(value))
        expected = "a list"
    elif isinstance(kind, range):
        if type(value) is int and value in kind:
            return value
        expected = f"a whole number in {kind.start}..{kind.stop - 1}"
    elif kind is float:
        if type(value) in (int, float) and 0 <= value < _TOO_LARGE:
            return float(value)
        expected = "a finite number, not negative"
    else:
        if isinstance(value, kind):
            return value
        named = {str: "text", bool: "true or false", dict: "an object", list: "a list"}
        expected = named[kind]
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    raise ValueError(f"{where} is {shown}: expected {expected}")
