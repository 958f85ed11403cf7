"""Clients far away that cost next to nothing: over a WebSocket, and over Streamable HTTP."""

from __future__ import annotations

import json
import select
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from bench.wire import FOLDER

READ: Final = 1 << 20

PATIENCE_SECONDS: Final = 60
"""A server that has said nothing for so long is not waited for any more."""

TEXT, PING, PONG = 1, 9, 10
"""The kinds of frames; RFC 6455, 5.2."""


class FarWire(ABC):
    """One client of the server at `url`; see `bench.wire` for its like on a pipe."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._address = ("127.0.0.1", urlsplit(url).port)
        self._head = f"Host: {urlsplit(url).netloc}\r\n"
        if token is not None:
            self._head += f"Authorization: Bearer {token}\r\n"
        self._last_id = 0
        self._asked = "no request"
        self.session_id = ""

    @abstractmethod
    def fileno(self) -> int:
        """What can be waited for."""

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Send one message."""

    @abstractmethod
    def lines(self) -> list[bytes]:
        """The messages that come with one read."""

    @abstractmethod
    def close(self) -> None:
        """Leave without a word."""

    def ask(self, method: str, params: dict[str, object]) -> None:
        """Send a request."""
        self._last_id += 1
        self._asked = method
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self.send(json.dumps(message, separators=(",", ":")).encode())

    def until_answer(self) -> Iterator[bytes]:
        """The messages up to and with the answer to the last request."""
        while True:
            for line in self.lines():
                yield line
                if self.is_answer(line):
                    return

    def call(self, method: str, params: dict[str, object]) -> dict[str, object]:
        """Ask and wait for the result; what comes before it is passed over."""
        self.ask(method, params)
        *_, answer = self.until_answer()
        result: dict[str, object] = json.loads(answer)["result"]
        return result

    def initialize(self, *, positions: bool = False) -> None:
        """Introduce a client, which may want positions."""
        can = {"_meta": {"acphold/positions": True}} if positions else {}
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": can})

    def new_session(self) -> None:
        """Open a session for `prompt`."""
        params: dict[str, object] = {"cwd": FOLDER, "mcpServers": []}
        self.session_id = str(self.call("session/new", params)["sessionId"])

    def prompt(self, words: str) -> None:
        """Begin a turn."""
        content = [{"type": "text", "text": words}]
        self.ask("session/prompt", {"sessionId": self.session_id, "prompt": content})

    def is_answer(self, line: bytes) -> bool:
        """True for the answer to the last request; RuntimeError if that was refused."""
        if b'"method"' in line and b'"result"' not in line:
            return False
        message = json.loads(line)
        if message.get("id") != self._last_id or "method" in message:
            return False
        if "error" in message:  # what fails is quick: it must not pass for a figure
            raise RuntimeError(str(message["error"]))
        return True

    def _received(self, connection: socket.socket) -> bytes:
        """What comes next; EOFError at the end, TimeoutError if nothing does for too long."""
        try:
            data = connection.recv(READ)
        except BlockingIOError:
            raise self._silence() from None
        if not data:
            raise EOFError(f"{self._told()} has ended the connection")
        return data

    def _silence(self) -> TimeoutError:
        return TimeoutError(f"{self._told()} said nothing for {PATIENCE_SECONDS} s")

    def _told(self) -> str:
        return f"the server at {self._address}, after {self._asked} ({self._last_id}),"

    def _connected(self) -> socket.socket:
        found = socket.create_connection(self._address)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # By the kernel: a time-out of Python's would ask it before each read.
        patience = struct.pack("ll", PATIENCE_SECONDS, 0)
        for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            found.setsockopt(socket.SOL_SOCKET, side, patience)
        return found


