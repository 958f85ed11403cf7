"""JSON-RPC 2.0 as a pure state machine: bytes in and events out, calls in and bytes out.

It never touches a socket and never waits. It knows which requests of ours are unanswered, how
long a line may be, and which reply malformed input is owed. Source: the JSON-RPC 2.0
specification; ACP has no batches and lets an id be null (v1 schema, `RequestId`).
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from holdfast.errors import INVALID_REQUEST, PARSE_ERROR, InvalidParamsError
from holdfast.rpc.events import (
    Event,
    MalformedReceived,
    NotificationReceived,
    RequestReceived,
    ResponseReceived,
    WireError,
)
from holdfast.rpc.framing import LineBuffer, Oversize
from holdfast.rpc.oversize import leading_members
from holdfast.schema.splice import members

MAX_MESSAGE = 64 * 1024 * 1024
"""Bytes in one message, unless configured; the images of a prompt fit, a runaway does not."""

EXCERPT = 200
"""Bytes of a malformed line that are kept for the log."""

ABSENT = Raw()
"""What a member decodes to when the message does not have it."""


class _Envelope(Struct, gc=False):
    """The members of any JSON-RPC message; what is only relayed stays raw."""

    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_encode = msgspec.json.encode


class _ErrorObject(Struct):
    code: int = INVALID_REQUEST
    message: str = ""


class Protocol:
    """One side of a connection."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._lines = LineBuffer(limit)
        self._last_id = 0
        self._unanswered: set[int] = set()

    # -- what arrives ---------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes, in the order of the wire."""
        frames = self._lines.feed(data)
        # One look at the whole read: msgspec does not check the encoding of what stays raw.
        if data.isascii():
            return [self._event(frame) for frame in frames]
        return [self._event(frame) if _is_utf8(frame) else _not_utf8(frame) for frame in frames]

    def _event(self, frame: bytes | Oversize) -> Event:
        if isinstance(frame, Oversize):
            return self._oversize(frame)
        try:
            envelope = _decode_envelope(frame)
        except msgspec.MsgspecError:
            return self._odd(frame)
        return self._classify(envelope, frame)

    def _classify(self, envelope: _Envelope, frame: bytes) -> Event:
        id_, method = bytes(envelope.id), bytes(envelope.method)
        if bytes(envelope.jsonrpc) not in (b'"2.0"', b""):
            return _invalid('"jsonrpc" is not "2.0"', frame, id_)
        if id_ and not _is_id(id_):
            return _invalid("an id is a string, an integer or null", frame)
        if method:
            return self._called(id_, method, envelope, frame)
        if bytes(envelope.error) or bytes(envelope.result) or _own_id(id_) in self._unanswered:
            # Without either it is a null result: JavaScript drops a member that is undefined.
            return self._answered(id_, envelope, frame)
        return _invalid("neither a method nor a result nor an error", frame, id_)

    def _called(self, id_: bytes, method: bytes, envelope: _Envelope, frame: bytes) -> Event:
        if method[:1] != b'"':
            return _invalid("a method is a string", frame, id_)
        params = bytes(envelope.params)
        if params == b"null":
            params = b""
        if params and params[:1] not in b"{[":
            return _invalid("params are an object or an array", frame, id_)
        name = method[1:-1].decode() if b"\\" not in method else msgspec.json.decode(method)
        if id_:
            return RequestReceived(id_, name, params)
        return NotificationReceived(name, params)

    def _answered(self, id_: bytes, envelope: _Envelope, frame: bytes) -> Event:
        number = _own_id(id_)
        if number not in self._unanswered:
            # Nothing waits for it; a reply to a reply would start a loop.
            return MalformedReceived("a response to no request of ours", frame[:EXCERPT])
        self._unanswered.discard(number)
        error = bytes(envelope.error)
        if error and error != b"null":
            return ResponseReceived(number, b"", _wire_error(error))
        return ResponseReceived(number, bytes(envelope.result) or b"null")

    def _odd(self, frame: bytes) -> Event:
        """A line msgspec refuses: not JSON, or not an object, or JSON with a lone surrogate."""
        try:
            parts = members(frame)
        except InvalidParamsError:
            return _no_object(frame)
        known = {name: Raw(parts[name]) for name in _Envelope.__struct_fields__ if name in parts}
        return self._classify(_Envelope(**known), frame)

    def _oversize(self, frame: Oversize) -> Event:
        problem = f"a message of {frame.size} bytes is over the limit of {self._limit}"
        head = leading_members(frame.head)
        id_ = head.get("id", b"")
        if "method" not in head and (number := _own_id(id_)) in self._unanswered:
            self._unanswered.discard(number)
            raw = _encode({"code": INVALID_REQUEST, "message": problem})
            return ResponseReceived(number, b"", WireError(INVALID_REQUEST, problem, raw))
        return _invalid(problem, frame.head, id_ if _is_id(id_) else b"")

    # -- what is sent ---------------------------------------------------------------------

    def request(self, method: str, params: bytes) -> tuple[int, bytes]:
        """A new request: its id, and the line to send."""
        self._last_id += 1
        self._unanswered.add(self._last_id)
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b' % (self._last_id, _encode(method))
        return self._last_id, head + _params(params)

    def forget(self) -> list[int]:
        """The ids of all unanswered requests, which are dropped: the connection is over."""
        ids = sorted(self._unanswered)
        self._unanswered.clear()
        return ids

    @staticmethod
    def notification(method: str, params: bytes) -> bytes:
        """The line that tells `method`."""
        return b'{"jsonrpc":"2.0","method":%b' % _encode(method) + _params(params)

    @staticmethod
    def result(id_: bytes, result: bytes) -> bytes:
        """The line that answers request `id_`."""
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id_, result)

    @staticmethod
    def error(id_: bytes, error: WireError) -> bytes:
        """The line that refuses request `id_`."""
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (id_, error.raw)


