"""Checking servers on other machines: the rules that apply to them, and those that do not."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve as serve_websockets
from websockets.http11 import Request, Response

from acp_check.checks import CheckReport, choose, inspect
from acp_check.record import line
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.subject import ServerSubject
from acp_check.verdicts import Verdict
from tests.http_server import FairServer, HttpLine, http_server

pytestmark = pytest.mark.slow

FAILS = Verdict.FAIL
ROUTES = ["http.content-type", "http.accept", "http.no-connection", "http.unknown-connection"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server of this user is known."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def checked(url: str, *only: str, token: str | None = None) -> CheckReport:
    """Check a server against some rules."""
    subject = ServerSubject(url, token, seconds=20)
    return await inspect(subject, choose(CHECKS, only), CheckSettings(timeout=20))


class _Lax(BaseHTTPRequestHandler):
    """Takes whatever comes for a good request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        said = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"{}"
        if b'"initialize"' in said:
            result = {"protocolVersion": 1, "agentCapabilities": {}}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Acp-Connection-Id", "the-only-one")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # as http.server calls them


@contextmanager
def _lax() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Lax) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/acp"
        finally:
            server.shutdown()
            thread.join()


async def test_one_that_takes_all_for_good_fails_the_rules_of_http(tmp_path: Path) -> None:
    with _lax() as url:
        report = await checked(url, *ROUTES, "http.initialize", "http.accepted", "http.batch")
    failed = {finding.rule.id: finding for finding in report.of(FAILS)}
    assert failed.keys() == {*ROUTES, "http.accepted", "http.batch"}
    assert "200, not 415" in failed["http.content-type"].why
    assert [finding.rule.id for finding in report.of(Verdict.PASS)] == ["http.initialize"]


Answering = Callable[[ServerConnection, str | bytes], str | bytes | AsyncIterator[str] | None]


def _answered(_: ServerConnection, said: str | bytes) -> str | bytes | None:
    """The answer of a good server to a frame."""
    if isinstance(said, bytes):
        return None
    message = json.loads(said)
    results = {
        "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
        "session/new": {"sessionId": "s"},
    }
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in results:
        answer["result"] = results[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    return json.dumps(answer)


@asynccontextmanager
async def _websocket_alone(answering: Answering, ids: Iterator[str]) -> AsyncIterator[str]:
    async def attend(connection: ServerConnection) -> None:
        async for said in connection:
            if (answer := answering(connection, said)) is not None:
                await connection.send(answer)

    def named(_: ServerConnection, __: Request, response: Response) -> None:
        if id := next(ids, ""):
            response.headers["Acp-Connection-Id"] = id

    async with serve_websockets(attend, "127.0.0.1", 0, process_response=named) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/acp"


def _hung_up(connection: ServerConnection, said: str | bytes) -> str | bytes | None:
    if isinstance(said, bytes):
        connection.transport.close()
    return _answered(connection, said)


def _obedient(connection: ServerConnection, said: str | bytes) -> str | bytes | None:
    if said == b"\x00check":
        return None
    return _answered(connection, said if isinstance(said, str) else said.decode())


def _in_binary(connection: ServerConnection, said: str | bytes) -> str | bytes | None:
    answer = _answered(connection, said)
    is_call = isinstance(said, str) and b"no_such_method" in said.encode()
    return answer.encode() if is_call and isinstance(answer, str) else answer


def _in_pairs(connection: ServerConnection, said: str | bytes) -> str | bytes | None:
    answer = _answered(connection, said)
    is_call = isinstance(said, str) and "no_such_method" in said
    return f"{answer!s}\n{answer!s}" if is_call else answer


async def _in_fragments(connection: ServerConnection, said: str | bytes) -> AsyncIterator[str]:
    answer = str(_answered(connection, said))
    for start in range(0, len(answer), 20):
        yield answer[start : start + 20]
        await connection.ping()


SOCKETS: dict[str, tuple[Answering, Callable[[], Iterator[str]]]] = {
    "": (_answered, lambda: map(str, itertools.count(1))),
    ":fragments": (
        lambda to, said: _in_fragments(to, said) if isinstance(said, str) else None,
        lambda: map(str, itertools.count(1)),
    ),
    "websocket.binary": (_hung_up, lambda: map(str, itertools.count(1))),
    "websocket.binary:obeys": (_obedient, lambda: map(str, itertools.count(1))),
    "websocket.text": (_in_binary, lambda: map(str, itertools.count(1))),
    "websocket.text:pairs": (_in_pairs, lambda: map(str, itertools.count(1))),
    "websocket.connection-id": (_answered, lambda: iter(())),
    "websocket.connection-ids": (_answered, lambda: itertools.repeat("1")),
}
"""Servers of WebSockets alone, by the rule that they break."""


@pytest.mark.parametrize("fault", SOCKETS)
async def test_a_server_of_websockets_breaks_exactly_its_rule(fault: str) -> None:
    answering, ids = SOCKETS[fault]
    async with _websocket_alone(answering, ids()) as url:
        report = await checked(url, "websocket", "http.initialize")
    failed = {finding.rule.id for finding in report.of(FAILS)}
    assert failed == {fault.partition(":")[0]} - {""}


async def test_each_connection_has_cookies_of_its_own_and_sends_them_back() -> None:
    server = _Sticky()
    async with http_server(server) as url:
        subject = ServerSubject(url, None, seconds=20)
        only = choose(CHECKS, ["initialize.answer", "new.answer", "http.connection-ids"])
        report = await inspect(subject, only, CheckSettings(timeout=20))
    assert report.of(FAILS) == []
    assert len(server.cookies) >= 3
    assert all(given <= {id} for id, given in server.cookies.items()), server.cookies


class _Sticky(FairServer):
    """Gives each connection a cookie, and notes which of them come with its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.cookies: dict[str, set[str]] = {}

    def hello(self, line: HttpLine, answer: bytes) -> tuple[int, dict[str, str], bytes]:
        status, head, body = super().hello(line, answer)
        return status, {**head, "Set-Cookie": f"at={line.id}; Path=/"}, body

    def refusal(self, method: str, head: dict[str, str], body: bytes) -> int | None:
        given = {it.partition("=")[2] for it in head.get("cookie", "").split("; ") if it}
        id = head.get("acp-connection-id", "none")
        self.cookies.setdefault(id, set()).update(given)
        if id in self.lines and id not in given:
            return 421  # another machine has this connection
        return super().refusal(method, head, body)


async def test_a_prompt_that_http_refuses_is_refused_and_no_line_is_invented() -> None:
    class Strict(FairServer):
        def refusal(self, method: str, head: dict[str, str], body: bytes) -> int | None:
            is_bare = b"session/prompt" in body and b"sessionId" not in body
            return 400 if is_bare else super().refusal(method, head, body)

    async with http_server(Strict()) as url:
        running = await ServerSubject(url, None, seconds=20).start()
        hello = {"protocolVersion": 1}
        for id, method, params in ((1, "initialize", hello), (2, "session/prompt", {})):
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            running.transport.send(json.dumps(message).encode() + b"\n")
            raw = await running.transport.receive()
        await running.aclose()
    assert raw.startswith(b"HTTP 400 for 2:")
    told = line(0, 0.0, "agent", raw.strip())
    assert (told.message["id"], told.message["error"]["code"], told.problem) == (2, -32602, "")