class Frames:
    """The frames of a client's WebSocket, masked with zeros."""

    KEY: Final = b"A" * 22 + b"=="

    def __init__(self, rest: bytes = b"") -> None:
        self._rest = rest

    @classmethod
    def upgrade(cls, head: bytes = b"") -> bytes:
        """The request for it, with these further lines."""
        asked = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = b"Sec-WebSocket-Key: %b\r\n\r\n" % cls.KEY
        return b"GET /acp HTTP/1.1\r\n%b%b%b" % (head, asked, key)

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The messages that `data` completes, and the answers that its pings are owed: unanswered
        for a while, they end the connection."""
        data = self._rest + data
        found, pongs, place, size = [], b"", 0, len(data)
        while size >= place + 2:
            length, begin = data[place + 1], place + 2
            if length > 125:
                begin = place + (4 if length == 126 else 10)
                length = int.from_bytes(data[place + 2 : begin], "big")
            if size < begin + length:
                break
            kind, body = data[place] & 0x0F, data[begin : begin + length]
            if kind == TEXT:
                found.append(body)
            elif kind == PING:
                pongs += self.framed(body, PONG)
            place = begin + length
        self._rest = data[place:]
        return found, pongs

    @staticmethod
    def framed(message: bytes, kind: int = TEXT) -> bytes:
        """A message in its frame."""
        size = len(message)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        return bytes([0x80 | kind]) + length + b"\0\0\0\0" + message


class FarSocket(FarWire):
    """Over a WebSocket."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url, token)
        self._socket = self._connected()
        self._socket.sendall(Frames.upgrade(self._head.encode()))
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._received(self._socket)
        if b" 101 " not in head:
            raise RuntimeError(head.decode())
        self._frames = Frames(head.partition(b"\r\n\r\n")[2])

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        self._socket.sendall(self._frames.framed(message))

    def lines(self) -> list[bytes]:
        found, pongs = self._frames.feed(self._received(self._socket))
        if pongs:
            self._socket.sendall(pongs)
        return found

    def close(self) -> None:
        self._socket.close()


class FarHttp(FarWire):
    """Over Streamable HTTP: one connection to post on, one for each stream."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url, token)
        self._posts = self._connected()
        self._streams: list[socket.socket] = []
        self._rest: dict[socket.socket, bytes] = {}
        self._answers: list[bytes] = []

    def fileno(self) -> int:
        return self._streams[-1].fileno()

    def send(self, message: bytes) -> None:
        named = f"Acp-Session-Id: {self.session_id}\r\n" if self.session_id else ""
        head = (
            f"POST /acp HTTP/1.1\r\n{self._head}{named}Content-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(message)}\r\n\r\n"
        )
        if select.select([self._posts], [], [], 0)[0]:  # it was idle, and the server has closed it
            self._posts.close()
            self._posts = self._connected()
        self._posts.sendall(head.encode() + message)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._received(self._posts)
        head_, _, body = answer.partition(b"\r\n\r\n")
        fields = dict(
            line.lower().split(b": ", 1) for line in head_.split(b"\r\n")[1:] if b": " in line
        )
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            while not body.endswith(b"0\r\n\r\n"):
                body += self._received(self._posts)
            body = b"".join(line for line in body.split(b"\r\n") if line.startswith(b"{"))
        else:
            while len(body) < int(fields.get(b"content-length", b"0")):
                body += self._received(self._posts)
        if b" 20" not in head_.partition(b"\r\n")[0]:
            raise RuntimeError(answer.decode())
        if body:
            self._answers.append(body)
            id_ = fields[b"acp-connection-id"].decode()
            self._head += f"Acp-Connection-Id: {id_}\r\n"

    def initialize(self, *, positions: bool = False) -> None:
        super().initialize(positions=positions)
        self._open("")

    def new_session(self) -> None:
        super().new_session()
        self._open(f"Acp-Session-Id: {self.session_id}\r\n")

    def lines(self) -> list[bytes]:
        if self._answers:
            answers, self._answers = self._answers, []
            return answers
        found = []
        ready, _, _ = select.select(self._streams, [], [], PATIENCE_SECONDS)
        if not ready:
            raise self._silence()
        for stream in ready:
            data = self._rest[stream] + self._received(stream)
            *lines, self._rest[stream] = data.split(b"\n")
            found += [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return found

    def close(self) -> None:
        for each in (self._posts, *self._streams):
            each.close()

    def _open(self, named: str) -> None:
        stream = self._connected()
        stream.sendall(
            f"GET /acp HTTP/1.1\r\n{self._head}{named}Accept: text/event-stream\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._received(stream)
        if b" 200 " not in head:
            raise RuntimeError(head.decode())
        self._streams.append(stream)
        self._rest[stream] = head.partition(b"\r\n\r\n")[2]
