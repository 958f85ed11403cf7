"""A session outlives the processes of `acphold wrap`, and goes on in new ones."""

from __future__ import annotations

from pathlib import Path

from tests.editor import editor, introduced, scripted_agent
from tests.owners import lone_command


async def test_a_session_survives_its_processes_and_goes_on(journal: Path) -> None:
    command = lone_command(scripted_agent())
    async with introduced(command, journal=journal) as first:
        session = await first.talk({"think": "hm"}, {"say": "one "}, {"say": "two"})
        await first.kill()
    async with editor(command, journal=journal) as second:
        answer = await second.initialize()
        assert answer["agentCapabilities"]["loadSession"] is True
        listed = await second.sessions()
        assert [info["sessionId"] for info in listed] == [session]
        await second.load(session)
        assert second.text() == "one two"
        assert second.text("agent_thought_chunk") == "hm"
        assert await second.prompt(session, "and now?") == {"stopReason": "end_turn"}
        assert "one two" in second.text()[len("one two") :]
        assert await second.leave() == 0
