r"""JSON that msgspec refuses, read with the standard library; never on the fast path.

msgspec rejects a lone half of a surrogate pair ("\ud83d"), even in parts that it only skips.
Programs that cut text between UTF-16 units send such escapes, and JSON's grammar allows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from msgspec import Raw, to_builtins

from acphold.errors import InvalidParamsError

SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*+\\)"  # an odd number of backslashes: the last one begins an escape
    rb"u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    rb"|([dD][89a-fA-F][0-9a-fA-F]{2}))"  # half of one
)

SPACE = re.compile(r"[ \t\n\r]*+")

TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A JSON string, including an unterminated one."""

MAX_VALUES = 1_000_000
"""Values in one text.

The standard library makes an object of each, which takes up to 100 bytes and 200 ns; msgspec needs
no such limit.
"""

MAX_ELEMENTS = 100_000
"""Members of one object, or items of one array: 5 us each, since they are cut one by one."""


def repaired(raw: bytes) -> bytes:
    """Return JSON with U+FFFD for halves of surrogate pairs and for bytes that are not UTF-8."""
    if not raw.isascii():
        raw = raw.decode("utf-8", "replace").encode()
    return SURROGATE.sub(lambda found: found[1] + b"ufffd" if found[2] else found[0], raw)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


# Numbers stay text: they are not used, and int() refuses more than 4300 digits.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


class Scan:
    """A position in a JSON text, moved on token by token.

    Every error is an InvalidParamsError, and so are more than MAX_VALUES values.
    """

    def __init__(self, raw: bytes) -> None:
        if _marks(raw) > MAX_VALUES and _marks(TEXT.sub(b"", raw)) > MAX_VALUES:
            raise InvalidParamsError(f"more than {MAX_VALUES} values, and broken texts", "$")
        # Bytes that are not UTF-8 are restored on encoding.
        self._text = raw.decode("utf-8", "surrogateescape")
        self._at = 0

    def elements(self, opening: str, closing: str) -> Iterator[None]:
        """Stop before each element in turn; the caller moves over it. Ends at the text's end."""
        self._expect(opening)
        more = self._peek() != closing
        left = MAX_ELEMENTS
        while more:
            if not left:
                raise InvalidParamsError(
                    f"more than {MAX_ELEMENTS} elements, and broken texts", "$"
                )
            left -= 1
            yield
            more = self._peek() == ","
            self._at += more
        self._expect(closing)
        if self._peek():
            raise InvalidParamsError("more text after the end of the JSON", "$")

    def name(self) -> tuple[str, bytes]:
        """Return the name of a member, decoded and as spelled; moves past the colon."""
        if self._peek() != '"':
            raise InvalidParamsError("expected the name of a member", "$")
        name, spelled = self.value()
        self._expect(":")
        return str(name), spelled

    def value(self) -> tuple[object, bytes]:
        """Return any JSON value, decoded and as spelled."""
        self._peek()
        start = self._at
        try:
            value, self._at = _DECODER.raw_decode(self._text, start)
        except (ValueError, RecursionError) as error:
            raise InvalidParamsError(f"not JSON: {error}", "$") from None
        return value, self._text[start : self._at].encode("utf-8", "surrogateescape")

    def _peek(self) -> str:
        """Move to the next character that is not white space and return it, "" at the end."""
        space = SPACE.match(self._text, self._at)
        self._at = self._at if space is None else space.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise InvalidParamsError(f"not JSON: expected {character!r}", "$")
        self._at += 1


def _marks(raw: bytes) -> int:
    """Return at least the number of values in the text, minus one."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def encode_repaired(value: object, enc_hook: Callable[[object], Raw]) -> bytes:
    """Return the JSON of a value with U+FFFD for the lone surrogates in its texts."""
    plain = to_builtins(value, enc_hook=lambda other: json.loads(bytes(enc_hook(other))))
    return repaired(json.dumps(plain, separators=(",", ":")).encode())
