"""Protocol Buffers messages of foreign programs, by field number.

There is no schema. Unexpected values count as missing, and only requested fields are decoded
further.
"""

from __future__ import annotations

from typing import Final

Fields = dict[int, list[int | bytes]]
"""A message's values by field number, in order."""

_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5


def fields(data: bytes) -> Fields:
    """Return the fields of a message; raises ValueError for invalid bytes."""
    found: Fields = {}
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        value: int | bytes
        if (kind := tag & 7) == _VARINT:
            value, place = _number(data, place)
        elif kind in (_BYTES, _FIXED_64, _FIXED_32):
            size = 8 if kind == _FIXED_64 else 4
            if kind == _BYTES:
                size, place = _number(data, place)
            value = data[place : place + size]
            place += size
            if place > len(data):
                raise ValueError("a field ends behind its message")
        else:
            raise ValueError(f"no field is of kind {kind}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def inside(message: Fields, *path: int) -> Fields:
    """Return the message at `path`; empty if there is none."""
    for number in path:
        message = ([{}, *messages(message, number)])[-1]
    return message


def messages(message: Fields, number: int) -> list[Fields]:
    """Return the messages of a repeated field; an invalid one is empty."""
    found: list[Fields] = []
    for data in several(message, number):
        try:
            found.append(fields(data))
        except ValueError:
            found.append({})
    return found


def several(message: Fields, number: int) -> list[bytes]:
    """Return the bytes of a repeated field."""
    return [value for value in message.get(number, []) if isinstance(value, bytes)]


def raw(message: Fields, number: int) -> bytes:
    """Return the bytes of a field; the last one counts."""
    return (several(message, number) or [b""])[-1]


def words(message: Fields, number: int) -> str:
    """Return the text of a field."""
    return raw(message, number).decode(errors="replace")


def count(message: Fields, number: int) -> int:
    """Return the number in a field."""
    return ([value for value in message.get(number, []) if isinstance(value, int)] or [0])[-1]


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return a varint (seven bits a byte), and the place where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number has no end")
