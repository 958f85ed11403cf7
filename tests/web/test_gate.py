"""Access to the port: which requests are let in, and which are refused."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

import acphold
from acphold.errors import RemoteError, RemoteRefusalError, SettingsError
from acphold.journal.access import new_token, token_id
from acphold.journal.owners import clock
from acphold.journal.stores import open_journal
from acphold.live.reading.requests import FEED, RULES
from acphold.web import bounds
from acphold.web.connections import repeating
from acphold.web.server import Listening
from tests.conversations import entries_of
from tests.editor import DEADLINE
from tests.web.certificates import new_authority
from tests.web.conftest import Served, until_closed

pytestmark = pytest.mark.slow

INITIALIZE = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
)


def socket_url(served: Served, path: str = "/acp") -> str:
    return served.url.replace("http", "ws", 1) + path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def refused(
    served: Served, headers: Mapping[str, str], path: str = "/acp"
) -> tuple[int, str]:
    """The status and words with which a WebSocket is refused."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(socket_url(served, path), additional_headers=headers):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body)["error"]


async def test_without_a_token_and_with_a_wrong_one_the_same_is_said(shared: Served) -> None:
    wrong, _ = new_token("x", ("watch",), 1)
    right = shared.token("--name", "x")
    told = {
        await refused(shared, headers)
        for headers in (
            {},
            bearer(wrong),
            bearer(right[:-1]),
            bearer("é".encode().decode("latin-1")),
        )
    }
    assert len(told) == 1
    assert told.pop()[0] == 401


async def test_a_browser_may_send_a_token_as_a_subprotocol_and_never_as_a_cookie(
    shared: Served,
) -> None:
    token = shared.token()
    offered = [Subprotocol("acphold"), Subprotocol(f"acphold-token.{token}")]
    async with connect(socket_url(shared), subprotocols=offered, origin=None) as socket:
        assert socket.subprotocol == "acphold"
        await socket.send(INITIALIZE)
        assert json.loads(await socket.recv())["id"] == 1
        assert socket.response is not None
        assert socket.response.headers["Acp-Connection-Id"]
    port = shared.url.rpartition(":")[2]
    for name in ("acphold", f"acphold-{port}"):
        assert (await refused(shared, {"Cookie": f"{name}={token}"}))[0] == 401


async def test_an_agent_that_is_not_served_is_told_apart_only_with_a_token(shared: Served) -> None:
    assert (await refused(shared, bearer(shared.token()), "/acp/other"))[0] == 404
    assert (await refused(shared, {}, "/acp/other"))[0] == 401


async def test_a_code_pairs_once_and_wrong_ones_pair_never(shared: Served) -> None:
    async with httpx2.AsyncClient(base_url=shared.url) as http:
        for _ in range(3):
            assert (await http.post("/pair", json={"code": "0000000000"})).status_code == 403
        paired = await http.post("/pair", json={"code": shared.pair.lower(), "name": "ph\x1bone"})
        assert paired.status_code == 200
        assert "set-cookie" not in paired.headers
        assert (await http.post("/pair", json={"code": shared.pair})).status_code == 403
        assert (await http.post("/pair", json=["x"])).status_code == 400
        assert (await http.post("/pair", content=b"x" * 5000)).status_code == 415
        big = {"code": "x" * 5000}
        assert (await http.post("/pair", json=big)).status_code == 413
    async with acphold.connect(shared.url, token=paired.json()["token"]) as agent:
        await agent.new_session(cwd=shared.folder)
    assert "phone" in shared.run("access", "list")


async def test_a_revoked_token_ends_its_connections_and_no_others(shared: Served) -> None:
    token, other = shared.token("--name", "phone"), shared.token()
    async with (
        connect(socket_url(shared), additional_headers=bearer(token)) as phone,
        connect(socket_url(shared), additional_headers=bearer(other)) as laptop,
    ):
        shared.run("access", "revoke", token.split("_")[1])
        await until_closed(phone.recv)
        assert phone.close_code == 1008
        await laptop.send(INITIALIZE)
        assert json.loads(await laptop.recv())["id"] == 1
    assert (await refused(shared, bearer(token)))[0] == 401
    with pytest.raises(RemoteRefusalError, match="pair"):
        async with acphold.connect(shared.url, token=token):
            pass


