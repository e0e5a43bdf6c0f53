"""Parse the protobuf text format, and read messages by a schema.

Source: protobuf.dev, "Text Format Language Specification".
"""

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_TOKEN = re.compile(
    r"(?P<space>\s+|\#[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<word>[A-Za-z0-9_.+\-/]+)"
    r"|(?P<mark>[{}<>\[\]:;,])"
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_ESCAPED = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_CLOSING = {"{": "}", "<": ">"}
_FIELD = re.compile(r"[A-Za-z_]\w*")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})")
_FLOAT = re.compile(r"-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan)[fF]?")
_BOOLEANS = {"true": True, "True": True, "t": True, "1": True} | dict.fromkeys(
    ("false", "False", "f", "0"), False
)
_MAX_DEPTH = 100  # of messages in messages, as protobuf allows


class Kind(enum.Enum):
    """Kinds of scalar fields but integers; `ANY` is a field whose values are not read."""

    FLOAT = "a number"
    BOOL = "true or false"
    STRING = "a string in quotes, of valid UTF-8"
    ENUM = "a name or its number"
    ANY = "any value"


# Kinds of fields by name: the range of an integer, another kind of scalar, or the schema of a
# message. A repeated field is a list with its kind.
Schema = Mapping[str, Any]
INT32 = range(-(2**31), 2**31)


class Value(NamedTuple):
    """A value of a field.

    Attributes:
      content: bytes of a string, text of another scalar, or a message.
      line: line of the value in the text.
    """

    content: "bytes | str | Message"
    line: int


@dataclass
class Message:
    """Values by field name, as in the text.

    Attributes:
      line: line where the message starts.
      fields: values of each field, in order; always lists.
    """

    line: int
    fields: dict[str, list[Value]] = field(default_factory=dict)


class Record(NamedTuple):
    """A message that was read by a schema.

    Attributes:
      line: line where the message starts.
      values: values by field name; lists for repeated fields. Other fields that the text does not
        have are missing.
    """

    line: int
    values: dict[str, Any]


def read(message: Message, schema: Schema) -> Record:
    """Return the values of a message by its schema.

    Raises:
      ValueError: a field is unknown, is given twice, or has a value of another kind. The message
        names the line.
    """
    values: dict[str, Any] = {}
    for name, found in message.fields.items():
        kind = schema.get(name)
        if kind is None and found:
            known = ", ".join(schema)
            raise ValueError(f"line {found[0].line}: {name} is no known field: expected {known}")
        if isinstance(kind, list):
            values[name] = [_read_value(value, name, kind[0]) for value in found]
        elif kind is not Kind.ANY and found:
            if len(found) > 1:
                raise ValueError(f"line {found[1].line}: {name} is given twice: expected one value")
            values[name] = _read_value(found[0], name, kind)
    repeated: dict[str, Any] = {name: [] for name, kind in schema.items() if isinstance(kind, list)}
    return Record(message.line, repeated | values)


def _read_value(value: Value, name: str, kind: Any) -> Any:
    content, line = value
    if not isinstance(kind, Kind | range):
        if not isinstance(content, Message):
            raise ValueError(f"line {line}: {name} is {_shown(content)}: expected a message")
        return read(content, kind)
    found = None if isinstance(content, Message) else _scalar(content, kind)
    if found is None:
        if isinstance(kind, range):
            expected = f"a whole number in {kind.start}..{kind.stop - 1}"
        else:
            expected = kind.value
        raise ValueError(f"line {line}: {name} is {_shown(content)}: expected {expected}")
    return found


def _scalar(content: bytes | str, kind: Kind | range) -> Any:
    """Return a scalar, or `None` if it is of another kind."""
    if isinstance(content, bytes):
        try:
            return content.decode() if kind is Kind.STRING else None
        except UnicodeDecodeError:
            return None
    if isinstance(kind, range):
        if not _INTEGER.fullmatch(content):
            return None
        number = int(content, 8 if re.fullmatch(r"-?0[0-7]+", content) else 0)
        return number if number in kind else None
    if kind is Kind.FLOAT:
        return float(content.rstrip("fF")) if _FLOAT.fullmatch(content) else None
    if kind is Kind.BOOL:
        return _BOOLEANS.get(content)
    named = _FIELD.fullmatch(content) or _INTEGER.fullmatch(content)
    return content if kind is Kind.ENUM and named else None


