"""A server of Streamable HTTP that keeps every rule, with the exemplar behind each connection.

Its faults are a table: each is this server with one thing done in another way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from acp_check.errands import Memory
from acp_check.exemplar import Exemplar
from acp_wire.tasks import TaskSet
from acp_wire.transports.streams import memory_pair

Json = dict[str, Any]
Head = dict[str, str]

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
REASONS = {200: "OK", 202: "Accepted", 404: "Not Found"}


class HttpLine:
    """One connection: its agent, and the messages for each stream; "" is the connection's."""

    def __init__(self, id: str, server: FairServer) -> None:
        self.id = id
        self.server = server
        self.here, there = memory_pair()
        self.sessions: set[str] = set()
        self.asked: dict[Any, tuple[str, str]] = {}
        self.waiting: dict[str, list[bytes]] = {}
        self.writers: dict[str, asyncio.StreamWriter] = {}
        self.answered: dict[Any, asyncio.Future[bytes]] = {}
        self.is_over = False
        server.tasks.start(Exemplar(there, server.memory).serve(), "agent")
        server.tasks.start(self._read(), "read the agent")

    async def _read(self) -> None:
        unread = b""
        while chunk := await self.here.receive():
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                self._told(line, json.loads(line))

    def _told(self, raw: bytes, message: Json) -> None:
        id = message.get("id")
        if "method" not in message and (future := self.answered.pop(id, None)) is not None:
            future.set_result(raw)
            return
        method, session_id = self.asked.get(id, ("", "")) if "method" not in message else ("", "")
        if "method" in message:
            session_id = message["params"].get("sessionId", "")
        if method == "session/new":
            self.sessions.add(message.get("result", {}).get("sessionId", ""))
        stream = "" if method in ("session/new", "session/load") else session_id
        for name in self.server.streams_for(self, stream, method, message):
            self.send(name, self.server.event(raw))

    def send(self, stream: str, event: bytes) -> None:
        writer = self.writers.get(stream)
        if writer is None:
            self.waiting.setdefault(stream, []).append(event)
        else:
            writer.write(event)

    def end(self) -> None:
        self.is_over = True
        for writer in self.writers.values():
            writer.close()
        self.server.tasks.start(self.here.aclose(), "end the agent")


