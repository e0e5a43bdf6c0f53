"""Parse the protobuf text format without a schema.

Source: protobuf.dev, "Text Format Language Specification".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<space>\s+|\#[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<word>[\w.+\-/]+)"
    r"|(?P<mark>[{}<>\[\]:;,])"
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))
_CLOSING = {"{": "}", "<": ">"}


class Value(NamedTuple):
    """A value of a field.

    Attributes:
      content: text of a scalar (strings are decoded), or a message.
      line: line of the value in the text.
    """

    content: "str | Message"
    line: int


@dataclass
class Message:
    """Values by field name.

    Attributes:
      line: line where the message starts.
      fields: values of each field, in order; always lists.
    """

    line: int
    fields: dict[str, list[Value]] = field(default_factory=dict)

    def messages(self, name: str) -> list["Message"]:
        """Return the messages of a repeated field.

        Raises:
          ValueError: a value of the field is a scalar. The message names the line.
        """
        found = []
        for content, line in self.fields.get(name, []):
            if not isinstance(content, Message):
                raise ValueError(f"line {line}: {name} is {content!r}: expected a message")
            found.append(content)
        return found

    def strings(self, name: str) -> list[str]:
        """Return the scalars of a repeated field, as text.

        Raises:
          ValueError: a value of the field is a message. The error names the line.
        """
        found = []
        for content, line in self.fields.get(name, []):
            if isinstance(content, Message):
                raise ValueError(f"line {line}: {name} is a message: expected a scalar")
            found.append(content)
        return found

    def integers(self, name: str) -> list[int]:
        """Return the integers of a repeated field.

        Raises:
          ValueError: a value of the field is not an integer. The message names the line.
        """
        found = []
        for text, value in zip(self.strings(name), self.fields.get(name, []), strict=True):
            try:
                found.append(int(text, 8 if re.fullmatch(r"-?0[0-7]+", text) else 0))
            except ValueError:
                expected = "expected a whole number"
                raise ValueError(f"line {value.line}: {name} is {text!r}: {expected}") from None
        return found

    def integer(self, name: str, default: int) -> int:
        """Return the integer of a field: the last one if it is repeated, `default` if missing."""
        return [default, *self.integers(name)][-1]

    def string(self, name: str, default: str) -> str:
        """Return the scalar of a field as text: the last if repeated, `default` if missing."""
        return [default, *self.strings(name)][-1]


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
    tokens = _tokens(text)
    return _message(tokens, line=1, closing="")


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


def _message(tokens: Iterator[_Token], line: int, closing: str) -> Message:
    message = Message(line)
    token = next(tokens)
    while token.text != closing:
        if token.kind == "end":
            raise ValueError(
                f"line {token.line}: the text ends inside the message of line {line}: "
                "it is truncated"
            )
        if token.kind != "word":
            raise ValueError(f"line {token.line}: {token.text!r}: expected the name of a field")
        values = message.fields.setdefault(token.text, [])
        token = _field(tokens, token.text, values)
        if token.text in (",", ";"):
            token = next(tokens)
    return message


def _field(tokens: Iterator[_Token], name: str, values: list[Value]) -> _Token:
    """Append the values of a field, and return the token after them."""
    token = next(tokens)
    if token.text == ":":
        token = next(tokens)
    elif token.text not in _CLOSING:
        raise _unexpected(token, name, "a colon or a message")
    if token.text != "[":
        value, token = _value(tokens, token, name)
        values.append(value)
        return token
    token = next(tokens)
    while token.text != "]":
        value, token = _value(tokens, token, name)
        values.append(value)
        if token.text == ",":
            token = next(tokens)
        elif token.text != "]":
            raise _unexpected(token, name, "a comma or the end of the list")
    return next(tokens)


def _value(tokens: Iterator[_Token], token: _Token, name: str) -> tuple[Value, _Token]:
    line = token.line
    if token.text in _CLOSING:
        return Value(_message(tokens, line, _CLOSING[token.text]), line), next(tokens)
    if token.kind == "word":
        return Value(token.text, line), next(tokens)
    if token.kind != "string":
        raise _unexpected(token, name, "a value")
    parts = []
    while token.kind == "string":  # adjacent strings are concatenated
        parts.append(_ESCAPE.sub(_unescape, token.text[1:-1].encode()))
        token = next(tokens)
    return Value(b"".join(parts).decode(errors="replace"), line), token


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if letter is not None:
        return bytes([_ESCAPED.get(letter[0], letter[0])])
    return bytes([int(octal, 8) & 255 if octal is not None else int(hexadecimal, 16)])


def _unexpected(token: _Token, name: str, expected: str) -> ValueError:
    if token.kind == "end":
        return ValueError(f"line {token.line}: the text ends inside {name}: it is truncated")
    return ValueError(f"line {token.line}: {token.text!r} in {name}: expected {expected}")
