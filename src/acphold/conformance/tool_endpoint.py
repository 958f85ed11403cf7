"""The MCP server with one tool behind a URL: streamable HTTP, and HTTP with server-sent events.

Sources: MCP 2025-06-18, transports, "Streamable HTTP"; MCP 2024-11-05, transports, "HTTP with SSE".
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from acphold.conformance.record import Json
from acphold.conformance.tool_server import reply

KEEP_ALIVE_SECONDS = 0.5
"""Seconds between two checks of an open stream for the server's end."""


class ToolEndpoint:
    """A running server. `calls` are the received methods, with their path and key, in order."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[tuple[str, str, str | None]] = []
        self.closed = False
        self.streams: dict[str, queue.Queue[bytes]] = {}

    def url(self, path: str) -> str:
        """Return the URL of `/mcp` or `/sse`."""
        return f"http://127.0.0.1:{self.port}{path}"

    def came(self, method: str, path: str) -> list[str | None]:
        """Return the key of each message of this method received on this path."""
        return [key for name, where, key in [*self.calls] if (name, where) == (method, path)]


@contextmanager
def served() -> Iterator[ToolEndpoint]:
    """Run an endpoint on a free port of this machine, for the block."""
    server = _ToolServer(("127.0.0.1", 0), _ToolHandler)
    server.endpoint = endpoint = ToolEndpoint(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="tool endpoint")
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.closed = True
        server.shutdown()
        server.server_close()
        thread.join()


class _ToolServer(ThreadingHTTPServer):
    endpoint: ToolEndpoint
    daemon_threads = True
    block_on_close = False  # an open stream notices a moment later


class _ToolHandler(BaseHTTPRequestHandler):
    server: _ToolServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return None

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            message = json.loads(raw)
        except ValueError:
            self._send(400, b"")
            return
        path, _, stream = self.path.partition("?")
        shown = "/sse" if path == "/messages" else path
        key = self.headers.get("X-Check-Key")
        self.server.endpoint.calls.append((str(message.get("method")), shown, key))
        answer = reply(message)
        if path == "/messages":
            self._on_stream(stream, answer)
        elif path != "/mcp":
            self._send(404, b"")
        elif answer is None:
            self._send(202, b"")
        else:
            self._send(200, json.dumps(answer).encode())

    def _on_stream(self, stream: str, answer: Json | None) -> None:
        waiting = self.server.endpoint.streams.get(stream)
        if waiting is not None and answer is not None:
            waiting.put(json.dumps(answer).encode())
        self._send(202 if waiting is not None else 404, b"")

    def do_GET(self) -> None:
        if self.path != "/sse":
            self._send(405, b"")
            return
        endpoint = self.server.endpoint
        stream = f"s{len(endpoint.streams) + 1}"
        messages = endpoint.streams[stream] = queue.Queue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.close_connection = True
        with suppress(ConnectionError):  # the client has gone
            self._event("endpoint", f"/messages?{stream}".encode())
            while not endpoint.closed:
                with suppress(queue.Empty):
                    self._event("message", messages.get(timeout=KEEP_ALIVE_SECONDS))

    def _event(self, name: str, data: bytes) -> None:
        self.wfile.write(b"event: %b\ndata: %b\n\n" % (name.encode(), data))
        self.wfile.flush()

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def _send(self, status: int, body: bytes) -> None:
        with suppress(ConnectionError):  # the client has gone
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
