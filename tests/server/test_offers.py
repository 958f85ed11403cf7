"""Two editors in one session, each a real process, get only updates that they offered to show."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.editor import Editor, update_line
from tests.owners import program

OFFERS: dict[str, Any] = {"session": {"notices": {}, "compaction": {}}}

LINES = "\n".join(
    update_line(update)
    for update in (
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "one "}},
        {"sessionUpdate": "notice", "severity": "info", "title": "Look"},
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"},
        {
            "sessionUpdate": "compaction_summary_chunk",
            "compactionId": "c",
            "content": {"type": "text", "text": "all"},
        },
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "two"}},
    )
)

SPOKEN = {"agent_message_chunk", "user_message_chunk", "session_info_update"}


def kinds(editor: Editor) -> set[str]:
    return {update["sessionUpdate"] for update in editor.updates()}


async def test_the_second_editor_of_a_session_is_told_nothing_that_it_did_not_offer_to_show(
    journal: Path,
) -> None:
    async with (
        asyncio.timeout(120),
        program(journal, client=OFFERS) as one,
        program(journal) as two,
    ):
        session = await one.new()
        await two.load(session)
        await one.prompt(session, {"line": LINES})
        await two.until_text("one two")
        assert kinds(two) <= SPOKEN
        assert kinds(one) >= {"notice", "compaction_update", "compaction_summary_chunk"}
        async with program(journal) as three:
            await three.load(session)
            assert kinds(three) <= SPOKEN
            assert three.text() == "one two"
