"""The audit log of a server: who did what, from where and when, and what is left out."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from subprocess import run
from typing import Any

import httpx2
import pytest

import acphold
from acphold.conversation.history.entries import now_ms
from acphold.errors import JournalError, RemoteError
from acphold.journal.access import Access, Deed
from acphold.journal.stores import open_journal
from acphold.web import bounds
from acphold.web.audit import Actor, Audit
from acphold.web.connections import Headers
from acphold.web.gate import Gate
from tests.web.conftest import ACPHOLD, Served, serving
from tests.web.in_process import request
from tests.web.test_gate import bearer

pytestmark = pytest.mark.slow


def audited(served: Served, *words: str) -> list[dict[str, Any]]:
    lines = served.run("access", "audit", "--json", *words).splitlines()
    return [json.loads(line) for line in lines]


async def test_what_is_done_is_written_down_with_who_and_from_where_and_nothing_of_what_was_said(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served:
        token = served.token("--name", "phone")
        async with acphold.connect(served.url, token=token) as agent:
            session = await agent.new_session(cwd=tmp_path)
            await session.prompt("quick: a secret word")
            [_ async for _ in agent.sessions()]
        code = {"code": served.pair, "name": "tablet"}
        httpx2.post(f"{served.url}/pair", json=code).raise_for_status()
        served.run("access", "revoke", token.split("_")[1])
    found = audited(served)  # at the end of the server all is written
    done = [(row["deed"], row["name"], row["transport"]) for row in found]
    assert done == [
        ("create token", "phone", "command"),
        ("session/new", "phone", "websocket"),
        ("session/prompt", "phone", "websocket"),
        ("pair", "tablet", "http"),
        ("revoke token", "phone", "command"),
    ]
    began, prompted = found[1:3]
    assert began["sessionId"] == prompted["sessionId"] == session.id
    assert prompted["address"] in ("127.0.0.1", "::1")
    assert prompted["token"] == token.split("_")[1]
    told = json.dumps(found)
    assert "secret word" not in told
    assert token not in told
    assert served.pair not in told
    assert audited(served, "--since", "2999-01-01") == []
    assert "phone" in served.run("access", "audit")


def test_nothing_that_a_stranger_has_named_is_a_line_of_the_log(tmp_path: Path) -> None:
    forged = "x\n2026-01-01T00:00:00Z  owner (1)  session/prompt"
    deed = Deed(at=1, deed=f"refused: {forged}", name=forged, token="t", session_id=forged)

    async def keep() -> None:
        journal = open_journal(tmp_path / "journal.db")
        await journal.access.keep_deeds([deed])
        await journal.aclose()

    asyncio.run(keep())
    env = {**os.environ, "ACPHOLD_JOURNAL": str(tmp_path / "journal.db")}
    told = run([*ACPHOLD, "access", "audit"], env=env, capture_output=True, text=True, check=True)
    [line] = told.stdout.splitlines()
    assert line.startswith("1970-01-01T00:00:00Z")


async def test_what_fails_is_written_down_too_and_no_name_is_too_long_for_the_log(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served:
        async with acphold.connect(served.url, token=served.token()) as agent:
            with pytest.raises(RemoteError):
                await agent.call("session/new", {"cwd": "relative", "mcpServers": []})
        watching = served.token("--name", "screen", "--scope", "watch")
        async with acphold.connect(served.url, token=watching) as agent:
            with pytest.raises(RemoteError):
                await agent.call("x" * ((16 << 20) - 100), {})
    found = [row["deed"] for row in audited(served) if row["name"] == "screen"]
    assert [it for it in found if re.fullmatch("refused: x{50,200}", it)], found
    assert [it["sessionId"] for it in audited(served) if it["deed"] == "session/new"] == [None]


async def test_who_is_refused_is_written_down_with_what_was_wrong_and_no_word_of_what_was_given(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served:
        good = served.token("--name", "phone")
        async with acphold.connect(served.url, token=good) as agent:
            session = await agent.new_session(cwd=tmp_path)
        watching = served.token("--name", "screen", "--scope", "watch", "--session", session.id)
        async with acphold.connect(served.url, token=watching) as agent:
            with pytest.raises(RemoteError):
                await (await agent.load_session(session.id, cwd=tmp_path)).prompt("quick: no")
        over = served.token("--name", "lost")
        served.run("access", "revoke", over.split("_")[1])
        guess = good[:-6] + "guess!"
        with httpx2.Client(base_url=served.url) as http:
            assert http.get("/metrics").status_code == 401
            assert http.get("/metrics", headers=bearer(over)).status_code == 401
            for _ in range(3):
                assert http.get("/metrics", headers=bearer(guess)).status_code == 401
            page = {**bearer(good), "Origin": "http://evil.example"}
            assert http.get("/metrics", headers=page).status_code == 403
            assert http.get("/health", headers={"Host": "evil.example"}).status_code == 421
            code = {"code": "0000000000", "name": "x"}
            assert http.post("/pair", json=code).status_code == 403
    found = audited(served)
    refused = [
        (row["deed"], row["name"], row["sessionId"], row["transport"])
        for row in found
        if row["deed"].startswith("refused")
    ]
    assert refused == [
        ("refused: session/prompt", "screen", session.id, "websocket"),
        ("refused: no token", "", None, "http"),
        ("refused: a token that is over", "lost", None, "http"),
        ("refused: a wrong token", "", None, "http"),
        ("refused: a page of another origin", "", None, "http"),
        ("refused: sent to a name that is not ours", "", None, "http"),
        ("refused: a wrong code", "", None, "http"),
        ("refused 2 times more: a wrong token", "", None, "http"),
    ]
    assert {row["address"] for row in found if "wrong" in row["deed"]} <= {"127.0.0.1", "::1"}
    told = json.dumps(found)
    assert "guess!" not in told
    assert "0000000000" not in told
    assert "unknown" in served.run("access", "audit")


class Writer:
    """A journal that can, or cannot, be written."""

    def __init__(self) -> None:
        self.works = False
        self.tried = asyncio.Event()
        self.kept: list[Deed] = []

    def now_ms(self) -> int:
        return now_ms()

    async def keep_deeds(self, deeds: list[Deed]) -> None:
        self.tried.set()
        if not self.works:
            raise JournalError("full")
        self.kept += deeds


async def test_what_cannot_be_written_yet_is_written_later_once() -> None:
    writer = Writer()
    audit = Audit(writer)  # type: ignore[arg-type]
    async with audit.kept():
        audit.note("a", None, who=Actor("n", "t", "", "http"))
        async with asyncio.timeout(10):
            await writer.tried.wait()
        writer.works = True
        audit.note("b", "s", who=Actor("n", "t", "", "http"), at=1)
        audit.refuse("c", "s", who=Actor("n", "t", "", "http"), at=2)
    assert [deed.deed for deed in writer.kept] == ["a", "b", "refused: c"]
    assert [deed.at for deed in writer.kept[1:]] == [1, 2]


async def test_no_more_than_a_name_needs_is_kept_of_what_a_client_has_said() -> None:
    writer = Writer()
    writer.works = True
    audit = Audit(writer)  # type: ignore[arg-type]
    name = "x" * bounds.DEED_CHARACTERS
    async with audit.kept():
        for number in range(2):  # the same, as far as they are kept
            audit.refuse(f"{name}{number}", name + "s", who=Actor())
    first, again = writer.kept
    assert (first.deed, first.session_id) == (f"refused: {name}"[: len(name)], name)
    assert again.deed == f"refused 1 times more: {name}"[: len(name)]


async def test_a_flood_of_refusals_is_counted_and_leaves_what_was_done_in_the_log() -> None:
    writer = Writer()
    writer.works = True
    audit = Audit(writer)  # type: ignore[arg-type]
    async with audit.kept():
        audit.note("session/prompt", "s", who=Actor("n", "t", "", "http"))
        for number in range(50_000):
            address = f"192.0.2.{number % 200}"
            audit.refuse("a wrong token", None, who=Actor("", "", address, ""))
    first, *refused = writer.kept
    assert first.deed == "session/prompt"
    assert len(refused) <= 2 * (bounds.DIFFERENT_ATTEMPTS + 1)
    found = [re.match(r"refused(?: (\d+) times more)?: ", deed.deed) for deed in refused]
    assert sum(int(it[1] or 1) for it in found if it is not None) == 50_000


def address(gate: Gate, headers: Headers, came: str) -> str:
    return gate.actor(request(headers, came), None).address


async def test_where_from_is_what_a_named_proxy_says_and_nobody_else() -> None:
    access: Access = Writer()  # type: ignore[assignment]
    gate = Gate(access, ["http://localhost:1"], proxies=["10.0.0.1"])
    headers = {"x-forwarded-for": "1.1.1.1, 192.0.2.7"}
    assert address(gate, headers, "10.0.0.1") == "192.0.2.7"
    assert address(gate, headers, "10.0.0.2") == "10.0.0.2"
    assert address(gate, {"x-forwarded-for": "evil\n"}, "10.0.0.1") == "10.0.0.1"
    assert address(gate, {}, "10.0.0.1") == "10.0.0.1"
