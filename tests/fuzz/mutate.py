"""Mutations of files: bytes, tokens, lines and members of archives, drawn from a seed."""

import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
# Tokens that readers may take for something else.
_VALUES: tuple[bytes, ...] = (
    *(b"", b"0", b"-1", b"1", b"7", b"-7", b"2147483648", b"9223372036854775807", b"1e999"),
    *(b"-0", b"1_0", b"0x10", b"010", b"1.5", b"NaN", b"Infinity", b"null", b"true", b"banana"),
    *(
        b"9" * 30,
        b"1" + b"0" * 400,
        b"9" * 5000,
        b"?",
        b"\xff",
        b"\xed\xa0\x80",
        b"\x00",
        "٣".encode(),
    ),
    *(b'"', b"'", b"\\", b"\\777", b"#", b"{", b"}", b"<", b">", b"[", b"]", b"(", b")", b"\n"),
    *(b",", b":", b";", b"%", b"=", b"->", b"{" * 2000, b"[" * 2000, b"(" * 2000, b'{"a":' * 2000),
)

Mutation = Callable[[np.random.Generator, bytes], bytes]


def _flip_bit(rng: np.random.Generator, content: bytes) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _splice_bytes(rng: np.random.Generator, content: bytes) -> bytes:
    """Replace, insert or delete some bytes."""
    at, length = int(rng.integers(len(content) + 1)), int(rng.integers(9))
    new = rng.integers(0, 256, int(rng.integers(9)), np.uint8).tobytes()
    return content[:at] + new + content[at + length :]


def _truncate(rng: np.random.Generator, content: bytes) -> bytes:
    return content[: rng.integers(len(content) + 1)]


def _change_token(rng: np.random.Generator, content: bytes) -> bytes:
    """Replace a token by another one of the file, or by an odd value."""
    tokens = _TOKEN.findall(content)
    if not tokens:
        return content
    at = int(rng.integers(len(tokens)))
    values = tokens if rng.random() < 0.4 else _VALUES
    tokens[at] = values[rng.integers(len(values))]
    return b"".join(tokens)


def _change_number(rng: np.random.Generator, content: bytes) -> bytes:
    """Replace a number by a near one, or by an odd value."""
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    match = found[rng.integers(len(found))]
    if rng.random() < 0.5:
        new = str(int(match[0][:18]) + int(rng.integers(-2, 3))).encode()
    else:
        new = _VALUES[rng.integers(len(_VALUES))]
    return content[: match.start()] + new + content[match.end() :]


def _move_tokens(rng: np.random.Generator, content: bytes) -> bytes:
    """Delete, repeat or move a run of tokens."""
    return b"".join(_move(rng, _TOKEN.findall(content)))


def _move_lines(rng: np.random.Generator, content: bytes) -> bytes:
    """Delete, repeat or move some lines."""
    return b"\n".join(_move(rng, content.split(b"\n")))


def _move(rng: np.random.Generator, parts: list[bytes]) -> list[bytes]:
    at, length = int(rng.integers(len(parts) + 1)), int(rng.integers(1, 6))
    run, rest = parts[at : at + length], parts[:at] + parts[at + length :]
    to = int(rng.integers(len(rest) + 1))
    return [rest, parts[:at] + run + parts[at:], rest[:to] + run + rest[to:]][rng.integers(3)]


TEXT: tuple[Mutation, ...] = (
    *(_flip_bit, _splice_bytes, _truncate, _change_token, _change_token, _change_number),
    *(_change_number, _move_tokens, _move_lines),
)


def _change_json(rng: np.random.Generator, content: bytes) -> bytes:
    """Replace, delete or repeat a value of a JSON text; the text stays JSON."""
    try:
        row = json.loads(content)
    except (ValueError, RecursionError):
        return content
    return json.dumps(_changed_value(rng, row)).encode()


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 2**31, 2**63, 10**400, float("nan"), float("inf")),
    *("", "x", "cpu", "XLA", [], {}, [[]], [0], [[0]], {"a": 1}, [None], {"tuple": [{}]}),
)


def _changed_value(rng: np.random.Generator, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        if type(value) is int and rng.random() < 0.5:
            return value + int(rng.integers(-2, 3))
        return ODD[rng.integers(len(ODD))]
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, action = keys[rng.integers(len(keys))], rng.random()
    changed = value.copy()
    if action < 0.1:
        del changed[key]
    elif action < 0.2 and isinstance(value, list):
        changed.insert(key, value[rng.integers(len(value))])
    elif action < 0.3:
        changed[key] = value[keys[rng.integers(len(keys))]]
    else:
        changed[key] = _changed_value(rng, value[key])
    return changed


JSON: tuple[Mutation, ...] = (*TEXT, *(_change_json,) * 9)


def _change_member(rng: np.random.Generator, content: bytes) -> bytes:
    """Change an array of an archive, its header, its name, or the text that it holds."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:  # an archive that was damaged before
        return content
    name = list(members)[rng.integers(len(members))]
    action = int(rng.integers(6))
    if action == 0:
        del members[name]
    elif action == 1:
        members[name + "/more.npy"] = members[name]
    elif action == 2:
        members[name] = _change_number(rng, members[name][:128]) + members[name][128:]
    elif action == 3:
        members[name] = TEXT[rng.integers(len(TEXT))](rng, members[name])
    else:
        try:
            array = np.load(io.BytesIO(members[name]))
        except Exception:  # an array that was damaged before
            return content
        file = io.BytesIO()
        np.save(file, _changed_array(rng, array))
        members[name] = file.getvalue()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for filename, data in members.items():
            archive.writestr(filename, data)
    return file.getvalue()


def _changed_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "U":
        text = JSON[rng.integers(len(JSON))](rng, str(array).encode())
        return np.array(text.decode(errors="replace"))
    action = int(rng.integers(5))
    if action == 0 and array.dtype.kind != "V":
        types = (np.float64, np.float32, np.int64, np.int32, np.bool, ">f4", "U3", "c8", "V4")
        with np.errstate(all="ignore"):
            return array.astype(types[rng.integers(len(types))], casting="unsafe")
    if action == 1:
        return array[None] if rng.random() < 0.5 else array.ravel()
    if action == 2 and array.ndim:
        return array[: rng.integers(len(array) + 1)]
    changed = array.copy()
    values = (0, 1, -1, 2, 10**9, np.nan, np.inf, -np.inf, 0.5)
    if changed.size and changed.dtype.kind != "V":
        at = int(rng.integers(changed.size))
        near = changed.flat[at] + rng.integers(-2, 3) if changed.dtype.kind in "fiu" else 1
        new = near if rng.random() < 0.4 else values[rng.integers(len(values))]
        with np.errstate(all="ignore"):
            changed.flat[at] = np.array(new).astype(changed.dtype)
    return changed


ARCHIVE: tuple[Mutation, ...] = (*(_flip_bit, _splice_bytes, _truncate, *(_change_member,) * 9),)


def mutated(rng: np.random.Generator, content: bytes, mutations: Sequence[Mutation]) -> bytes:
    """Return a file after one to four mutations."""
    for _ in range(min(int(rng.geometric(0.6)), 4)):
        content = mutations[rng.integers(len(mutations))](rng, content)
    return content
