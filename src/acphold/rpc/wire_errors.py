"""Errors as they stand on the wire: made here, or read as they came."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from acphold.errors import INTERNAL_ERROR, InvalidParamsError
from acphold.schema.splice import members, splice

T = TypeVar("T")


class WireError(Struct, frozen=True):
    """A JSON-RPC error object: `raw` is the whole object as JSON bytes."""

    code: int
    message: str
    raw: bytes


Code = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""An error code as the schema has it (v1, `ErrorCode`): readers in C, Go or Rust take no other."""


class _ErrorObject(Struct):
    code: Code
    message: str


_decode = msgspec.json.Decoder(_ErrorObject).decode
_encode = msgspec.json.encode

UNEXPLAINED = "the other side refused without saying why"


def wire_error(code: int, message: str, data: dict[str, object] | None = None) -> WireError:
    """An error object of ours; the message is made one line, as strict peers demand."""
    line = " ".join(message.split()) or "error"
    parts: dict[str, object] = {"code": code, "message": line}
    if data is not None:
        parts["data"] = data
    return WireError(code, line, _encode(parts))


def read_error(raw: bytes) -> WireError:
    """An error object as it came; made whole if it is none."""
    try:
        error = _decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return _made_whole(raw)
    return WireError(error.code, error.message, raw)


def _made_whole(raw: bytes) -> WireError:
    from acphold.schema.slow_json import repaired  # rare, and start-up is not

    sound = repaired(raw)
    try:
        parts = members(sound)
    except InvalidParamsError:
        return wire_error(INTERNAL_ERROR, _read(sound, str) or UNEXPLAINED)
    code, message = _read(parts.get("code"), Code), _read(parts.get("message"), str)
    error = wire_error(INTERNAL_ERROR if code is None else code, message or UNEXPLAINED)
    known = {"code": b"%d" % error.code, "message": _encode(error.message)}
    return WireError(error.code, error.message, splice(raw, known))


def _read(raw: bytes | None, kind: type[T]) -> T | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        return None
