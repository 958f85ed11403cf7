"""The record of a connection, line by line in both directions, and its trace as JSON lines.

Cases and observers ask the record who sent what, when, and in answer to what. A line of the trace:

    {"at": 0.214, "connection": 1, "name": "main", "from": "agent", "message": {"jsonrpc": …}}

`at` counts seconds from the first line, `from` is `client`, `agent` or `stderr`. Stderr, and lines
that are not JSON objects, have `text` in place of `message`. Nothing is taken out.
"""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from acp_check import bounds
from acp_wire.errors import INTERNAL_ERROR, INVALID_PARAMS, AcpError

Json: TypeAlias = dict[str, Any]
"""A JSON object as received: a checked message may be anything, so it has no closer type."""

Side: TypeAlias = Literal["client", "agent"]


PART: ContextVar[str] = ContextVar("part", default="")
"""The part of a check that is played now, see `stage`; "" for steps that all parts share."""

NOT_UTF_8 = "it is not UTF-8"


class WireLine(msgspec.Struct, frozen=True, eq=False):
    """One line of a connection.

    `problem` says what is wrong with it; `message` is empty if it is no object, `method` None for a
    response. `number` counts the lines of its record, `at` is the loop's time in seconds. `params`
    are empty if they are no object, `update` is that of a `session/update`, and `session_id` the
    session that the line is about: every rule asks for these, of every line. `part` sent it.
    """

    number: int
    at: float
    by: Side
    raw: bytes
    message: Json
    method: str | None = None
    problem: str = ""
    params: Json = {}
    update: Json = {}
    session_id: str | None = None
    part: str = ""

    @property
    def arrow(self) -> str:
        return "→" if self.by == "client" else "←"

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "backslashreplace")

    @property
    def words(self) -> str:
        """The message as text, in which no ASCII letter is escaped: on the wire any may be."""
        return msgspec.json.encode(self.message).decode()

    @property
    def is_request(self) -> bool:
        return self.method is not None and "id" in self.message

    @property
    def is_response(self) -> bool:
        return bool(self.message) and self.method is None

    @property
    def error(self) -> Json:
        """The error in it; empty if there is none, and if it is no object."""
        return _object(self.message.get("error"))

    @property
    def update_kind(self) -> str:
        """The kind of its update, "" if it has none."""
        return str(self.update.get("sessionUpdate", ""))


REFUSAL = re.compile(rb"HTTP (\d{3}) for (.+?):")
"""A request that HTTP refused: its status and its id, see `transports.http_client`."""


BAD_REQUEST = 400


def line(number: int, at: float, by: Side, raw: bytes) -> WireLine:
    """Return these bytes as a line."""
    if (refused := REFUSAL.match(raw)) is not None:
        status = int(refused[1])
        code = INVALID_PARAMS if status == BAD_REQUEST else INTERNAL_ERROR
        error = {"code": code, "message": f"HTTP {status}"}
        message = {"jsonrpc": "2.0", "id": msgspec.json.decode(refused[2]), "error": error}
        return WireLine(number, at, by, raw, message)
    text = raw.decode("utf-8", "replace")
    if not text.strip():
        return WireLine(number, at, by, raw, {}, problem="it is blank")
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return WireLine(number, at, by, raw, {}, problem="it is not JSON")
    if not isinstance(message, dict):
        return WireLine(number, at, by, raw, {}, problem="it is not a JSON object")
    # It is decoded all the same, so that the rest of the agent can be checked too.
    method = message.get("method")
    known = method if isinstance(method, str) else None
    problem = "" if text.encode() == raw else NOT_UTF_8
    params = _object(message.get("params"))
    update = _object(params.get("update")) if known == "session/update" else {}
    session = params.get("sessionId")
    session_id = session if isinstance(session, str) else None
    part = PART.get() if by == "client" else ""
    return WireLine(number, at, by, raw, message, known, problem, params, update, session_id, part)


