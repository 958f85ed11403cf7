"""JSON-RPC 2.0 as a pure state machine: bytes in and events out, calls in and bytes out.

It never touches a socket and never waits. It knows which requests of ours are unanswered, how
long a line may be, and which reply malformed input is owed. Source: the JSON-RPC 2.0
specification; ACP has no batches and lets an id be null (v1 schema, `RequestId`).
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw, Struct

from acphold.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, InvalidParamsError
from acphold.rpc.events import (
    Event,
    MalformedReceived,
    NotificationReceived,
    RequestReceived,
    ResponseReceived,
    WireError,
)
from acphold.rpc.framing import HEAD, TAIL, LineBuffer, Oversize
from acphold.rpc.oversize import MAX_DEPTH, leading_members, too_deep, trailing_members
from acphold.schema.splice import members, splice

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


class _Told(Struct, gc=False, forbid_unknown_fields=True):
    """A notification as nearly every program writes one: decoded in one pass."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Raw


TOLD = b'{"jsonrpc":"2.0","method":'
"""How such a notification begins."""

TOLD_BYTES = 1024
"""Below it no message can be nested too deep, and the short way is worth trying."""

_decode_told = msgspec.json.Decoder(_Told).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_encode = msgspec.json.encode


class _ErrorObject(Struct):
    code: int
    message: str


class Protocol:
    """One side of a connection."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._lines = LineBuffer(limit)
        self._plain = True
        self._last_id = 0
        self._unanswered: set[int] = set()

    # -- what arrives ---------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes, in the order of the wire."""
        frames = self._lines.feed(data)
        # One look at the whole read, and at what began in earlier ones: msgspec does not check
        # the encoding of what stays raw.
        ascii_only = data.isascii()
        plain = self._plain and ascii_only
        self._plain = ascii_only and (self._plain or b"\n" in data)
        if plain:
            return [self._event(frame) for frame in frames]
        return [
            self._event(frame) if _is_utf8(frame) else self._unreadable(frame) for frame in frames
        ]

    def _event(self, frame: bytes | Oversize) -> Event:
        if isinstance(frame, bytes) and frame.startswith(TOLD) and len(frame) < TOLD_BYTES:
            told = _told(frame)
            if told is not None:
                return told
        if isinstance(frame, Oversize):
            problem = f"a message of {frame.size} bytes is over the limit of {self._limit}"
            return self._refused(problem, frame.head, frame.tail)
        if too_deep(frame):
            problem = f"a message nested deeper than {MAX_DEPTH} levels"
            return self._refused(problem, frame[:HEAD], frame[-TAIL:])
        try:
            envelope = _decode_envelope(frame)
        except msgspec.MsgspecError:
            return self._odd(frame)
        return self._classify(envelope, frame)

    def _classify(self, envelope: _Envelope, frame: bytes) -> Event:
        id_, method = bytes(envelope.id), bytes(envelope.method)
        if not method and (bytes(envelope.error) or bytes(envelope.result)):
            return self._answered(id_, envelope, frame)
        if id_ and not _is_id(id_):
            return _invalid("an id is a string, an integer or null", frame)
        if bytes(envelope.jsonrpc) not in (b'"2.0"', b""):
            return _invalid('"jsonrpc" is not "2.0"', frame, id_)
        if method:
            return self._called(id_, method, envelope, frame)
        if bytes(envelope.jsonrpc) and _own_id(id_) in self._unanswered:
            # A null result: JavaScript drops a member that is undefined.
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
        name = method[1:-1].decode() if b"\\" not in method else _unescaped(method)
        if id_:
            return RequestReceived(id_, name, params)
        return NotificationReceived(name, params)

    def _answered(self, id_: bytes, envelope: _Envelope, frame: bytes) -> Event:
        number = _own_id(id_)
        if number not in self._unanswered:
            # Nothing waits for it; a reply to a reply would start a loop, or would be taken for
            # the answer to a request of theirs.
            return MalformedReceived("a response to no request of ours", frame[:EXCERPT])
        self._unanswered.discard(number)
        if bytes(envelope.jsonrpc) not in (b'"2.0"', b""):
            return ResponseReceived(
                number, b"", wire_error(INVALID_REQUEST, '"jsonrpc" is not "2.0"')
            )
        error = bytes(envelope.error)
        if error and error != b"null":
            return ResponseReceived(number, b"", _wire_error(error))
        return ResponseReceived(number, bytes(envelope.result) or b"null")

    def _odd(self, frame: bytes) -> Event:
        """A line msgspec refuses: JSON with a lone surrogate, JSON but no object, or no JSON."""
        first = frame.lstrip()[:1]
        if first != b"{":
            if first not in _BEGINNINGS or not _is_json(frame):
                return _malformed(PARSE_ERROR, "not JSON", frame)
            return _invalid("a batch; ACP has none" if first == b"[" else "not an object", frame)
        try:
            parts = members(frame)
        except InvalidParamsError:
            return self._refused("not JSON", frame[:HEAD], frame[-TAIL:], PARSE_ERROR)
        known = {name: Raw(parts[name]) for name in _Envelope.__struct_fields__ if name in parts}
        return self._classify(_Envelope(**known), frame)

    def _unreadable(self, frame: bytes | Oversize) -> Event:
        """A line with bytes that are no UTF-8."""
        if isinstance(frame, Oversize):
            return self._event(frame)
        return self._refused("not UTF-8", frame[:HEAD], frame[-TAIL:], PARSE_ERROR)

    def _refused(
        self, problem: str, head: bytes, tail: bytes, code: int = INVALID_REQUEST
    ) -> Event:
        """A message that is not looked into: whoever waits for it, or for its answer, is told."""
        known = {**trailing_members(tail), **leading_members(head)}
        id_ = known.get("id", b"")
        if "method" not in known and (number := _own_id(id_)) in self._unanswered:
            self._unanswered.discard(number)
            return ResponseReceived(number, b"", wire_error(code, problem))
        # The id of what may be an answer is none of ours to use: it would look like one of theirs.
        return _malformed(code, problem, head, id_ if "method" in known and _is_id(id_) else b"")

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


