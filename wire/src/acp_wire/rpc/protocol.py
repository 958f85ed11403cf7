"""JSON-RPC 2.0 as a pure state machine: bytes in and events out, calls in and bytes out.

`Protocol` never touches a socket and never waits. It knows our unanswered requests, the limits of a
line, and the reply that is owed for malformed input. Its `feed` returns events, in wire order. Ids
and params stay JSON bytes: most of them are only passed on.

A line that is not a message is refused, usually with an error:

    ==========================================  =======  ===================
    the line                                    code     the reply's id
    ==========================================  =======  ===================
    no JSON, or not in UTF-8                    -32700   its id, if certain
    too long, too deep, or of too many parts    -32600   its id, if certain
    an array (ACP has no batches), or a scalar  -32600   null
    an invalid id                               -32600   null
    an object that breaks JSON-RPC              -32600   its id
    a response to no request of ours            none
    ==========================================  =======  ===================

An id is certain if a readable part of the line also has a `method`. Otherwise it may be the id of a
response, which is one of ours; returned to the peer, it would look like one of its requests.

Source: the JSON-RPC 2.0 specification; ACP has no batches and lets an id be null (v1 schema,
`RequestId`).
"""

from __future__ import annotations

import codecs
from math import inf
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_wire.errors import INVALID_REQUEST, PARSE_ERROR, RemoteError
from acp_wire.rpc.framing import HEAD, TAIL, LineBuffer, Oversize
from acp_wire.rpc.wire_errors import WireError, read_error, wire_error
from acp_wire.schema.splice import json_value

if TYPE_CHECKING:
    from acp_wire.rpc.halves import Halves


class RequestReceived(Struct, frozen=True, gc=False):
    """A request of the other side.

    `id` is its JSON bytes, to be given back exactly so; `params` is JSON bytes, b"" if absent.
    """

    id: bytes
    method: str
    params: bytes


class NotificationReceived(Struct, frozen=True, gc=False):
    """A notification of the other side; it gets no answer. `params` as in RequestReceived."""

    method: str
    params: bytes


class ResponseReceived(Struct, frozen=True, gc=False):
    """The answer to a request of ours: `result` as JSON bytes, or `error`."""

    id: int
    result: bytes
    error: WireError | None = None


class CutNotification(Struct, frozen=True, gc=False):
    """The parts that are kept of a notification over a limit.

    `params` has the members of its params that are complete at the beginning, and `tail` is the end
    of the line.
    """

    method: str
    problem: str
    params: dict[str, bytes]
    tail: bytes


class MalformedReceived(Struct, frozen=True, gc=False):
    """A line that is no message. `reply` is the line that is owed for it, b"" for none.

    `asked` is True if the line has an id: then the reply is waited for. `cut` is what is kept of
    it, if it is a notification.
    """

    problem: str
    excerpt: bytes
    reply: bytes = b""
    asked: bool = False
    cut: CutNotification | None = None


Event = RequestReceived | NotificationReceived | ResponseReceived | MalformedReceived


MAX_MESSAGE = 16 * 1024 * 1024
"""Bytes in one message by default; the images of a prompt fit, a runaway does not. All that share a
process wait while one is decoded, committed and passed on."""

MAX_DEPTH = 500
"""Levels of nesting in a message. Every reader has such a limit, at which it fails; this one serves
for all of ours, so that every message that came in can be journalled, folded and replayed as
well."""

ABSENT = Raw()
"""The value of a member that the message does not have."""

EXCERPT = 200
"""Bytes of a malformed line that are kept for the log."""

BEGINNINGS = frozenset(b"%c" % byte for byte in b'["-0123456789tfn')
"""First bytes of JSON that is no object; other text is rejected quickly, for there may be much."""

PART = 256 * 1024
"""Bytes of a line that are decoded at once to check that they are text."""

utf_8_decoder = codecs.getincrementaldecoder("utf-8")


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


