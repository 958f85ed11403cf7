"""A correct server of the remote transport, with oddities: `python server.py [ODDITY]`.

HTTP with server-sent events and WebSocket on one endpoint, `/acp`; each connection has a process of
the exemplar. Prints its address. HTTP/2, which the proposal wants, is left to a proxy. Written from
the proposal's page alone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

Obj = dict[str, Any]

ODDITIES: dict[str, str] = {
    "sticky": "sets a cookie and demands it: clients MUST return cookies, servers may rely on them",
    "ws-only": "knows WebSocket alone: servers MAY choose that",
    "sse-extras": "comments, id:, event: and retry: in its streams: server-sent events have them",
    "sse-split": "a message over several data: lines: they are one event",
    "ws-fragments": "messages in fragments, pings between: the WebSocket standard allows both",
}

ODDITY = sys.argv[1] if len(sys.argv) > 1 else ""


def is_(name: str) -> bool:
    assert name in ODDITIES, name
    return name == ODDITY


STORE = Path(os.environ.get("HELDOUT_STORE") or Path(tempfile.gettempdir(), "heldout-server"))
KEPT = STORE / "sessions.json"
AGENT = [
    sys.executable,
    str(Path(__file__).resolve().parents[1] / "faulty_agent.py"),
    "",
    str(KEPT),
]
REASONS = {200: "OK", 202: "Accepted", 204: "No Content", 400: "Bad Request", 404: "Not Found"}
ON_CONNECTION = {
    *("initialize", "authenticate", "logout", "session/new", "session/load", "session/resume"),
    *("session/list", "session/delete"),
}


class Stream:
    """The messages of one scope, kept until somebody reads them."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Obj | Callable[[], None] | None] = asyncio.Queue()
        self.reader: asyncio.Task[None] | None = None


class Connection:
    """One agent and where its messages go."""

    def __init__(self) -> None:
        self.id = str(uuid4())
        self.cookie = uuid4().hex
        self.streams: dict[str | None, Stream] = {None: Stream()}
        self.sessions: set[str] = set()
        self.asked: dict[Any, tuple[str, str | None]] = {}
        self.questions: dict[Any, str] = {}
        self.first: asyncio.Future[Obj] = asyncio.get_running_loop().create_future()
        self.out: Callable[[Obj, str | None], None] = self.to_stream

    async def start(self) -> None:
        self.agent = await asyncio.create_subprocess_exec(
            *AGENT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 27,
        )
        self.listening = asyncio.create_task(self.listen())

    def receive(self, message: Obj) -> None:
        """Hand a message of the client to the agent."""
        session = (message.get("params") or {}).get("sessionId")
        if "method" in message and "id" in message:
            self.asked[message["id"]] = (message["method"], session)
            if session and message["method"] in ("session/load", "session/resume"):
                self.sessions.add(session)
        elif "method" not in message:
            self.questions.pop(message.get("id"), None)
        assert self.agent.stdin
        self.agent.stdin.write(json.dumps(message).encode() + b"\n")

    async def listen(self) -> None:
        assert self.agent.stdout
        while line := await self.agent.stdout.readline():
            message = json.loads(line)
            if "method" in message:
                session = (message.get("params") or {}).get("sessionId")
                if "id" in message and session:
                    self.questions[message["id"]] = session
                self.out(message, session)
                continue
            method, session = self.asked.pop(message.get("id"), ("", None))
            if method == "initialize" and not self.first.done():
                self.first.set_result(message)
                continue
            if method == "session/new" and "result" in message:
                self.sessions.add(message["result"]["sessionId"])
            here = method in ON_CONNECTION
            if method == "session/load" and self.stream(session).reader:
                # The answer is not to overtake the replay on the other stream.
                late = partial(self.out, message, None if here else session)
                self.stream(session).waiting.put_nowait(late)
            else:
                self.out(message, None if here else session)

    def stream(self, session: str | None) -> Stream:
        return self.streams.setdefault(session, Stream())

    def to_stream(self, message: Obj, session: str | None) -> None:
        self.stream(session).waiting.put_nowait(message)

    async def stop(self) -> None:
        for stream in self.streams.values():
            if stream.reader:
                stream.reader.cancel()
        assert self.agent.stdin
        self.agent.stdin.close()
        try:
            await asyncio.wait_for(self.agent.wait(), 3)
        except TimeoutError:
            self.agent.kill()
        self.listening.cancel()


CONNECTIONS: dict[str, Connection] = {}


