"""Values in JSON that somebody else wrote: what is not as expected counts as not there."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final, TypeAlias, cast

import msgspec

from acphold.history.times import LATEST_MS
from acphold.schema.slow_json import repaired

Object: TypeAlias = dict[str, object]
"""A decoded JSON object; its values are asked for with the functions of this module."""

UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What decoding raises for bytes that are no JSON, too deep, or no UTF-8."""

_decode: Final = msgspec.json.Decoder(Object).decode


def decoded(raw: bytes) -> Object:
    """The object in `raw`; raises one of UNREADABLE.

    JavaScript writes half a surrogate pair when it cuts a string in the middle, which msgspec
    refuses; here it becomes U+FFFD.
    """
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        value: object = json.loads(repaired(raw))  # which takes NaN as well
        if not isinstance(value, dict):
            raise ValueError("not an object") from None
        return cast(Object, value)


def looked_up(value: object, *path: str) -> object:
    """What stands at `path` inside nested objects; None when a step of it is missing."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def text(value: object, *path: str) -> str:
    """The string at `path`, else an empty one."""
    found = looked_up(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int | None:
    """The number at `path`, rounded down."""
    found = looked_up(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if -(2**62) < found < 2**62 else None


def obj(value: object, *path: str) -> Object:
    """The object at `path`, else an empty one."""
    found = looked_up(value, *path)
    return found if isinstance(found, dict) else {}


def objects(value: object, *path: str) -> list[Object]:
    """The objects in the array at `path`."""
    found = looked_up(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def strings(value: object, *path: str) -> list[str]:
    """The strings in the array at `path`."""
    found = looked_up(value, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def from_json(source: object) -> object:
    """What is written as JSON inside a string; the string itself when it is none."""
    if not isinstance(source, str):
        return source
    try:
        return cast(object, msgspec.json.decode(source))
    except UNREADABLE:
        return source


def milliseconds(value: object) -> int | None:
    """A time, as ISO 8601 text or as a number of seconds or ms since the epoch, in ms.

    One before 1970 is none, nor is one that cannot be written as a date: see LATEST_MS.
    """
    if isinstance(value, str):
        try:
            at = int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    elif (found := number(value)) is not None:
        # Seconds of today have ten digits, milliseconds thirteen.
        at = found if found > 10**11 else int(cast(float, value) * 1000)
    else:
        return None
    return at if 0 < at < LATEST_MS else None