def refusal(id_: bytes, error: WireError | RemoteError) -> bytes:
    """Return the line that refuses request `id_`."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (id_, error.raw)


class Protocol:
    """One side of a connection."""

    def __init__(self, limit: int = MAX_MESSAGE, parts: float = inf) -> None:
        self._lines = LineBuffer(limit, MAX_DEPTH, parts)
        self._plain = True
        self._last_id = 0
        self._unanswered: set[int] = set()
        self._halves: Halves | None = None

    # -- what arrives ---------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completes, in wire order."""
        if b"\r" in data:
            # White space in JSON, but programs that get these bytes from us may end a line there:
            # a message could hide others.
            data = data.replace(b"\r", b"\t")
        frames = self._lines.feed(data)
        # One check of the whole read, and of a line that began in earlier ones: msgspec does not
        # check the encoding of members that stay raw.
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
            return self._refuse(frame, INVALID_REQUEST)
        try:
            usual = _decode_usual(frame)
        except (msgspec.MsgspecError, RecursionError):
            return self._other(frame)
        id_, method = usual.id, usual.method
        if method:
            params = bytes(usual.params)
            if params[:1] == b"{":
                if id_ is UNSET:
                    return NotificationReceived(method, params)
                if id_ > 0:  # it is unknown how a zero was written
                    return RequestReceived(b"%d" % id_, method, params)
        elif (
            id_ is not UNSET
            and id_ in self._unanswered
            and usual.params is ABSENT
            and (result := bytes(usual.result))
        ):
            self._unanswered.discard(id_)
            return ResponseReceived(id_, result)
        return self._other(frame)

    def _other(self, frame: bytes) -> Event:
        """Return the event for a frame that is not in the usual form."""
        try:
            envelope = _decode_envelope(frame)
        except (msgspec.MsgspecError, RecursionError):
            pass
        else:
            return self._classify(envelope, frame)
        # A byte order mark, half a surrogate pair, JSON that is no object, or no JSON.
        line = frame.removeprefix(codecs.BOM_UTF8)  # a reader may skip it (RFC 8259, 8.1)
        if line.lstrip()[:1] != b"{":
            return no_object(line)
        if self._halves is None:
            from acp_wire.rpc.halves import Halves  # rare, and slow to import

            self._halves = Halves()
        whole = self._halves.join(line)
        try:
            envelope = _decode_envelope(whole)
        except (msgspec.MsgspecError, RecursionError):
            return self._unreadable(line, "not JSON")
        if bytes(envelope.id) not in line:
            return invalid("an id is a string, an integer or null", line)
        return self._classify(envelope, whole)

    def _classify(self, envelope: _Envelope, frame: bytes) -> Event:
        id_, method = bytes(envelope.id), bytes(envelope.method)
        if not method and (bytes(envelope.error) or bytes(envelope.result)):
            return self._receive_response(id_, envelope, frame)
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
            return self._receive_response(id_, envelope, frame)
        return invalid("neither a method nor a result nor an error", frame, id_)

    def _receive_response(self, id_: bytes, envelope: _Envelope, frame: bytes) -> Event:
        number = _own_id(id_)
        if number not in self._unanswered:
            # A reply to it would start a loop, or look like the answer to a request of theirs.
            return MalformedReceived("a response to no request of ours", frame[:EXCERPT])
        self._unanswered.discard(number)
        if bytes(envelope.jsonrpc) not in (b'"2.0"', b""):
            return ResponseReceived(
                number, b"", wire_error(INVALID_REQUEST, '"jsonrpc" is not "2.0"')
            )
        error = bytes(envelope.error)
        if error and error != b"null":
            return ResponseReceived(number, b"", read_error(error))
        return ResponseReceived(number, bytes(envelope.result) or b"null")

    # -- lines that msgspec refuses, or that are over a limit -----------------------------

    def _unreadable(self, frame: bytes, problem: str) -> Event:
        # No tail if the head is the whole line: a broken line may not end like an object.
        ends = Oversize(problem, frame[:HEAD], frame[HEAD:][-TAIL:])
        return self._refuse(ends, PARSE_ERROR)

    def _refuse(self, line: Oversize, code: int) -> Event:
        """Return the event for a message that is not decoded: it is refused, or fails our call."""
        known = line.members
        id_ = known.get("id", b"")
        if "method" not in known and "params" not in known:  # perhaps a response
            if (number := _own_id(id_)) not in self._unanswered:
                return bad_line(code, line.problem, line.head)
            self._unanswered.discard(number)
            return ResponseReceived(number, b"", wire_error(code, line.problem))
        method, cut = known.get("method", b""), None
        if code == INVALID_REQUEST and not id_ and method[:1] == b'"' and is_id(method):
            from acp_wire.rpc.ends import leading_params  # rare, and slow to import

            params = leading_params(line.head)
            cut = CutNotification(_decode_text(method), line.problem, params, line.tail)
        return bad_line(code, line.problem, line.head, id_ if is_id(id_) else b"", cut)

    # -- messages to send -----------------------------------------------------------------

    def request(self, method: str, params: bytes) -> tuple[int, bytes]:
        """Return a new request: its id, and the line to send."""
        self._last_id += 1
        self._unanswered.add(self._last_id)
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b' % (self._last_id, _encode(method))
        return self._last_id, _line(head, params)

    def forget(self) -> list[int]:
        """Drop all unanswered requests and return their ids: the connection is over."""
        ids = sorted(self._unanswered)
        self._unanswered.clear()
        return ids

    @staticmethod
    def notification(method: str, params: bytes) -> bytes:
        """Return the line of a notification."""
        return _line(b'{"jsonrpc":"2.0","method":%b' % _encode(method), params)

    @staticmethod
    def result(id_: bytes, result: bytes) -> bytes:
        """Return the line that answers request `id_`."""
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id_, result)