async def test_a_prompt_of_a_revoked_token_sent_while_the_server_stands_still_is_not_read(
    shared: Served,
) -> None:
    token, journal = shared.token(), open_journal(shared.env["ACPHOLD_JOURNAL"])
    async with shared.session(token) as session:
        await session.prompt("quick: before")
        shared.process.send_signal(signal.SIGSTOP)
        try:
            shared.run("access", "revoke", token.split("_")[1])
            behind = asyncio.ensure_future(session.prompt("quick: behind"))
            stood = clock()
            while clock() < stood + 2 * bounds.STOOD_STILL_SECONDS:  # noqa: ASYNC110  a clock
                await asyncio.sleep(0.1)
        finally:
            shared.process.send_signal(signal.SIGCONT)
        with pytest.raises(RemoteError, match="pair"):
            await behind
    said = b"".join(entry.raw for entry in entries_of(await journal.read(session.id, 0)))
    await journal.aclose()
    assert b"quick: before" in said
    assert b"quick: behind" not in said


async def test_a_revocation_acts_within_a_second_on_what_is_open_and_on_what_is_asked(
    shared: Served,
) -> None:
    journal, took = open_journal(shared.env["ACPHOLD_JOURNAL"]), []
    async with httpx2.AsyncClient(base_url=shared.url) as http:
        for _ in range(5):
            token = shared.token()
            async with connect(socket_url(shared), additional_headers=bearer(token)) as phone:
                assert (await http.get(RULES, headers=bearer(token))).status_code == 200
                found = {it.id: it for it in await journal.access.tokens()}
                ended = replace(found[token_id(token)], revoked_at=journal.now_ms())
                await journal.access.keep_token(ended)
                since = time.monotonic()
                await until_closed(phone.recv)
                while (await http.get(RULES, headers=bearer(token))).status_code != 401:
                    pass
                took.append(time.monotonic() - since)
    await journal.aclose()
    assert statistics.median(took) < 1.0, took  # one of them may be late on a busy machine


async def test_a_server_that_is_told_to_end_first_closes_whatever_lasts(served: Served) -> None:
    headers = bearer(served.token())
    async with (
        connect(socket_url(served), additional_headers=headers) as laptop,
        httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=30) as http,
        http.stream("GET", FEED) as feed,
    ):
        told = feed.aiter_lines()
        while not (await anext(told)).startswith("data"):
            pass
        served.process.terminate()
        with suppress(httpx2.RemoteProtocolError):  # in the middle, as far as HTTP goes
            assert [line async for line in told if line.startswith("data")] == []
        await until_closed(laptop.recv)
        assert laptop.close_code == 1001


def test_what_other_machines_reach_has_to_be_encrypted(tmp_path: Path) -> None:
    _, certificate, _, key = new_authority(tmp_path, "desk.example").options
    for host in ("0.0.0.0", "192.168.1.2", "::", "desk.example"):
        with pytest.raises(SettingsError, match="encrypted"):
            Listening(host=host).check()
        Listening(host=host, certificate=certificate, key=key).check()
        Listening(host=host, url="https://desk.example").check()
    for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        Listening(host=host).check()


async def test_what_is_done_again_and_again_is_done_also_after_it_has_failed() -> None:
    calls, done = 0, asyncio.Event()

    async def look() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("can't start new thread")
        done.set()

    async with repeating(look, 0.0), asyncio.timeout(DEADLINE):
        await done.wait()


async def test_a_look_that_takes_long_puts_off_the_next_by_nothing() -> None:
    now = asyncio.get_running_loop().time
    begun: list[float] = []
    done = asyncio.Event()

    async def look() -> None:
        begun.append(now())
        if len(begun) == 6:
            done.set()
        await asyncio.sleep(0.1)

    async with repeating(look, 0.2), asyncio.timeout(DEADLINE):
        await done.wait()
    assert min(after - before for before, after in pairwise(begun)) < 0.29
