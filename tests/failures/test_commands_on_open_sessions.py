"""What becomes of the clients that have a session open when a command takes or changes it.

Each test is a row of the table in docs/operations.md.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.editor import DEADLINE, Editor, Refused, introduced, scripted_agent, wrap_command

NOTICES: dict[str, Any] = {"session": {"notices": {}}}
WATCHES: dict[str, Any] = {**NOTICES, "_meta": {"acphold/watches": True}}

DELETED = "This session was deleted"


@asynccontextmanager
async def open_to_three(journal: Path) -> AsyncIterator[tuple[list[Editor], str]]:
    """Three clients with a session, each behind its own acphold; the last one only looks on."""
    command = wrap_command(scripted_agent())
    async with (
        introduced(command, journal=journal, client=NOTICES) as one,
        introduced(command, journal=journal, client=NOTICES) as two,
        introduced(command, journal=journal, client=WATCHES) as three,
    ):
        session = await one.talk({"say": "before "})
        await two.load(session)
        await three.load(session)
        yield [one, two, three], session


async def run(journal: Path, *arguments: str) -> str:
    """What a command of acphold prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acphold", *arguments, "--journal", str(journal)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0, err
    return out.decode()


def titles(client: Editor) -> list[str]:
    """The titles of the notices that this client got, and those of the session."""
    return [update["title"] for update in client.updates() if update.get("title")]


async def until_titled(client: Editor, title: str) -> None:
    await client.until(lambda: title in titles(client))


async def test_delete_tells_all_at_once_and_ends_a_running_turn_with_an_error(
    journal: Path,
) -> None:
    async with open_to_three(journal) as (clients, session):
        running = clients[1].begin_prompt(session, {"say": "half"}, {"until": "cancel"})
        for client in clients:
            await client.until_text("half")
        await run(journal, "delete", "--yes", session)
        for client in clients:
            await until_titled(client, DELETED)
        with pytest.raises(Refused, match="deleted"):
            await running
        for client in clients:
            with pytest.raises(Refused, match="deleted"):
                await client.prompt(session, {"say": "on"})
        assert [titles(client).count(DELETED) for client in clients] == [1, 1, 1]
        assert await clients[0].sessions() == []


async def test_a_client_that_deletes_what_is_open_elsewhere_has_all_who_have_it_open_told(
    journal: Path,
) -> None:
    async with open_to_three(journal) as (clients, session):
        async with introduced(wrap_command(scripted_agent()), journal=journal) as other:
            await other.call("session/delete", {"sessionId": session})
        for client in clients:
            await until_titled(client, DELETED)