# -- malformed lines -------------------------------------------------------------------------


def bad_line(
    code: int, problem: str, frame: bytes, id_: bytes = b"", cut: CutNotification | None = None
) -> MalformedReceived:
    """Return the event for a line, with the reply that is owed for it."""
    reply = refusal(id_ or b"null", wire_error(code, problem))
    return MalformedReceived(problem, frame[:EXCERPT], reply, asked=bool(id_), cut=cut)


def invalid(problem: str, frame: bytes, id_: bytes = b"") -> MalformedReceived:
    """Return the event for JSON that breaks JSON-RPC."""
    return bad_line(INVALID_REQUEST, problem, frame, id_)


def no_object(frame: bytes) -> MalformedReceived:
    """Return the event for a line that does not begin like an object."""
    first = frame.lstrip()[:1]
    if first not in BEGINNINGS:
        return bad_line(PARSE_ERROR, "not JSON", frame)
    try:
        msgspec.json.decode(frame, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return bad_line(PARSE_ERROR, "not JSON", frame)
    return invalid("a batch; ACP has none" if first == b"[" else "not an object", frame)


def is_id(raw: bytes) -> bool:
    """Return True if this is a JSON string, an integer or null: a valid id."""
    if raw[:1] != b'"':
        digits = raw.removeprefix(b"-")
        return raw == b"null" or (digits.isdigit() and (digits[:1] != b"0" or digits == b"0"))
    return json_value(raw, str) is not None


def is_utf8(frame: bytes) -> bool:
    """Return True if the line is valid UTF-8."""
    try:
        if len(frame) <= PART:
            frame.decode()
            return True
        # In parts: the text of a long line takes up to four times as much memory as the line.
        decode = utf_8_decoder().decode
        for start in range(0, len(frame), PART):
            decode(frame[start : start + PART])
        decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _line(head: bytes, params: bytes) -> bytes:
    """Return the line of a message; long params are copied once."""
    return b"".join((head, b',"params":', params, b"}\n")) if params else head + b"}\n"


def _own_id(id_: bytes) -> int:
    """Return the number of a request of ours; some peers give it back as a string."""
    digits = id_.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) < 20 else 0