def _object(value: object) -> Json:
    """Return the value, or an empty object if it is none."""
    return value if isinstance(value, dict) else {}


class Exchange(msgspec.Struct, eq=False):
    """A request and its answer; None until there is one."""

    asked: WireLine
    answer: WireLine | None = None

    @property
    def result(self) -> Json:
        """The result; empty if it is no object, for an error, and without an answer."""
        return result_of(self.answer) if self.answer else {}

    @property
    def error(self) -> Json:
        """The error; empty if it is no object, for a result, and without an answer."""
        return self.answer.error if self.answer else {}

    @property
    def is_refused(self) -> bool:
        """True if it was answered with an error, of whatever form."""
        return self.answer is not None and "error" in self.answer.message

    @property
    def session_id(self) -> object:
        """The session that the request names, otherwise the one in the answer."""
        return self.asked.session_id or self.result.get("sessionId")

    @property
    def lines(self) -> tuple[WireLine, ...]:
        return (self.asked, self.answer) if self.answer else (self.asked,)


class RefusalError(AcpError):
    """A request is answered with this error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class StderrLine(msgspec.Struct, frozen=True):
    """A line of an agent's stderr; `at` is the loop's time in seconds."""

    at: float
    text: str


class StderrLog:
    """An agent's stderr in lines, with the time at which each arrived."""

    def __init__(self) -> None:
        self._lines: deque[StderrLine] = deque()
        self._size = 0
        self._rest = b""
        self._at = 0.0

    def take(self, at: float, data: bytes) -> None:
        """Add what was read."""
        self._at = at
        *ended, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > bounds.STDERR_LINE_BYTES:
            ended.append(self._rest[: bounds.STDERR_LINE_BYTES])
            self._rest = self._rest[bounds.STDERR_LINE_BYTES :]
        for piece in ended:
            self._lines.append(_stderr_line(at, piece))
            self._size += len(self._lines[-1].text)
        while self._size > bounds.STDERR_CHARS:
            self._size -= len(self._lines.popleft().text)

    def lines(self) -> list[StderrLine]:
        """Return the lines so far; the last one may have no end yet."""
        rest = [_stderr_line(self._at, self._rest)] if self._rest else []
        return [*self._lines, *rest]

    def between(self, first: float, last: float) -> list[str]:
        """Return the lines that arrived after `first`, until `last`."""
        return [line.text for line in self.lines() if first < line.at <= last]


def _stderr_line(at: float, piece: bytes) -> StderrLine:
    return StderrLine(at, piece.decode("utf-8", "replace"))


