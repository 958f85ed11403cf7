"""MCP servers over HTTP: failures on the way, in words, and harmless irregularities."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from acp_wire.schema import HttpHeader, McpServerHttp, McpServerSse
from acphold.mcp_servers.connections import Lost, Ready
from acphold.mcp_servers.errors import McpAnswerError, McpConnectError, McpLostError
from acphold.mcp_servers.servers import Server
from tests.mcp_servers.conftest import SECRET, Connect, Gather, Told
from tests.mcp_servers.http_faults import FaultyHttp

HEADERS = (
    HttpHeader(name="Authorization", value=f"Bearer {SECRET}"),
    HttpHeader(name="X-Workspace", value="w-1"),
)


def over_http(url: str) -> McpServerHttp:
    return McpServerHttp(name="far", url=url, headers=HEADERS)


def over_sse(url: str) -> McpServerSse:
    return McpServerSse(name="far", url=url, headers=HEADERS)


FAULTS = {
    "401": 'it answered 401 Unauthorized (WWW-Authenticate: Bearer error="bad ***")',
    "403": "it answered 403 Somehow",
    "404": "it answered 404 Somehow",
    "429": "it answered 429 Somehow",
    "500": "it answered 500 Somehow",
    "302": "it redirects to http://127.0.0.1:",
    "around": "it redirects endlessly",
    "elsewhere": "it redirects to http://localhost:",
    "html": "Unexpected content type: text/html",
    "nojson": "its answer cannot be read: it is not JSON",
    "packed": "no answer: the answer is compressed, unasked",
    "202": "answered a request with 202 Accepted",
    "drop": "no answer: Server disconnected",
    "slow": "it did not answer for 3 s",
    "mute": "it did not answer for 3 s",
    "mistaken": "it refused `initialize`: clients are unwelcome (-32602)",
}

SSE_FAULTS = {
    "401": FAULTS["401"],
    "404": FAULTS["404"],
    "around": FAULTS["around"],
    "html": "got 'text/html'",
    "packed": "the answer is compressed, unasked",
    "drop": FAULTS["drop"],
    "slow": FAULTS["slow"],
    "sse-quiet": "it did not answer for 3 s",
    "sse-away": "it wants messages sent to another server: http://localhost:1/x",
    "sse-404": "it answered 404 Somehow",
    "sse-end": "it closed its event stream",
}


async def test_each_fault_of_streamable_http_is_reported(
    faulty_url: FaultyHttp, gather: Gather, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await faults_are_told(faulty_url, gather, McpServerHttp, FAULTS)
    assert SECRET not in caplog.text


async def test_each_fault_of_sse_is_reported(
    faulty_url: FaultyHttp, gather: Gather, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await faults_are_told(faulty_url, gather, McpServerSse, SSE_FAULTS)
    assert SECRET not in caplog.text


async def faults_are_told(
    http: FaultyHttp,
    gather: Gather,
    kind: type[McpServerHttp] | type[McpServerSse],
    faults: dict[str, str],
) -> None:
    """All at once: none of them holds up another."""
    told = Told()
    servers = gather(
        *(kind(name=fault, url=f"{http.url(fault)}?key=k", headers=HEADERS) for fault in faults),
        deadline=3.0,
        listener=told,
    )
    assert await servers.tools() == ()
    for fault, words in faults.items():
        assert words in told.reasons[fault], told.reasons[fault]
        assert "MCP server" not in told.reasons[fault], "who is told knows the name"
    assert not any(SECRET in text or "key=k" in text for text in told.reasons.values())


async def test_an_answer_without_end_is_given_up(faulty_url: FaultyHttp, connect: Connect) -> None:
    connection = connect(over_http(faulty_url.url("huge")), deadline=30.0)
    with pytest.raises(McpConnectError, match="it answered with more than 16384 KiB"):
        await connection.ready()


@pytest.mark.parametrize("server", [over_http, over_sse])
@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "http://127.0.0.1:1/mcp",
            r"http://127\.0\.0\.1:1/mcp: cannot connect: connection refused",
        ),
        ("http://no-such-host.invalid/mcp", "cannot connect: unknown host"),
    ],
)
async def test_a_server_that_is_not_there_is_reported(
    connect: Connect, server: Callable[[str], Server], url: str, words: str
) -> None:
    connection = connect(server(url))
    with pytest.raises(McpConnectError, match=words):
        await connection.ready()


async def test_headers_travel_with_each_request_and_redirects_of_the_server_are_followed(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    connection = connect(over_http(faulty_url.url("moved")))
    assert (await connection.call("t")).text == "called"
    await connection.aclose()
    for method, path, headers in faulty_url.seen:
        assert headers["authorization"] == f"Bearer {SECRET}", (method, path)
        assert headers["x-workspace"] == "w-1"
    assert faulty_url.seen[-1][0] == "DELETE"
    assert {path for _, path, _ in faulty_url.seen} == {"/moved", "/ok"}


async def test_a_header_may_hold_more_than_ascii(faulty_url: FaultyHttp, connect: Connect) -> None:
    for kind, path in ((McpServerHttp, "ok"), (McpServerSse, "sse-ok")):
        headers = (HttpHeader(name="X-Author", value="Zoë"),)
        connection = connect(kind(name="far", url=faulty_url.url(path), headers=headers))
        assert (await connection.call("t")).text == "called"
        assert faulty_url.seen[-1][2]["x-author"] == "Zoë"


async def test_headers_do_not_follow_to_another_server(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    connection = connect(over_http(faulty_url.url("elsewhere")))
    with pytest.raises(McpConnectError, match="use that address if it is right"):
        await connection.ready()
    assert {path for _, path, _ in faulty_url.seen} == {"/elsewhere"}


async def test_a_session_the_server_has_forgotten_is_begun_again_without_anybody_noticing(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    connection = connect(over_http(faulty_url.url("forgets")))
    assert (await connection.call("t")).text == "called"
    assert (faulty_url.calls, len(faulty_url.sessions)) == (2, 2)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("500-call", "it answered 500 Oops"),
        ("drop-call", "no answer: Server disconnected"),
    ],
)
async def test_a_request_that_fails_does_not_end_the_connection(
    faulty_url: FaultyHttp, connect: Connect, fault: str, words: str
) -> None:
    connection = connect(over_http(faulty_url.url(fault)))
    with pytest.raises(McpAnswerError, match=f"'far': .*{words}"):
        await connection.call("t")
    assert isinstance(connection.state, Ready)
    assert [tool.name for tool in await connection.tools()] == ["t"]
    assert faulty_url.calls == 1


async def test_an_answer_that_breaks_off_fails_the_call_which_is_not_repeated(
    faulty_url: FaultyHttp, connect: Connect
) -> None:
    connection = connect(over_http(faulty_url.url("break-off")))
    with pytest.raises(McpLostError, match="its answer broke off"):
        await connection.call("t")
    assert isinstance(connection.state, Lost)
    assert faulty_url.calls == 1
    assert [tool.name for tool in await connection.tools()] == ["t"]
    assert len(faulty_url.sessions) == 2
