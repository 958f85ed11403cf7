"""JSON-RPC 2.0 as a pure state machine: bytes in and events out, calls in and bytes out.

It never touches a socket and never waits. It knows our unanswered requests, the limits of a line,
and the reply that is owed for malformed input. Source: the JSON-RPC 2.0 specification; ACP has no
batches and lets an id be null (v1 schema, `RequestId`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acphold.errors import INVALID_REQUEST, PARSE_ERROR
from acphold.rpc.events import (
    CutNotification,
    Event,
    NotificationReceived,
    RequestReceived,
    ResponseReceived,
)
from acphold.rpc.framing import HEAD, TAIL, LineBuffer, Oversize
from acphold.rpc.malformed import (
    BYTE_ORDER_MARK,
    invalid,
    is_id,
    is_utf8,
    leading_params,
    malformed,
    members_at_ends,
    no_object,
    refusal,
    unanswered,
)
from acphold.rpc.wire_errors import read_error, wire_error

if TYPE_CHECKING:
    from acphold.rpc.halves import Halves

MAX_MESSAGE = 64 * 1024 * 1024
"""Bytes in one message by default; the images of a prompt fit, a runaway does not."""

MAX_DEPTH = 500
"""Levels of nesting in a message. Every reader has such a limit, at which it fails; this one serves
for all of ours, so that every message that came in can be journalled, folded and replayed as
well."""

ABSENT = Raw()
"""The value of a member that the message does not have."""


class _Envelope(Struct, gc=False):
    """The members of any JSON-RPC message; those only passed on stay raw."""

    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class _Usual(Struct, gc=False, forbid_unknown_fields=True):
    """A message as nearly every program writes one, except errors: decoded and checked at once."""

    jsonrpc: Literal["2.0"]
    id: int | UnsetType = UNSET
    method: str = ""
    params: Raw = ABSENT
    result: Raw = ABSENT


_decode_usual = msgspec.json.Decoder(_Usual).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode


class Protocol:
    """One side of a connection."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._lines = LineBuffer(limit, MAX_DEPTH)
        self._plain = True
        self._last_id = 0
        self._unanswered: set[int] = set()
        self._halves: Halves | None = None

    # -- what arrives ---------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completes, in wire order."""
        frames = self._lines.feed(data)
        # One look at the whole read, and at what began in earlier ones: msgspec does not check the
        # encoding of members that stay raw.
        ascii_only = data.isascii()
        plain = self._plain and ascii_only
        self._plain = ascii_only and (self._plain or b"\n" in data)
        if plain:
            return list(map(self._event, frames))
        return [
            self._event(frame)
            if isinstance(frame, Oversize) or is_utf8(frame)
            else self._unreadable(frame, "not UTF-8")
            for frame in frames
        ]

    def _event(self, frame: bytes | Oversize) -> Event:
        """Return the event for a frame; most are written in the usual form."""
        if isinstance(frame, Oversize):
            return self._other(frame)
        try:
            usual = _decode_usual(frame)
        except (msgspec.MsgspecError, RecursionError):
            return self._other(frame)
        id_, method = usual.id, usual.method
        if method and usual.result is ABSENT:
            params = bytes(usual.params)
            if params[:1] == b"{":
                if id_ is UNSET:
                    return NotificationReceived(method, params)
                if id_ > 0:  # it is unknown how a zero was written
                    return RequestReceived(b"%d" % id_, method, params)
        elif (
            id_ is not UNSET
            and id_ in self._unanswered
            and not method
            and usual.params is ABSENT
            and (found := bytes(usual.result))
        ):
            self._unanswered.discard(id_)
            return ResponseReceived(id_, found)
        return self._other(frame)

    def _other(self, frame: bytes | Oversize) -> Event:
        if isinstance(frame, Oversize):
            return self._refused(frame, INVALID_REQUEST)
        try:
            envelope = _decode_envelope(frame)
        except (msgspec.MsgspecError, RecursionError):
            return self._unusual(frame)
        return self._classify(envelope, frame)

    def _classify(self, envelope: _Envelope, frame: bytes) -> Event:
        id_, method = bytes(envelope.id), bytes(envelope.method)
        if not method and (bytes(envelope.error) or bytes(envelope.result)):
            return self._answered(id_, envelope, frame)
        if id_ and not is_id(id_):
            return invalid("an id is a string, an integer or null", frame)
        if bytes(envelope.jsonrpc) not in (b'"2.0"', b""):
            return invalid('"jsonrpc" is not "2.0"', frame, id_)
        if method:
            if method[:1] != b'"':
                return invalid("a method is a string", frame, id_)
            params = bytes(envelope.params)
            if params == b"null":
                params = b""
            if params and params[:1] not in b"{[":
                return invalid("params are an object or an array", frame, id_)
            name = method[1:-1].decode() if b"\\" not in method else _decode_text(method)
            return RequestReceived(id_, name, params) if id_ else NotificationReceived(name, params)
        if bytes(envelope.jsonrpc) and _own_id(id_) in self._unanswered:
            # A null result: JavaScript drops a member that is undefined.
            return self._answered(id_, envelope, frame)
        return invalid("neither a method nor a result nor an error", frame, id_)

    def _answered(self, id_: bytes, envelope: _Envelope, frame: bytes) -> Event:
        number = _own_id(id_)
        if number not in self._unanswered:
            return unanswered(frame)
        self._unanswered.discard(number)
        if bytes(envelope.jsonrpc) not in (b'"2.0"', b""):
            return ResponseReceived(
                number, b"", wire_error(INVALID_REQUEST, '"jsonrpc" is not "2.0"')
            )
        error = bytes(envelope.error)
        if error and error != b"null":
            return ResponseReceived(number, b"", read_error(error))
        return ResponseReceived(number, bytes(envelope.result) or b"null")

    # -- what msgspec refuses, and what is over a limit -----------------------------------

    def _unusual(self, frame: bytes) -> Event:
        """Return the event for a byte order mark, half a surrogate pair, JSON that is no object, or
        no JSON."""
        line = frame.removeprefix(BYTE_ORDER_MARK)
        if line.lstrip()[:1] != b"{":
            return no_object(line)
        if self._halves is None:
            from acphold.rpc.halves import Halves  # rare, and slow to import

            self._halves = Halves()
        whole = self._halves.joined(line)
        try:
            envelope = _decode_envelope(whole)
        except (msgspec.MsgspecError, RecursionError):
            return self._unreadable(line, "not JSON")
        if bytes(envelope.id) not in line:
            return invalid("an id is a string, an integer or null", line)
        return self._classify(envelope, whole)

    def _unreadable(self, frame: bytes, problem: str) -> Event:
        # No tail if the head is the whole line: a broken line may not end like an object.
        ends = Oversize(problem, frame[:HEAD], frame[HEAD:][-TAIL:])
        return self._refused(ends, PARSE_ERROR)

    def _refused(self, line: Oversize, code: int) -> Event:
        """Return the event for a message that is not decoded: it is refused, or fails our call."""
        known = members_at_ends(line.head, line.tail)
        id_ = known.get("id", b"")
        asked = "method" in known or "params" in known
        if not asked and (number := _own_id(id_)) in self._unanswered:
            self._unanswered.discard(number)
            return ResponseReceived(number, b"", wire_error(code, line.problem))
        method, cut = known.get("method", b""), None
        if code == INVALID_REQUEST and not id_ and method[:1] == b'"' and is_id(method):
            params = leading_params(line.head)
            cut = CutNotification(_decode_text(method), line.problem, params, line.tail)
        return malformed(code, line.problem, line.head, id_ if asked and is_id(id_) else b"", cut)

    # -- what is sent ---------------------------------------------------------------------

    def request(self, method: str, params: bytes) -> tuple[int, bytes]:
        """Return a new request: its id, and the line to send."""
        self._last_id += 1
        self._unanswered.add(self._last_id)
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b' % (self._last_id, _encode(method))
        return self._last_id, head + _params(params)

    def forget(self) -> list[int]:
        """Drop all unanswered requests and return their ids: the connection is over."""
        ids = sorted(self._unanswered)
        self._unanswered.clear()
        return ids

    @staticmethod
    def notification(method: str, params: bytes) -> bytes:
        """Return the line of a notification."""
        return b'{"jsonrpc":"2.0","method":%b' % _encode(method) + _params(params)

    @staticmethod
    def result(id_: bytes, result: bytes) -> bytes:
        """Return the line that answers request `id_`."""
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id_, result)

    error = staticmethod(refusal)


def _params(params: bytes) -> bytes:
    return b',"params":%b}\n' % params if params else b"}\n"


def _own_id(id_: bytes) -> int:
    """Return the number of a request of ours; some peers give it back as a string."""
    digits = id_.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0
