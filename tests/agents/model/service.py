"""A model service that answers what a test says, whatever is asked: OpenAI's chat completions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def saying(text: str, finish: str, model: str = "stand-in") -> bytes:
    """A streamed answer that ends for this reason, and used 1000 tokens to say it."""
    usage = {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model}
    delta = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": finish}
    chunks = [{**whole, "choices": [delta]}, {**whole, "choices": [end], "usage": usage}]
    events = [*map(json.dumps, chunks), "[DONE]"]
    return "".join(f"data: {event}\n\n" for event in events).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status: int
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        return None

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        key = self.headers["authorization"].removeprefix("Bearer ").encode()
        body = self.server.body.replace(b"THE-KEY", key)
        kind = "text/event-stream" if body.startswith(b"data:") else "application/json"
        self.send_response(self.server.status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """A service for the block; its base URL. `THE-KEY` in `body` becomes the key it was sent."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.status, server.body = status, body
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="model service")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
