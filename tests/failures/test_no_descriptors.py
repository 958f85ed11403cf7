"""Without a free descriptor nothing is lost, and everybody who waits gets an error."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from acphold.live.server.reconnection import AWAY
from acphold.live.server.remote_sessions import OWNER
from tests.editor import Editor, Refused, agent_pid
from tests.owners import program
from tests.watched_processes import below, gone, until

NOTICES: dict[str, Any] = {"session": {"notices": {}}}


def allow(client: Editor, descriptors: int | None = None) -> None:
    """Have the program of this client use no higher descriptors for new files; None: any."""
    pid = client.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    most = hard if descriptors is None else descriptors
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))


def descriptors_of(client: Editor) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{client.process.pid}/fd")}


@asynccontextmanager
async def at_a_new_owner(journal: Path) -> AsyncIterator[tuple[Editor, Editor, str]]:
    """A client whose owner was killed, and that cannot reach the next one; a client of that."""
    how: dict[str, Any] = {"client": NOTICES}
    async with (
        program(journal, **how) as owner,
        program(journal, "--log-level", "info", **how) as client,
        program(journal, **how) as other,
    ):
        session = await owner.talk({"say": "one "})
        await client.load(session)
        await other.load(session)
        os.kill(client.process.pid, signal.SIGSTOP)
        try:
            allow(client, 3)
            await owner.kill()
            await other.prompt(session, {"say": "two "})
        finally:
            os.kill(client.process.pid, signal.SIGCONT)
        await until(lambda: b"Too many open files" in client.stderr)
        yield client, other, session


async def test_a_client_follows_its_session_once_a_descriptor_is_free(journal: Path) -> None:
    async with at_a_new_owner(journal) as (client, other, session):
        await client.until(lambda: AWAY.format(OWNER) in str(client.updates()))
        turn = client.begin_prompt(session, {"say": "three "})
        allow(client)
        assert await turn == {"stopReason": "end_turn"}
        await other.until_text("three ")
        assert client.text() == other.text() == "one two three "
        assert b"Traceback" not in client.stderr


async def test_an_agent_that_cannot_be_started_for_want_of_descriptors_takes_none_for_ever(
    journal: Path,
) -> None:
    async with program(journal, client=NOTICES) as client:
        session = await client.talk({"say": "one "})
        usual = 0
        for free in range(1, 7):  # at least one, to find the processes in /proc
            agent, before = agent_pid(client), len(descriptors_of(client))
            os.kill(agent, signal.SIGKILL)
            await gone({agent})
            while len(descriptors_of(client)) == before:  # noqa: ASYNC110 - nothing is told
                await asyncio.sleep(0.01)
            lowest = [n for n in range(100) if n not in descriptors_of(client)]
            allow(client, lowest[free])
            with suppress(Refused):  # where it needs no more
                await client.prompt(session, {"say": "perhaps "})
            allow(client)
            assert await client.prompt(session, {"say": "again "}) == {"stopReason": "end_turn"}
            usual = usual or len(descriptors_of(client)) + 1  # the watch over sockets opens late
            assert len(descriptors_of(client)) <= usual
            assert len(below(client.process.pid)) == 2  # the agent and its guardian
        assert b"Traceback" not in client.stderr
