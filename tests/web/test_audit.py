"""Who did what by a server, from where and when: what is written down, and what is not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2

import acphold
from acphold.errors import JournalError
from acphold.journal.access import Access, Deed
from acphold.web.audit import Audit
from acphold.web.gate import Came, Gate
from tests.web.conftest import Served, serving


def audited(served: Served, *words: str) -> list[dict[str, Any]]:
    lines = served.run("token", "audit", "--json", *words).splitlines()
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
        served.run("token", "revoke", token.split("_")[1])
    found = audited(served)  # at the end of the server all is written
    done = [(row["deed"], row["name"], row["transport"]) for row in found]
    assert done == [
        ("create token", "phone", "command"),
        ("session/new", "phone", "websocket"),
        ("session/prompt", "phone", "websocket"),
        ("pair", "tablet", "http"),
        ("revoke token", "phone", "command"),
    ]
    prompted = found[2]
    assert prompted["sessionId"] == session.id
    assert prompted["address"] in ("127.0.0.1", "::1")
    assert prompted["token"] == token.split("_")[1]
    told = json.dumps(found)
    assert "secret word" not in told
    assert token not in told
    assert served.pair not in told
    assert audited(served, "--since", "2999-01-01") == []
    assert "phone" in served.run("token", "audit")


class Writer:
    """A journal that can, or cannot, be written."""

    def __init__(self) -> None:
        self.works = False
        self.tried = asyncio.Event()
        self.kept: list[Deed] = []

    async def keep_deeds(self, deeds: list[Deed]) -> None:
        self.tried.set()
        if not self.works:
            raise JournalError("full")
        self.kept += deeds


async def test_what_cannot_be_written_yet_is_written_later_once() -> None:
    writer = Writer()
    audit = Audit(writer)  # type: ignore[arg-type]
    async with audit.kept():
        audit.note("a", None, name="n", token="t", address="", transport="http")
        async with asyncio.timeout(10):
            await writer.tried.wait()
        writer.works = True
        audit.note("b", "s", name="n", token="t", address="", transport="http")
    assert [deed.deed for deed in writer.kept] == ["a", "b"]


async def test_where_from_is_what_a_named_proxy_says_and_nobody_else() -> None:
    access: Access = Writer()  # type: ignore[assignment]
    gate = Gate(access, ["http://localhost:1"], proxies=["10.0.0.1"])
    headers = {"x-forwarded-for": "1.1.1.1, 192.0.2.7"}
    assert gate.address(headers, Came("10.0.0.1", "http")) == "192.0.2.7"
    assert gate.address(headers, Came("10.0.0.2", "http")) == "10.0.0.2"
    assert gate.address({"x-forwarded-for": "evil\n"}, Came("10.0.0.1", "http")) == "10.0.0.1"
    assert gate.address({}, Came("10.0.0.1", "http")) == "10.0.0.1"