class FairServer:
    """The server; each behaviour that a fault changes is a method of its own."""

    def __init__(self) -> None:
        self.lines: dict[str, HttpLine] = {}
        self.memory = Memory()
        self.tasks = TaskSet()
        self.made = 0

    # -- behaviours that a fault changes -----------------------------------------------------

    def new_id(self) -> str:
        self.made += 1
        return f"connection-{self.made}"

    def streams_for(self, line: HttpLine, stream: str, method: str, message: Json) -> list[str]:
        """The streams on which a message of the agent goes; `method` is the answered one."""
        return [stream]

    def event(self, raw: bytes) -> bytes:
        return b"data: %b\n\n" % raw

    def refusal(self, method: str, head: Head, body: bytes) -> int | None:
        """The status with which a request is refused, or None."""
        if method == "POST" and not head.get("content-type", "").startswith("application/json"):
            return 415
        if method == "GET" and "text/event-stream" not in head.get("accept", ""):
            return 406
        message: Any = None
        if method == "POST":
            try:
                message = json.loads(body)
            except ValueError:
                return 400
            if isinstance(message, list):
                return 501
            if message.get("method") == "initialize":
                return None
        if "acp-connection-id" not in head:
            return 400
        line = self.lines.get(head["acp-connection-id"])
        if line is None or line.is_over:
            return 404
        session_id = head.get("acp-session-id")
        if method == "GET" and session_id and not self.knows(line, session_id):
            return 404
        needs = message and message.get("method") in ("session/prompt", "session/cancel", None)
        return 400 if needs and session_id is None else None

    def knows(self, line: HttpLine, session_id: str) -> bool:
        return session_id in self.memory.sessions

    def accepted(self, message: Json) -> tuple[int, bytes]:
        return 202, b""

    async def before_accepting(self, line: HttpLine, message: Json) -> None:
        return None

    def hello(self, line: HttpLine, answer: bytes) -> tuple[int, Head, bytes]:
        return 200, {**JSON, "Acp-Connection-Id": line.id}, answer

    def ended(self, line: HttpLine) -> int:
        line.end()
        return 202

    def leaves_behind(self, method: str) -> bool:
        """True if the TCP connection is closed behind such a request, as the next one comes."""
        return False

    # -- HTTP --------------------------------------------------------------------------------

    def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.start(self.attend(reader, writer), "attend")

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_left = False
        try:
            while True:
                first = (await reader.readuntil(b"\r\n\r\n")).decode()
                request, *fields = first.strip().split("\r\n")
                method = request.split(" ")[0]
                head = {n.lower(): v.strip() for n, _, v in (it.partition(":") for it in fields)}
                body = await reader.readexactly(int(head.get("content-length", 0)))
                if is_left or not await self._serve(writer, method, head, body):
                    return
                is_left = self.leaves_behind(method)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _serve(
        self, writer: asyncio.StreamWriter, method: str, head: Head, body: bytes
    ) -> bool:
        """Answer a request; False if it was a stream."""
        refused = self.refusal(method, head, body)
        if refused is not None:
            _answer(writer, refused, {}, b"")
            return True
        line = self.lines.get(head.get("acp-connection-id", ""))
        if method == "GET" and line is not None:
            name = head.get("acp-session-id", "")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for event in line.waiting.pop(name, []):
                writer.write(event)
            line.writers[name] = writer
            await writer.wait_closed()
            return False
        if method == "DELETE" and line is not None:
            _answer(writer, self.ended(line), {}, b"")
            return True
        message = json.loads(body)
        if line is None:
            id = self.new_id()
            line = self.lines[id] = HttpLine(id, self)
            answered = line.answered[message["id"]] = asyncio.get_running_loop().create_future()
            line.here.send(body + b"\n")
            _answer(writer, *self.hello(line, await answered))
            return True
        if "method" in message and "id" in message:
            session_id = message.get("params", {}).get("sessionId", "")
            line.asked[message["id"]] = message["method"], session_id
        line.here.send(body + b"\n")
        await self.before_accepting(line, message)
        status, said = self.accepted(message)
        _answer(writer, status, {}, said)
        return True


def _answer(writer: asyncio.StreamWriter, status: int, head: Head, body: bytes) -> None:
    fields = {"Content-Length": str(len(body)), **head}
    told = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {status} {REASONS.get(status, 'No')}\r\n{told}\r\n".encode() + body)