def wire_error(code: int, message: str, data: dict[str, object] | None = None) -> WireError:
    """An error object of ours; the message is made one line, as strict peers demand."""
    line = " ".join(message.split()) or "error"
    parts: dict[str, object] = {"code": code, "message": line}
    if data is not None:
        parts["data"] = data
    return WireError(code, line, _encode(parts))


def _params(params: bytes) -> bytes:
    return b',"params":%b}\n' % params if params else b"}\n"


def _is_id(id_: bytes) -> bool:
    return id_[:1] == b'"' or id_ == b"null" or id_.lstrip(b"-").isdigit()


def _own_id(id_: bytes) -> int:
    """The number of a request of ours; some peers give it back as a string."""
    digits = id_.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0


def _no_object(frame: bytes) -> Event:
    import json  # here: garbage is rare, and start-up is not

    try:
        json.loads(frame)
    except ValueError:
        return _malformed(PARSE_ERROR, "not JSON", frame)
    what = "a batch; ACP has none" if frame.lstrip()[:1] == b"[" else "not an object"
    return _invalid(what, frame)


def _is_utf8(frame: bytes | Oversize) -> bool:
    if isinstance(frame, Oversize):
        return True
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def _not_utf8(frame: bytes | Oversize) -> Event:
    assert isinstance(frame, bytes)
    return _malformed(PARSE_ERROR, "not UTF-8", frame)


def _wire_error(raw: bytes) -> WireError:
    try:
        error = msgspec.json.decode(raw, type=_ErrorObject, strict=False)
    except msgspec.MsgspecError:
        return wire_error(INVALID_REQUEST, "an error that is not an error object")
    return WireError(error.code, error.message, raw)


def _malformed(code: int, problem: str, frame: bytes, id_: bytes = b"") -> MalformedReceived:
    reply = Protocol.error(id_ or b"null", wire_error(code, problem))
    return MalformedReceived(problem, frame[:EXCERPT], reply)


def _invalid(problem: str, frame: bytes, id_: bytes = b"") -> MalformedReceived:
    return _malformed(INVALID_REQUEST, problem, frame, id_)
