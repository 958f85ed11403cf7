"""Reports for the page, made from the journal: a row, the usage, a session as a file."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.exports import page
from tests.conversations import chunk
from tests.journal.conversations import turn
from tests.web.in_process import Site, site

SAID = turn("Where is it?", chunk("agent_message", "<script>there</script>"))


async def test_a_session_is_told_by_its_id_whatever_the_list_has(web: Site) -> None:
    await web.remember("one", SAID, title="Hay", cwd="/hay")
    row = (await web.get("/sessions/one")).json
    assert (row["sessionId"], row["title"], row["cwd"]) == ("one", "Hay", "/hay")
    assert (await web.get("/sessions/two")).status == 404


async def test_a_session_is_a_file_that_no_browser_shows_at_our_address(web: Site) -> None:
    await web.remember("one", SAID, title='../„Ö"\r\nX: y; 会話')
    answer = await web.get("/sessions/one/export")
    assert answer.status == 200
    name = answer.headers["content-disposition"].removeprefix("attachment; filename*=UTF-8''")
    assert re.fullmatch("o-x-y-one-[0-9a-f]{8}.html", name)
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert b"&lt;script&gt;there" in answer.body
    assert (await web.get("/sessions/two/export")).status == 404


async def test_others_read_while_a_session_becomes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[str] = []
    others: list[int] = []
    written = page.page

    async def watched(*given: Any) -> AsyncIterator[str]:
        async for piece in written(*given):
            assert others == list(range(len(pieces)))  # each had its turn
            asyncio.get_running_loop().call_soon(others.append, len(pieces))
            pieces.append(piece)
            yield piece

    monkeypatch.setattr(page, "page", watched)
    async with site(tmp_path) as served:
        await served.remember("one", SAID)
        answer = await served.get("/sessions/one/export")
    assert answer.body.decode() == "".join(pieces)
    assert not any("Where is it?" in piece and "there" in piece for piece in pieces)


async def test_what_was_used_is_told_by_day_agent_and_model(web: Site) -> None:
    await web.remember("one", SAID)
    (day,) = (await web.get("/usage?by=day")).json["sums"]
    assert (day["sessions"], day["totalTokens"]) == (1, None)
    assert (await web.get("/usage?by=agent")).json["sums"][0]["agent"] == "scripted"
    assert (await web.get("/usage?by=model")).json["sums"][0]["model"] is None
    assert (await web.get("/usage?by=year")).status == 400
