"""A session that the agent has open in another process of its own: said plainly, and readable."""

from __future__ import annotations

import asyncio
from pathlib import Path

from acphold.errors import RemoteError
from tests.hub.shared import shared

DEADLINE = 30


async def test_a_session_that_is_held_outside_is_shown_and_it_is_said_how_to_go_on(
    journal: Path,
) -> None:
    async with asyncio.timeout(DEADLINE):
        async with shared(journal) as before:
            _one, session = await before.talked("say it", "said before")
        async with shared(journal) as house:
            house.agent.can("load", "resume")
            refusal = RemoteError(-32603, "Session is already open in another process")
            house.agent.results = {"session/load": refusal, "session/resume": refusal}
            other = await house.loaded(session, session={"notices": {}})
            assert other.text() == "said before"  # it can be read
            await other.until(lambda: [u for u in other.updates() if "notice" in str(u)])
            [told] = [u for u in other.updates() if u["sessionUpdate"] == "notice"]
            assert "in another process" in told["title"]
            assert f"acphold continue {session} --from last" in told["description"]