class Record:
    """One connection, from its first line on.

    `offers` are the client's capabilities, `part` has opened it; `ended` says how the agent ended
    by itself, "" while it runs and if it was asked to; `broken` is set once it was sent something
    that is no message. `awaited` are the requests that were not answered in time, `stderr` is the
    agent's, from its start on.
    """

    def __init__(self, name: str, offers: Json, part: str = "") -> None:
        self.name = name
        self.offers = offers
        self.part = part
        self.lines: list[WireLine] = []
        self.stderr = StderrLog()
        self.ended = ""
        self.broken = False
        self.awaited: list[WireLine] = []
        self._views: dict[frozenset[str], tuple[object, Record | None]] = {}

    def add(self, at: float, by: Side, raw: bytes) -> WireLine:
        """Append a line and return it."""
        found = line(len(self.lines), at, by, raw)
        self.lines.append(found)
        return found

    @property
    def is_version_one(self) -> bool:
        """False if the agent chose another version, which has messages of its own."""
        answers = [it.result for it in self.exchanges("client", "initialize")]
        versions = [answer.get("protocolVersion") for answer in answers]
        return all(version == 1 for version in versions if isinstance(version, int))

    def by(self, side: Side) -> Iterator[WireLine]:
        """Yield all lines of one side."""
        return (line for line in self.lines if line.by == side)

    def since(self, number: int) -> list[WireLine]:
        """Return the lines from this one on."""
        return self.lines[bisect_left(self.lines, number, key=lambda line: line.number) :]

    def view(self, parts: Collection[str]) -> Record | None:
        """Return the connection with the lines of these parts alone; None if they did not use it.

        A line is of the part that sent it, or sent the request that it answers; the agent's others
        are of the part that used their session last, and without a session of the one that sent
        something last. Lines of no part are seen by all.
        """
        # Hundreds of rules look at the same few: while nothing is added, they share a view.
        key = frozenset(parts)
        state = len(self.lines), len(self.awaited), self.ended, self.broken
        kept, found = self._views.get(key, (None, None))
        if kept != state:
            part_of_each = self._part_of_each()
            found = None
            if self.part in key or not key.isdisjoint(part_of_each):
                found = Record(self.name, self.offers, self.part)
                found.stderr, found.ended, found.broken = self.stderr, self.ended, self.broken
                lines = zip(self.lines, part_of_each, strict=True)
                found.lines = [line for line, part in lines if not part or part in key]
                found.awaited = [line for line in self.awaited if not line.part or line.part in key]
            self._views[key] = state, found
        return found

    def _part_of_each(self) -> list[str]:
        """Return the part of each line."""
        found: list[str] = []
        last = self.part
        asked: dict[tuple[Side, str], str] = {}
        sessions: dict[object, str] = {}
        for line in self.lines:
            part = last
            if line.is_response:
                asker: Side = "client" if line.by == "agent" else "agent"
                part = asked.get((asker, loose_id(line)), last)
                if line.by == "agent":
                    sessions.setdefault(result_of(line).get("sessionId"), part)
            elif line.by == "client":
                part = last = line.part
                if line.session_id is not None:
                    sessions[line.session_id] = part
            else:
                part = sessions.get(line.session_id, last)
            if line.is_request:
                asked[line.by, loose_id(line)] = part
            found.append(part)
        return found

    def updates(self, session_id: str | None = None, *, since: int = 0) -> Iterator[WireLine]:
        """Yield the agent's updates, of one session if given, from line `since` on."""
        for found in self.since(since):
            is_update = found.by == "agent" and found.method == "session/update"
            if is_update and session_id in (None, found.session_id):
                yield found

    def stray_answers(self, since: int) -> list[WireLine]:
        """Return the agent's responses to no request, from line `since` on.

        A response whose id only has the wrong type is not among them, nor one without an id if a
        request was not answered.
        """
        asked = {loose_id(line) for line in self.by("client") if line.is_request}
        missed = [it for it in self.exchanges("client") if it.answer is None]
        if any(it.asked.number >= since for it in missed):
            asked.add("None")
        answers = (it for it in self.since(since) if it.is_response and it.by == "agent")
        return [it for it in answers if loose_id(it) not in asked]

    def calls(self, by: Side, *methods: str) -> list[WireLine]:
        """Return the requests and notifications of these methods."""
        return [line for line in self.by(by) if line.method in methods]

    def exchanges_by_answer(self, by: Side, *methods: str) -> dict[int, Exchange]:
        """Return the exchanges that were answered, by the number of the answer's line."""
        return {it.answer.number: it for it in self.exchanges(by, *methods) if it.answer}

    def exchanges(self, by: Side, *methods: str) -> list[Exchange]:
        """Return the requests of one side, in order, each with the first answer behind it.

        An id may be used again once it is answered.
        """
        answers: dict[bytes | str, list[WireLine]] = {}
        for line in self.by("agent" if by == "client" else "client"):
            if line.is_response:
                answers.setdefault(id_of(line), []).append(line)
                answers.setdefault(loose_id(line), []).append(line)
        return [
            Exchange(it, _behind(it, answers, id_of) or _behind(it, answers, loose_id))
            for it in self.by(by)
            if it.is_request and (not methods or it.method in methods)
        ]


