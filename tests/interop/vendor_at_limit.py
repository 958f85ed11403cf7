"""A stand-in for a vendor at whose limit an account is: it refuses every request with that.

While it is open it answers: OpenAI's chat completions, or Anthropic's messages.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from acp_check.model_endpoint import Words, messages_stream, serving
from tests.interop.wire import Json

WENT_ON = "It went on."


class Refusal(NamedTuple):
    """The answer of a vendor's API at the limit; the status is 429."""

    headers: dict[str, str]
    body: Json


class VendorAtLimit:
    """`url` is its base URL, `resets_at` the time that it tells, in seconds since the epoch.

    `refusal` is how it refuses unless it `is_open`. `refused` is how often it refused a turn, for
    which an agent offers tools; it also asks for titles. `turns` are the requests for one while it
    is open; each is answered once `goes_on` is set.
    """

    def __init__(self, url: str, resets_at: int, refusal: Refusal) -> None:
        self.url = url
        self.resets_at = resets_at
        self.refusal = refusal
        self.refused = 0
        self.is_open = False
        self.turns: list[bytes] = []
        self.goes_on = threading.Event()
        self.goes_on.set()


@contextmanager
def at_limit(refusal: Callable[[int], Refusal], seconds: int) -> Iterator[VendorAtLimit]:
    """Run a vendor on a free port of this machine for the block; it tells a reset in `seconds`."""
    server = _Server(("127.0.0.1", 0), _Handler)
    resets_at = int(time.time()) + seconds
    url = f"http://127.0.0.1:{server.server_port}"
    server.vendor = found = VendorAtLimit(url, resets_at, refusal(resets_at))
    with serving(server, "vendor at its limit"):
        yield found


def anthropic(resets_at: int) -> Refusal:
    """Anthropic's, for a subscription: the API's error, and the window in headers."""
    told = {
        "status": "rejected",
        "reset": str(resets_at),
        "representative-claim": "five_hour",
        "overage-status": "rejected",
        "overage-disabled-reason": "org_level_disabled",
    }
    headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in told.items()}
    error = {"type": "rate_limit_error", "message": "This would exceed your account's rate limit."}
    return Refusal({**headers, "x-should-retry": "false"}, {"type": "error", "error": error})


def openai(resets_at: int) -> Refusal:
    """OpenAI's, for a ChatGPT plan."""
    error = {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": "plus",
        "resets_at": resets_at,
    }
    return Refusal({}, {"error": error})


def google(resets_at: int) -> Refusal:
    """Google's, with the time to wait among the details."""
    delay = f"{resets_at - int(time.time())}s"
    error = {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota.",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}],
    }
    return Refusal({}, {"error": error})


def opencode_go(resets_at: int) -> Refusal:
    """That of OpenCode's own plan, with the seconds to wait."""
    error = {"type": "GoUsageLimitError", "message": "5-hour usage limit reached."}
    seconds = resets_at - int(time.time())
    return Refusal({"retry-after": str(seconds)}, {"type": "error", "error": error})


class _Server(ThreadingHTTPServer):
    vendor: VendorAtLimit
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return None

    def do_GET(self) -> None:
        self._answer(200, "application/json", b"{}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("content-length") or 0))
        vendor = self.server.vendor
        if vendor.is_open:
            if b'"tools"' in asked:
                vendor.turns.append(asked)
                vendor.goes_on.wait(60)
            is_anthropic = "/messages" in self.path
            stream = _messages() if is_anthropic else _chat()
            with suppress(OSError):  # an agent may have gone on with another request meanwhile
                self._answer(200, "text/event-stream", "".join(stream).encode())
        else:
            vendor.refused += b'"tools"' in asked
            body = json.dumps(vendor.refusal.body).encode()
            self._answer(429, "application/json", body, vendor.refusal.headers)

    def _answer(
        self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        told = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _chat() -> Iterator[str]:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
    said = {"role": "assistant", "content": WENT_ON}
    for choice in ({"delta": said}, {"delta": {}, "finish_reason": "stop"}):
        yield f"data: {json.dumps({**head, 'choices': [{'index': 0, **choice}]})}\n\n"
    yield "data: [DONE]\n\n"


def _messages() -> Iterator[str]:
    for event in messages_stream(Words(["Hm."])):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
