"""Modes and config options: what a client may be shown, and keeping the two in step.

Sources: spec v1, session modes; spec v1, session config options ("Boolean Config Options",
"Relationship to Session Modes").
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.schema.splice import items, members, splice


class _Option(Struct):
    id: str = ""
    type: str = ""
    category: str | None = None


def option_list(raw: bytes) -> list[bytes]:
    """The options in a `configOptions` array, byte for byte; empty for null or nonsense."""
    try:
        return [item for item in items(raw or b"[]") if item.startswith(b"{")]
    except InvalidParamsError:
        return []


def array(items: list[bytes]) -> bytes:
    """A JSON array of items that are JSON already."""
    return b"[" + b",".join(items) + b"]"


def without_booleans(holder: bytes) -> bytes:
    """An object whose `configOptions` has no boolean option: for clients that did not opt in."""
    try:
        options = members(holder).get("configOptions", b"null")
    except InvalidParamsError:
        return holder
    kept = [item for item in option_list(options) if _option(item).type != "boolean"]
    return holder if options == b"null" else splice(holder, {"configOptions": array(kept)})


def with_value(options: list[bytes], option_id: str, value: bytes) -> list[bytes]:
    """The options with this one's `currentValue` replaced."""
    return [
        splice(item, {"currentValue": value}) if _option(item).id == option_id else item
        for item in options
    ]


def current_values(options: list[bytes]) -> dict[str, bytes]:
    """Option id to the JSON of its current value."""
    return {_option(item).id: members(item).get("currentValue", b"null") for item in options}


def is_boolean(options: list[bytes], option_id: str) -> bool:
    """Whether this option takes true and false."""
    return any(
        _option(item).id == option_id and _option(item).type == "boolean" for item in options
    )


def with_mode(modes: bytes, mode_id: str) -> bytes:
    """A `modes` object with this mode current."""
    return splice(modes, {"currentModeId": msgspec.json.encode(mode_id)})


def takes(options: list[bytes], option_id: str, value: bytes) -> bool:
    """Whether `value` is among the values of this option; of nested groups, in any."""
    found = next((item for item in options if _option(item).id == option_id), b"{}")
    return value in _values(members(found).get("options", b"[]"))


def _values(choices: bytes) -> list[bytes]:
    found: list[bytes] = []
    for choice in option_list(choices):
        parts = members(choice)
        if "value" in parts:
            found.append(parts["value"])
        found += _values(parts.get("options", b"[]"))
    return found


def mode_option(options: list[bytes]) -> str | None:
    """The id of the option that stands for the session mode; None when there is none."""
    return next((_option(item).id for item in options if _option(item).category == "mode"), None)


def _option(raw: bytes) -> _Option:
    try:
        return msgspec.json.decode(raw, type=_Option)
    except msgspec.MsgspecError:
        return _Option()
