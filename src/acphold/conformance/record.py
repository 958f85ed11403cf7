"""Everything sent over a connection, line by line in both directions, byte for byte.

Cases and observers ask it who sent what, when, and in answer to what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]
"""A JSON object as received: a checked message may be anything, so it has no closer type."""

Side: TypeAlias = Literal["client", "agent"]


NOT_UTF_8 = "it is not UTF-8"


class Line(msgspec.Struct, frozen=True, eq=False):
    """One line of a connection.

    `problem` says what is wrong with it; `message` is empty if it is no object, `method` None for a
    response. `number` counts the lines of its record, `at` is the loop's time in seconds.
    """

    number: int
    at: float
    by: Side
    raw: bytes
    message: Json
    method: str | None = None
    problem: str = ""

    @property
    def arrow(self) -> str:
        return "→" if self.by == "client" else "←"

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "backslashreplace")

    @property
    def params(self) -> Json:
        """Its params; empty if they are no object."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def is_request(self) -> bool:
        return self.method is not None and "id" in self.message

    @property
    def is_response(self) -> bool:
        return bool(self.message) and self.method is None

    @property
    def update(self) -> Json:
        """The `update` of a `session/update`; empty for other messages."""
        update = self.params.get("update") if self.method == "session/update" else None
        return update if isinstance(update, dict) else {}

    @property
    def update_kind(self) -> str:
        """The kind of its update, "" if it has none."""
        return str(self.update.get("sessionUpdate", ""))

    @property
    def session_id(self) -> str | None:
        """The session that it is about."""
        found = self.params.get("sessionId")
        return found if isinstance(found, str) else None


def line(number: int, at: float, by: Side, raw: bytes) -> Line:
    """Return these bytes as a line."""
    text = raw.decode("utf-8", "replace")
    if not text.strip():
        return Line(number, at, by, raw, {}, problem="it is blank")
    try:
        message = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Line(number, at, by, raw, {}, problem="it is not JSON")
    if not isinstance(message, dict):
        return Line(number, at, by, raw, {}, problem="it is no JSON object")
    # It is decoded all the same, so that the rest of the agent can be checked too.
    method = message.get("method")
    known = method if isinstance(method, str) else None
    return Line(number, at, by, raw, message, known, "" if text.encode() == raw else NOT_UTF_8)


class Exchange(msgspec.Struct, frozen=True):
    """A request and its answer; None until there is one."""

    request: Line
    answer: Line | None

    @property
    def result(self) -> Json:
        """The result; empty if it is no object, for an error, and without an answer."""
        return result_of(self.answer) if self.answer else {}

    @property
    def lines(self) -> tuple[Line, ...]:
        return (self.request, self.answer) if self.answer else (self.request,)


class Record:
    """One connection, from its first line on.

    `offers` are the client's capabilities; `ended` says how the agent ended by itself, "" while it
    runs and if it was asked to; `broken` is set once it was sent something that is no message.
    """

    def __init__(self, name: str, offers: Json) -> None:
        self.name = name
        self.offers = offers
        self.lines: list[Line] = []
        self.ended = ""
        self.broken = False
        self._exchanges: dict[tuple[Side, tuple[str, ...], int], list[Exchange]] = {}

    def add(self, at: float, by: Side, raw: bytes) -> Line:
        """Append a line and return it."""
        found = line(len(self.lines), at, by, raw)
        self.lines.append(found)
        return found

    def by(self, side: Side) -> Iterator[Line]:
        """Yield all lines of one side."""
        return (line for line in self.lines if line.by == side)

    def updates(self, session_id: str | None = None, *, since: int = 0) -> Iterator[Line]:
        """Yield the agent's updates, of one session if given, from line `since` on."""
        for found in self.lines[since:]:
            is_update = found.by == "agent" and found.method == "session/update"
            if is_update and session_id in (None, found.session_id):
                yield found

    def unasked(self, since: int) -> Line | None:
        """Return the agent's first response to no request, from line `since` on."""
        return next(iter(self.all_unasked(since)), None)

    def all_unasked(self, since: int) -> list[Line]:
        """Return all of these; a response whose id only has the wrong type is not among them."""
        asked = {likeness(line) for line in self.by("client") if line.is_request}
        answers = (it for it in self.lines[since:] if it.is_response and it.by == "agent")
        return [it for it in answers if likeness(it) not in asked]

    def exchanges(self, by: Side, *methods: str) -> list[Exchange]:
        """Return the requests of one side, in order, each with its first answer."""
        # Every rule asks for these, mostly after the last line: so they are cached.
        key = by, methods, len(self.lines)
        found = self._exchanges.get(key)
        if found is None:
            found = self._exchanges[key] = self._found_exchanges(by, methods)
        return found

    def _found_exchanges(self, by: Side, methods: tuple[str, ...]) -> list[Exchange]:
        other: Side = "agent" if by == "client" else "client"
        answers: dict[bytes | str, Line] = {}
        for found in self.by(other):
            if found.is_response:
                answers.setdefault(id_of(found), found)
                answers.setdefault(likeness(found), found)
        return [
            Exchange(found, answers.get(id_of(found)) or answers.get(likeness(found)))
            for found in self.by(by)
            if found.is_request and (not methods or found.method in methods)
        ]


def id_of(line: Line) -> bytes:
    """Return the id as JSON, b"" without one; 7, 7.0 and "7" are three different ids."""
    id = line.message.get("id", msgspec.UNSET)
    return b"" if id is msgspec.UNSET else msgspec.json.encode(id)


def likeness(line: Line) -> str:
    """Return a loose form of a line's id: the same for 7, 7.0 and "7"."""
    id = line.message.get("id")
    return str(int(id) if isinstance(id, float) and id.is_integer() else id)


def result_of(answer: Line) -> Json:
    """Return the result of a response; empty if it is no object, and for an error."""
    result = answer.message.get("result")
    return result if isinstance(result, dict) else {}


def objects(value: object) -> list[Json]:
    """Return the objects in an array; none if it is no array."""
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


def twice(ids: Iterable[object]) -> object:
    """Return the first value that occurs twice, or None."""
    return next((id for id, count in Counter(ids).items() if count > 1), None)


def sessions_in(exchange: Exchange) -> list[Json]:
    """Return the sessions in the answer to a `session/list`."""
    return objects(exchange.result.get("sessions"))


def said(records: Sequence[Record], by: Side) -> list[Line]:
    """Return all lines of one side."""
    return [line for record in records for line in record.by(by)]


def calls(records: Sequence[Record], by: Side, *methods: str) -> Iterator[tuple[Record, Line]]:
    """Yield each request and notification of these methods."""
    for record in records:
        for line in record.by(by):
            if line.method in methods:
                yield record, line
