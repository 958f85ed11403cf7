"""Servers far away: what is checked of them, and what is not applied."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets

from acphold.conformance.inspection import Report, chosen, inspect
from acphold.conformance.rules import CHECKS
from acphold.conformance.stage import Settings
from acphold.conformance.subject import ServerSubject
from acphold.conformance.verdicts import Verdict
from tests.web.conftest import serving

pytestmark = pytest.mark.slow

FAILS = Verdict.FAIL
ROUTES = ["http.content-type", "http.accept", "http.no-connection", "http.unknown-connection"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server of this user is known."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def checked(url: str, *only: str, token: str | None = None) -> Report:
    """What a server keeps of some rules."""
    subject = ServerSubject(url, token, seconds=20)
    return await inspect(subject, chosen(CHECKS, only), Settings(timeout=20))


async def test_ours_keeps_the_rules_of_the_transport_and_is_no_program(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        only = ("http", "websocket", "new", "load.after-kill", "stdio.ends-with-stdin")
        report = await checked(served.url, *only, token=served.token())
    assert report.of(FAILS) == []
    passed = {finding.rule.id for finding in report.of(Verdict.PASS)}
    assert {*ROUTES, "http.session-stream", "http.delete", "websocket.binary"} <= passed
    assert "new.unique-ids" in passed
    not_applied = {finding.rule.id for finding in report.of(Verdict.NOT_APPLIED)}
    assert not_applied == {"load.after-kill", "stdio.ends-with-stdin"}


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


@asynccontextmanager
async def _websocket_alone() -> AsyncIterator[str]:
    async def attend(connection: ServerConnection) -> None:
        async for said in connection:
            if isinstance(said, bytes):
                await connection.close(1003)
            else:
                id = json.loads(said)["id"]
                result = {"protocolVersion": 1, "agentCapabilities": {}}
                answer = {"jsonrpc": "2.0", "id": id, "result": result}
                await connection.send(json.dumps(answer))

    async with serve_websockets(attend, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/acp"


async def test_one_that_closes_at_what_is_binary_and_has_no_id_fails_those_rules() -> None:
    async with _websocket_alone() as url:
        report = await checked(url, "websocket", "initialize.answer")
    failed = {finding.rule.id for finding in report.of(FAILS)}
    assert failed == {"websocket.binary", "websocket.connection-id"}
    assert [finding.rule.id for finding in report.of(Verdict.PASS)] == ["initialize.answer"]
