"""Errors on the wire: read from the other side, or made of failures here.

Our own exceptions describe the problem to the other side. Any other exception of a handler or an
author's code is an incident: the other side gets only an id, and the log has the exception under
it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from acp_wire import errors
from acp_wire.schema.splice import json_value, members, splice

on_incident: ContextVar[Callable[[str, BaseException], object] | None] = ContextVar(
    "on_incident", default=None
)
"""Called with incidents besides the log: a test raises the exceptions of an author's code."""

log = logging.getLogger(__name__)


class WireError(Struct, frozen=True):
    """A JSON-RPC error object: `raw` is the whole object as JSON bytes."""

    code: int
    message: str
    raw: bytes


Code = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""An error code as the schema has it (v1, `ErrorCode`): readers in C, Go or Rust accept no
other."""


class _ErrorObject(Struct):
    code: Code
    message: str


_decode = msgspec.json.Decoder(_ErrorObject).decode
_encode = msgspec.json.encode

UNEXPLAINED = "the other side refused without a reason"
TOO_MANY_FILES = "acphold has too many files open: close sessions, or allow more (ulimit -n)"


def wire_error(code: int, message: str, data: dict[str, object] | None = None) -> WireError:
    """Return an error object of ours; the message is made one line, as strict peers demand."""
    line = " ".join(message.split()) or "error"
    parts: dict[str, object] = {"code": code, "message": line}
    if data is not None:
        parts["data"] = data
    return WireError(code, line, _encode(parts))


def read_error(raw: bytes) -> WireError:
    """Return a received error object unchanged; completed if it breaks JSON-RPC."""
    try:
        error = _decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        pass
    else:
        return WireError(error.code, error.message, raw)
    try:
        parts = members(raw)
    except errors.InvalidParamsError:
        return wire_error(errors.INTERNAL_ERROR, json_value(raw, str) or UNEXPLAINED)
    code, message = json_value(parts.get("code"), Code), json_value(parts.get("message"), str)
    whole = wire_error(errors.INTERNAL_ERROR if code is None else code, message or UNEXPLAINED)
    known = {"code": b"%d" % whole.code, "message": _encode(whole.message)}
    return WireError(whole.code, whole.message, splice(raw, known))


# -- failures here ---------------------------------------------------------------------------


def to_wire(error: Exception) -> WireError:
    """Return the error object for an exception: ours are shown; others are logged and hidden."""
    if isinstance(error, errors.RemoteError) and error.raw:
        return WireError(error.code, error.message, error.raw)
    if not isinstance(error, errors.AcpError):
        error = incident(error)
    return wire_error(error.code, str(error), error.data)


def incident(error: BaseException) -> errors.AcpError:
    """Return the error that stands for `error`, whose details go to the log alone.

    If we run out of descriptors, anything can fail, anywhere: the person has to know that.
    """
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        log.error("%s", error)
        return errors.AcpError(TOO_MANY_FILES)
    made = errors.IncidentError(os.urandom(4).hex())
    if (tell := on_incident.get()) is not None:
        tell(made.incident, error)
    log.error(
        "this should not have failed, incident %s",
        made.incident,
        exc_info=error,
        extra={"incident": made.incident},
    )
    return made


def as_remote(error: errors.AcpError, code: int | None = None) -> errors.RemoteError:
    """Return the error as a peer would receive it over a wire, or one with that `code`."""
    if code is None and isinstance(error, errors.RemoteError):
        return error
    wire = wire_error(error.code if code is None else code, str(error), error.data)
    return errors.RemoteError(wire.code, wire.message, wire.raw)