def _shown(content: "bytes | str | Message") -> str:
    """Return a value as an error shows it."""
    if isinstance(content, Message):
        return "a message"
    shown = repr(content.decode(errors="backslashreplace") if type(content) is bytes else content)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


class _Token(NamedTuple):
    """A token of the text: its kind (group of `_TOKEN`, or "end"), its text, and its line."""

    kind: str
    text: str
    line: int


def parse(text: str) -> Message:
    """Return the message that a text describes.

    Raises:
      ValueError: the text is truncated or malformed. The message names the line.
    """
    return _message(_tokens(text), line=1, closing="", depth=0)


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"line {line}: {text[at : at + 20]!r} is no token of the text format")
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0], line)
        line += match[0].count("\n")
        at = match.end()
    yield _Token("end", "", line)


def _message(tokens: Iterator[_Token], line: int, closing: str, depth: int) -> Message:
    if depth > _MAX_DEPTH:
        raise ValueError(f"line {line}: a message in {_MAX_DEPTH} others: expected fewer")
    message = Message(line)
    token = next(tokens)
    while token.text != closing:
        if token.kind == "end":
            raise ValueError(
                f"line {token.line}: the text ends inside the message of line {line}: "
                "it is truncated"
            )
        if token.kind != "word" or not _FIELD.fullmatch(token.text):
            raise ValueError(f"line {token.line}: {token.text!r}: expected the name of a field")
        values = message.fields.setdefault(token.text, [])
        token = _field(tokens, token.text, values, depth)
        if token.text in (",", ";"):
            token = next(tokens)
    return message


def _field(tokens: Iterator[_Token], name: str, values: list[Value], depth: int) -> _Token:
    """Append the values of a field, and return the token after them."""
    token = next(tokens)
    has_colon = token.text == ":"
    if has_colon:
        token = next(tokens)
    elif token.text not in (*_CLOSING, "["):
        raise _unexpected(token, name, "a colon or a message")
    is_list = token.text == "["
    if is_list:
        token = next(tokens)
    while not (is_list and token.text == "]"):
        start = token
        value, token = _value(tokens, token, name, depth)
        if not has_colon and not isinstance(value.content, Message):
            raise _unexpected(start, name, "a message, there is no colon")
        values.append(value)
        if not is_list:
            return token
        if token.text == ",":
            token = next(tokens)
            if token.text == "]":
                raise _unexpected(token, name, "a value")
        elif token.text != "]":
            raise _unexpected(token, name, "a comma or the end of the list")
    return next(tokens)


def _value(tokens: Iterator[_Token], token: _Token, name: str, depth: int) -> tuple[Value, _Token]:
    line = token.line
    if token.text in _CLOSING:
        message = _message(tokens, line, _CLOSING[token.text], depth + 1)
        return Value(message, line), next(tokens)
    if token.text == "-":  # the sign of a number may stand apart
        token = next(tokens)
        if token.kind != "word":
            raise _unexpected(token, name, "a number after the sign")
        return Value(f"-{token.text}", line), next(tokens)
    if token.kind == "word":
        return Value(token.text, line), next(tokens)
    if token.kind != "string":
        raise _unexpected(token, name, "a value")
    parts = []
    while token.kind == "string":  # adjacent strings are concatenated
        parts.append(_unescape(token))
        token = next(tokens)
    return Value(b"".join(parts), line), token


def _unescape(token: _Token) -> bytes:
    """Return the bytes of a string."""

    def escaped(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, letter = match.groups()
        try:
            if short or long:
                return chr(int(short or long, 16)).encode()
            if letter is not None:
                return bytes([_ESCAPED[letter[0]]])
            return bytes([int(octal, 8) if octal is not None else int(hexadecimal, 16)])
        except (ValueError, OverflowError, KeyError):
            wrong = match[0].decode(errors="replace")
            expected = "expected an escape of the text format"
            raise ValueError(f"line {token.line}: {wrong} in a string: {expected}") from None

    return _ESCAPE.sub(escaped, token.text[1:-1].encode(errors="surrogatepass"))


def _unexpected(token: _Token, name: str, expected: str) -> ValueError:
    if token.kind == "end":
        return ValueError(f"line {token.line}: the text ends inside {name}: it is truncated")
    return ValueError(f"line {token.line}: {token.text!r} in {name}: expected {expected}")