def _told(frame: bytes) -> NotificationReceived | None:
    """A notification written as nearly every program writes one; None for anything else."""
    try:
        told = _decode_told(frame)
    except (msgspec.MsgspecError, RecursionError):
        return None
    params = bytes(told.params)
    return NotificationReceived(told.method, params) if params[:1] == b"{" else None


def _is_id(id_: bytes) -> bool:
    return id_[:1] == b'"' or id_ == b"null" or id_.lstrip(b"-").isdigit()


def _own_id(id_: bytes) -> int:
    """The number of a request of ours; some peers give it back as a string."""
    digits = id_.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0


_BEGINNINGS = frozenset(b"%c" % byte for byte in b'["-0123456789tfn')
"""What JSON that is no object begins with: words are told apart quickly, for there may be many."""


def _is_json(frame: bytes) -> bool:
    import json  # here: garbage is rare, and start-up is not

    try:
        json.loads(frame)
    except ValueError:
        return False
    return True


def _is_utf8(frame: bytes | Oversize) -> bool:
    if isinstance(frame, Oversize):
        return True
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unescaped(method: bytes) -> str:
    try:
        return msgspec.json.decode(method, type=str)
    except msgspec.MsgspecError:  # half of a surrogate pair: no method of anybody's
        from acphold.schema.surrogates import repaired

        return msgspec.json.decode(repaired(method), type=str)


def _wire_error(raw: bytes) -> WireError:
    """An error object as it came, made whole if it is none."""
    try:
        error = msgspec.json.decode(raw, type=_ErrorObject)
        return WireError(error.code, error.message, raw)
    except msgspec.MsgspecError:
        return _mended_error(raw)


def _mended_error(raw: bytes) -> WireError:
    from acphold.schema.surrogates import repaired

    try:
        found = msgspec.json.decode(repaired(raw))
    except msgspec.MsgspecError:
        found = None
    said = found if isinstance(found, dict) else {"message": found}
    code, message = said.get("code"), said.get("message")
    error = wire_error(
        code if type(code) is int else INTERNAL_ERROR,
        message if isinstance(message, str) else "the other side refused without saying why",
    )
    if not isinstance(found, dict):
        return error
    parts = {"code": b"%d" % error.code, "message": _encode(error.message)}
    return WireError(error.code, error.message, splice(raw, parts))


def _malformed(code: int, problem: str, frame: bytes, id_: bytes = b"") -> MalformedReceived:
    reply = Protocol.error(id_ or b"null", wire_error(code, problem))
    return MalformedReceived(problem, frame[:EXCERPT], reply, asked=bool(id_))


def _invalid(problem: str, frame: bytes, id_: bytes = b"") -> MalformedReceived:
    return _malformed(INVALID_REQUEST, problem, frame, id_)
