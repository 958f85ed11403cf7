"""A vendor's service with the answers of a test, whatever the request: OpenAI's completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from acp_check.model_endpoint import serving


def saying(text: str, finish: str = "stop", model: str = "stand-in") -> bytes:
    """A streamed answer that ends for this reason, and used 1000 tokens to say it."""
    return _stream({"role": "assistant", "content": text}, finish, model)


def calling(tool: str, **arguments: object) -> bytes:
    """A streamed answer that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return _stream({"role": "assistant", "tool_calls": [call]}, "tool_calls", "stand-in")


def _stream(delta: dict[str, Any], finish: str, model: str) -> bytes:
    usage = {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model}
    begin = {"index": 0, "delta": delta, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": finish}
    chunks = [{**whole, "choices": [begin]}, {**whole, "choices": [end], "usage": usage}]
    events = [*map(json.dumps, chunks), "[DONE]"]
    return "".join(f"data: {event}\n\n" for event in events).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status: int
    answers: list[bytes]
    requests: list[str]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        return None

    def do_POST(self) -> None:
        self.server.requests.append(self.rfile.read(int(self.headers["content-length"])).decode())
        answers = self.server.answers
        body = answers.pop(0) if len(answers) > 1 else answers[0]
        body = body.replace(
            b"THE-KEY", self.headers["authorization"].removeprefix("Bearer ").encode()
        )
        kind = "text/event-stream" if body.startswith(b"data:") else "application/json"
        self.send_response(self.server.status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Service:
    """`url` is the base URL for agents; `requests` are the bodies received, in order."""

    def __init__(self, url: str, requests: list[str]) -> None:
        self.url = url
        self.requests = requests


@contextmanager
def answering(*answers: bytes, status: int = 200) -> Iterator[Service]:
    """A service for the block: it gives the answers in order, the last one again and again.

    `THE-KEY` in an answer becomes the key that the service was sent.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.status, server.answers, server.requests = status, list(answers), []
    with serving(server, "model service"):
        yield Service(f"http://127.0.0.1:{server.server_port}/v1", server.requests)
