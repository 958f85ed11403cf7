"""A compaction of the agent's context that nobody reports the end of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.editor import Talker
from tests.owners import program

pytestmark = pytest.mark.slow

OFFERS: dict[str, Any] = {"session": {"compaction": {}}}

BEGUN = {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"}


def compactions(client: Talker) -> list[dict[str, Any]]:
    return [u for u in client.updates() if u["sessionUpdate"] == "compaction_update"]


def chunk(text: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {
        "sessionUpdate": "compaction_summary_chunk",
        "compactionId": "c",
        "content": content,
    }


async def test_a_compaction_that_a_kill_of_acphold_cut_off_has_failed(journal: Path) -> None:
    async with asyncio.timeout(120), program(journal, client=OFFERS) as client:
        session = await client.new()
        client.begin_prompt(session, {"update": BEGUN}, {"say": "on"}, {"until": "cancel"})
        await client.until_text("on")
        await client.kill()
        async with program(journal, client=OFFERS) as back:
            await back.load(session)
            first, last = compactions(back)
            assert first == BEGUN
            assert last["status"] == "failed"
            assert "interrupted" in last["error"]
            assert "interrupted" in last["_meta"]["acphold/failed"]
            assert await back.prompt(session, {"say": "a"}) == {"stopReason": "end_turn"}


async def test_a_compaction_that_the_agent_was_at_when_it_died_has_failed(journal: Path) -> None:
    async with asyncio.timeout(120), program(journal, client=OFFERS) as client:
        session = await client.new()
        with pytest.raises(Exception, match="exit status 3"):
            await client.prompt(session, {"update": BEGUN}, {"exit": 3})
        first, last = compactions(client)
        assert (first, last["status"]) == (BEGUN, "failed")


async def test_a_compaction_that_was_cancelled_with_its_turn_is_cancelled(journal: Path) -> None:
    async with asyncio.timeout(120), program(journal, client=OFFERS) as client:
        session = await client.new()
        turn = client.begin_prompt(session, {"update": BEGUN}, {"say": "on"}, {"until": "cancel"})
        await client.until_text("on")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}
        first, last = compactions(client)
        assert (first, last["status"], last.get("error")) == (BEGUN, "cancelled", None)


async def test_a_summary_in_very_many_chunks_is_one_line_in_a_replay(journal: Path) -> None:
    steps: list[dict[str, Any]] = [{"update": chunk("x")}] * 1500
    over = {**BEGUN, "status": "completed"}
    async with asyncio.timeout(120), program(journal, client=OFFERS) as client:
        session = await client.talk({"update": BEGUN}, *steps, {"update": over})
        async with program(journal, client=OFFERS) as back:
            await back.load(session)
            told = [u for u in back.updates() if u["sessionUpdate"].startswith("compaction")]
            assert told == [BEGUN, chunk("x" * 1500), over]