def _behind(
    request: WireLine,
    answers: Mapping[bytes | str, list[WireLine]],
    form: Callable[[WireLine], bytes | str],
) -> WireLine | None:
    """Return the first answer behind a request that has its id in this form."""
    found = answers.get(form(request), [])
    place = bisect_left(found, request.number, key=lambda line: line.number)
    return found[place] if place < len(found) else None


_MIDNIGHTS: WeakKeyDictionary[asyncio.AbstractEventLoop, datetime] = WeakKeyDictionary()


def time_of_day(loop: asyncio.AbstractEventLoop) -> datetime:
    """Return the time by the loop's clock: a clock that is set meanwhile does not change it."""
    if loop not in _MIDNIGHTS:
        _MIDNIGHTS[loop] = datetime.now(UTC) - timedelta(seconds=loop.time())
    return _MIDNIGHTS[loop] + timedelta(seconds=loop.time())


def id_of(line: WireLine) -> bytes:
    """Return the id as JSON, b"" without one; 7, 7.0 and "7" are three different ids."""
    id = line.message.get("id", msgspec.UNSET)
    return b"" if id is msgspec.UNSET else msgspec.json.encode(id)


def loose_id(line: WireLine) -> str:
    """Return a loose form of a line's id: the same for 7, 7.0 and "7"."""
    id = line.message.get("id")
    return str(int(id) if isinstance(id, float) and id.is_integer() else id)


def messages_of_array(line: WireLine) -> list[object]:
    """Return the messages of a line that is an array of them; none if it is anything else."""
    try:
        return msgspec.json.decode(line.raw, type=list[object]) if line.problem else []
    except (msgspec.DecodeError, RecursionError):
        return []


def result_of(answer: WireLine) -> Json:
    """Return the result of a response; empty if it is no object, and for an error."""
    return _object(answer.message.get("result"))


def objects(value: object) -> list[Json]:
    """Return the objects in an array; none if it is no array."""
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


def twice(ids: Iterable[object]) -> object:
    """Return the first value that occurs twice, or None."""
    return next((id for id, count in Counter(ids).items() if count > 1), None)


def sessions_in(exchange: Exchange) -> list[Json]:
    """Return the sessions in the answer to a `session/list`."""
    return objects(exchange.result.get("sessions"))


def trace(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines, each with its end."""
    found: list[tuple[float, int, int, str, str, str]] = []
    for number, record in enumerate(records, 1):
        lines: list[tuple[float, str, str, bool]] = [
            (line.at, line.by, line.text, not line.problem) for line in record.lines
        ]
        lines += [(line.at, "stderr", line.text, False) for line in record.stderr.lines()]
        lines.sort(key=lambda line: line[0])
        for place, (at, by, text, is_message) in enumerate(lines):
            found.append((at, number, place, record.name, by, _body(text, is_message)))
    found.sort()
    first = found[0][0] if found else 0.0
    size = 0
    for index, (at, number, _, name, by, body) in enumerate(found):
        head = {"at": round(at - first, 4), "connection": number, "name": name, "from": by}
        line = f"{json.dumps(head, ensure_ascii=False)[:-1]}, {body}}}\n"
        size += len(line)
        if size > bounds.TRACE_CHARS:
            yield json.dumps({"leftOut": len(found) - index}) + "\n"
            return
        yield line


def _body(text: str, is_message: bool) -> str:
    if len(text) > bounds.TRACE_MESSAGE_CHARS:
        cut = json.dumps(text[: bounds.TRACE_MESSAGE_CHARS], ensure_ascii=False)
        return f'"text": {cut}, "characters": {len(text)}'
    if is_message:
        if "\n" in text:  # on a WebSocket a message may have several lines
            text = json.dumps(json.loads(text), ensure_ascii=False)
        return f'"message": {text.strip()}'
    return f'"text": {json.dumps(text, ensure_ascii=False)}'


def in_time(records: Iterable[Record]) -> list[WireLine]:
    """Return the lines of several connections, in the order in which they were seen."""
    return sorted((line for record in records for line in record.lines), key=lambda it: it.at)