@asynccontextmanager
async def http_server(server: FairServer) -> AsyncIterator[str]:
    """Serve for the block; the URL."""
    listening = await asyncio.start_server(server.come, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/acp?transport=http"
    finally:
        for line in server.lines.values():
            line.end()
        listening.close()
        await server.tasks.aclose()


FAULTS: dict[str, Callable[[], FairServer]] = {}
"""By the id of the rule that is broken; `:` and a word stand behind it where there are several."""


def _breaks(name: str, **changed: Callable[..., Any]) -> None:
    """A server with other behaviours."""
    FAULTS[name] = type("Faulty", (FairServer,), changed)


def _is(message: Json, method: str) -> bool:
    return bool(message.get("method") == method)


def _routes(name: str, changed: Callable[[HttpLine, str, str, Json], list[str] | None]) -> None:
    """Messages go to these streams instead; None leaves them."""

    def streams(_: object, line: HttpLine, stream: str, method: str, message: Json) -> list[str]:
        found = changed(line, stream, method, message)
        return [stream] if found is None else found

    _breaks(name, streams_for=streams)


_routes("http.session-stream", lambda _, s, m, it: [""] if m == "session/prompt" else None)
_routes(
    "http.session-stream:updates", lambda _, s, m, it: [""] if _is(it, "session/update") else None
)
_routes(
    "http.permission", lambda _, s, m, it: [""] if "permission" in str(it.get("method")) else None
)
_routes("http.own-session", lambda line, s, m, it: [min(line.sessions)] if s else None)
_routes("http.once", lambda _, s, m, it: ["", s] if m == "session/prompt" else None)
_routes("http.load-answer", lambda _, s, m, it: ["session-1"] if m == "session/load" else None)
_routes(
    "http.replay",
    lambda line, s, m, it: [""] if _is(it, "session/update") and s not in line.sessions else None,
)
_routes(
    "http.new-answer",
    lambda line, s, m, it: (
        [min(line.sessions)] if m == "session/new" and len(line.sessions) > 1 else None
    ),
)


def _statuses(name: str, changed: Callable[[str, Head, Any, int | None], int | None]) -> None:
    """Requests are refused with another status, or not at all."""

    def refusal(server: FairServer, method: str, head: Head, body: bytes) -> int | None:
        return changed(method, head, body, FairServer.refusal(server, method, head, body))

    _breaks(name, refusal=refusal)


_statuses("http.unknown-connection", lambda m, h, b, status: 400 if status == 404 else status)
_statuses("http.batch", lambda m, h, b, status: 400 if status == 501 else status)
_statuses("http.accept", lambda m, h, b, status: 400 if status == 406 else status)
_statuses("http.content-type", lambda m, h, b, status: 400 if status == 415 else status)
_statuses(
    "http.media-types",
    lambda m, h, b, status: 415 if "charset" in h.get("content-type", "") else status,
)
_statuses("http.not-json", lambda m, h, b, status: 500 if b == b"{check" else status)
_statuses(
    "http.no-connection", lambda m, h, b, status: 404 if status == 400 and m == "DELETE" else status
)


def _takes_nameless(name: str, kind: bytes) -> None:
    """A message of this kind is taken without the header of its session."""

    def changed(method: str, head: Head, body: bytes, status: int | None) -> int | None:
        is_ours = status == 400 and kind in body and "acp-connection-id" in head
        return None if is_ours else status

    _statuses(name, changed)


_takes_nameless("http.session-header", b"session/prompt")
_takes_nameless("http.cancel-header", b"session/cancel")
_takes_nameless("http.response-header", b'"outcome"')

_breaks("http.unknown-session", knows=lambda *_: True)
_breaks("http.connection-ids", new_id=lambda _: "the-only-one")
_breaks("http.accepted", accepted=lambda *_: (202, b'{"accepted":true}'))
_breaks(
    "http.accepted:status",
    accepted=lambda _, it: (200 if _is(it, "check/no_such_method") else 202, b""),
)
_breaks("http.response", accepted=lambda _, it: (202 if "method" in it else 204, b""))
_breaks("http.cancel", accepted=lambda _, it: (202 if "id" in it else 200, b""))
_breaks(
    "http.new-answer:body",
    accepted=lambda _, it: (200, b"{}") if _is(it, "session/new") else (202, b""),
    streams_for=lambda _, line, stream, method, it: [] if method == "session/new" else [stream],
)
_breaks("http.initialize", hello=lambda _, line, answer: (200, JSON, answer))
_breaks(
    "http.initialize:type",
    hello=lambda _, line, answer: (200, {"Acp-Connection-Id": line.id, **TEXT}, answer),
)
_breaks(
    "http.events",
    event=lambda _, raw: b"data: %b\n\n" % (b"[%b]" if b"usage_update" in raw else b"%b") % raw,
)
_breaks("http.delete", ended=lambda *_: 202)


def _end_all(server: FairServer, line: HttpLine) -> int:
    for each in server.lines.values():
        each.end()
    return 202


_breaks("http.delete:all", ended=_end_all)


def _mix_answers(
    server: FairServer, line: HttpLine, stream: str, method: str, message: Json
) -> list[str]:
    if method == "check/no_such_method":
        for other in server.lines.values():
            if other is not line and not other.is_over:
                other.send("", server.event(json.dumps(message).encode()))
    return [stream]


_breaks("http.own-answers", streams_for=_mix_answers)


class _AcceptsLate(FairServer):
    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[tuple[str, Any], asyncio.Event] = {}

    def over(self, line: HttpLine, id: Any) -> asyncio.Event:
        return self.answered.setdefault((line.id, id), asyncio.Event())

    async def before_accepting(self, line: HttpLine, message: Json) -> None:
        if _is(message, "session/prompt"):
            await self.over(line, message["id"]).wait()

    def streams_for(self, line: HttpLine, stream: str, method: str, message: Json) -> list[str]:
        if "method" not in message:
            self.over(line, message["id"]).set()
        return [stream]


FAULTS["http.at-once"] = _AcceptsLate