class Headers(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return ""


class Refusal(Exception):
    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


class Exchange:
    """One TCP connection: requests one after another, a stream, or a WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def serve(self) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, EOFError):
            while await self.request():
                pass
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def request(self) -> bool:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.method, target, _ = head[0].split(" ", 2)
        pairs = [line.split(":", 1) for line in head[1:] if ":" in line]
        self.headers = Headers({n.strip().lower(): v.strip() for n, v in pairs})
        body = b""
        if self.headers["expect"].lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in self.headers["transfer-encoding"].lower():
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                body += await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        elif self.headers["content-length"]:
            body = await self.reader.readexactly(int(self.headers["content-length"]))
        try:
            if target.split("?")[0] != "/acp":
                raise Refusal(404, "the endpoint is /acp")
            if self.method == "GET" and self.headers["upgrade"].lower() == "websocket":
                await self.websocket()
                return False
            if is_("ws-only"):
                raise Refusal(426, "only WebSocket is served here")
            if self.method == "POST":
                await self.post(body)
            elif self.method == "GET":
                await self.events()
                return False
            elif self.method == "DELETE":
                await self.delete()
            else:
                raise Refusal(405, f"{self.method} is not for {target}")
        except Refusal as refusal:
            self.respond(refusal.status, f"{refusal}\n".encode(), {"Content-Type": "text/plain"})
        await self.writer.drain()
        return self.headers["connection"].lower() != "close"

    def respond(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        given = {"Content-Length": str(len(body)), **(headers or {})}
        if status == 204:
            del given["Content-Length"]
        lines += [f"{name}: {value}" for name, value in given.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def connection(self) -> Connection:
        found = CONNECTIONS.get(self.headers["acp-connection-id"])
        if not self.headers["acp-connection-id"]:
            raise Refusal(400, "Acp-Connection-Id is missing")
        if found is None:
            raise Refusal(404, "there is no such connection")
        if is_("sticky") and f"heldout={found.cookie}" not in self.headers["cookie"]:
            raise Refusal(400, "the cookie is missing")
        return found

    # POST

    async def post(self, body: bytes) -> None:
        kind = self.headers["content-type"].lower()
        wanted = kind.split(";")[0].strip()
        if wanted != "application/json":
            raise Refusal(415, "Content-Type has to be application/json")
        try:
            message = json.loads(body)
        except ValueError:
            raise Refusal(400, "this is not JSON") from None
        if isinstance(message, list):
            raise Refusal(501, "there are no batches")
        if not isinstance(message, dict):
            raise Refusal(400, "this is no message")
        if message.get("method") == "initialize" and not self.headers["acp-connection-id"]:
            return await self.initialize(message)
        connection = self.connection()
        self.check_session(connection, message)
        connection.receive(message)
        return self.respond(202)

    def check_session(self, connection: Connection, message: Obj) -> None:
        params = message.get("params")
        named = params.get("sessionId") if isinstance(params, dict) else None
        if "method" not in message:
            named = connection.questions.get(message.get("id"))
        if named is None and str(message.get("method")) in SCOPED:
            named = self.headers["acp-session-id"] or "?"
        if named is None:
            return
        if not self.headers["acp-session-id"]:
            raise Refusal(400, "Acp-Session-Id is missing")
        if self.headers["acp-session-id"] != named:
            raise Refusal(400, "Acp-Session-Id is another session than the message's")

    async def initialize(self, message: Obj) -> None:
        connection = Connection()
        await connection.start()
        connection.receive(message)
        answer = await connection.first
        CONNECTIONS[connection.id] = connection
        headers = {"Content-Type": "application/json", "Acp-Connection-Id": connection.id}
        if is_("sticky"):
            headers["Set-Cookie"] = f"heldout={connection.cookie}; Path=/; HttpOnly"
        return self.respond(200, json.dumps(answer).encode(), headers)

    # DELETE

    async def delete(self) -> None:
        connection = self.connection()
        del CONNECTIONS[connection.id]
        stopping = asyncio.create_task(connection.stop())
        BACKGROUND.add(stopping)
        stopping.add_done_callback(BACKGROUND.discard)
        return self.respond(202)

    # GET

    async def events(self) -> None:
        if "text/event-stream" not in self.headers["accept"].lower():
            raise Refusal(406, "Accept has to include text/event-stream")
        connection = self.connection()
        session = self.headers["acp-session-id"] or None
        if session and not self.has_session(connection, session):
            raise Refusal(404, "there is no such session")
        stream = connection.stream(session)
        if stream.reader:
            stream.reader.cancel()
        stream.reader = asyncio.current_task()
        head = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Cache-Control: no-cache"]
        self.writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode())
        gone = asyncio.create_task(self.reader.read(1))
        try:
            async for event in self.written(stream, gone):
                self.writer.write(event)
                await self.writer.drain()
        except asyncio.CancelledError:
            pass
        finally:
            gone.cancel()
            if stream.reader is asyncio.current_task():
                stream.reader = None

    def has_session(self, connection: Connection, session: str) -> bool:
        kept = json.loads(KEPT.read_bytes())["sessions"] if KEPT.exists() else ()
        return session in connection.sessions or session in kept

    async def written(self, stream: Stream, gone: asyncio.Task[bytes]) -> AsyncIterator[bytes]:
        """Yield the events of a stream until its reader leaves."""
        if is_("sse-extras"):
            yield b": hello\nretry: 3000\n\n"
        count = 0
        while True:
            next_message = asyncio.create_task(stream.waiting.get())
            waits = {gone, next_message}
            every = 0.05 if is_("sse-extras") else 15
            done: set[asyncio.Task[Any]] = set()
            try:
                done, _ = await asyncio.wait(waits, timeout=every, return_when="FIRST_COMPLETED")
            finally:
                if next_message not in done:
                    next_message.cancel()
            if next_message in done:
                message = next_message.result()
                if message is None:
                    return
                if callable(message):
                    message()
                    continue
                count += 1
                yield event(message, count)
            elif gone in done:
                return
            else:
                yield b": still here\n\n"

    # WebSocket

    async def websocket(self) -> None:
        key = self.headers["sec-websocket-key"]
        if not key or self.headers["sec-websocket-version"] != "13":
            raise Refusal(400, "this is no WebSocket handshake")
        magic = (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()
        accept = base64.b64encode(hashlib.sha1(magic).digest()).decode()
        connection = Connection()
        await connection.start()
        lines = [
            *("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"),
            f"Sec-WebSocket-Accept: {accept}",
        ]
        lines.append(f"Acp-Connection-Id: {connection.id}")
        if is_("sticky"):
            lines.append(f"Set-Cookie: heldout={connection.cookie}; Path=/; HttpOnly")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        connection.out = self.send_text
        connection.first.add_done_callback(self.send_first)
        try:
            async for text in self.texts():
                try:
                    message = json.loads(text)
                except ValueError:
                    message = None
                if isinstance(message, dict):
                    connection.receive(message)
                else:
                    code = -32700 if message is None else -32600
                    error = {"code": code, "message": "this is no message"}
                    self.send_text({"jsonrpc": "2.0", "id": None, "error": error}, None)
        finally:
            connection.first.cancel()
            await connection.stop()

    def send_first(self, answer: asyncio.Future[Obj]) -> None:
        if not answer.cancelled():
            self.send_text(answer.result(), None)

    def send_text(self, message: Obj, session: str | None) -> None:
        data = json.dumps(message, ensure_ascii=False).encode()
        if is_("ws-fragments"):
            third = len(data) // 3 + 1
            self.frame(0x1, data[:third], final=False)
            self.frame(0x9, b"are you there?")
            self.frame(0x0, data[third : 2 * third], final=False)
            self.frame(0x0, data[2 * third :])
        else:
            self.frame(0x1, data)

    def frame(self, kind: int, data: bytes, *, final: bool = True) -> None:
        size = len(data)
        head = bytes([(0x80 if final else 0) | kind])
        if size < 126:
            head += bytes([size])
        elif size < 65536:
            head += struct.pack("!BH", 126, size)
        else:
            head += struct.pack("!BQ", 127, size)
        self.writer.write(head + data)

    async def texts(self) -> AsyncIterator[bytes]:
        """Yield the client's text messages; binary ones are ignored."""
        kind, whole = 0, b""
        while True:
            first, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            mask = await self.reader.readexactly(4) if second & 0x80 else b"\0\0\0\0"
            data = await self.reader.readexactly(size)
            key = (mask * (size // 4 + 1))[:size]
            data = (int.from_bytes(data) ^ int.from_bytes(key)).to_bytes(size)
            opcode = first & 0x0F
            if opcode == 0x8:
                self.frame(0x8, data[:2])
                return
            if opcode == 0x9:
                self.frame(0xA, data)
            elif opcode in (0x0, 0x1, 0x2):
                kind, whole = (opcode, data) if opcode else (kind, whole + data)
                if first & 0x80 and kind == 0x1:
                    yield whole


SCOPED = {
    *("session/prompt", "session/cancel", "session/set_mode", "session/set_config_option"),
    *("session/load", "session/resume", "session/close"),
}
BACKGROUND: set[asyncio.Task[None]] = set()


def event(message: Obj, count: int) -> bytes:
    """Return a message as a server-sent event."""
    if is_("sse-split"):
        lines = json.dumps(message, indent=1).splitlines()
        return "".join(f"data: {line}\n" for line in lines).encode() + b"\n"
    data = b"data: " + json.dumps(message, ensure_ascii=False).encode() + b"\n\n"
    return f"event: message\nid: {count}\n".encode() + data if is_("sse-extras") else data


async def main() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Exchange(reader, writer).serve()

    STORE.mkdir(parents=True, exist_ok=True)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 27)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/acp\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
