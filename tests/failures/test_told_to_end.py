"""acphold is told to end, or its editor leaves: everybody who waits for an answer gets one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acphold.journal.owners import At
from acphold.journal.stores import open_journal
from tests.distributions import ROOT
from tests.editor import Editor, Refused, Talker, editor, introduced, scripted_agent
from tests.owners import lone_command
from tests.watched_processes import until

CANCELLED = {"stopReason": "cancelled"}

HOW = ["SIGTERM", "SIGINT", "SIGHUP", "EOF"]


def end(client: Editor, how: str) -> None:
    """Have the program that this client talks to end, while the client reads on."""
    if how == "EOF":
        assert client.process.stdin is not None
        client.process.stdin.close()
    else:
        os.kill(client.process.pid, signal.Signals[how])


@pytest.mark.parametrize("how", HOW)
async def test_all_prompts_are_answered_and_all_else_that_was_asked_is_refused(
    journal: Path, how: str
) -> None:
    command = lone_command(scripted_agent(silent=["_vendor/slow"]))
    async with introduced(command, journal=journal, client={"session": {"notices": {}}}) as client:
        session, deaf = await client.new(), await client.new()
        turns = [
            client.begin_prompt(session, {"say": "a"}, {"until": "cancel"}),
            client.begin_prompt(session, {"say": "never"}),
            client.begin_prompt(deaf, {"say": "b"}, {"until": "cancel ignored"}),
        ]
        asked = client.begin("_vendor/slow", {})
        await client.until(lambda: len(client.text()) == 2)
        end(client, how)
        assert await asyncio.gather(*turns) == [CANCELLED] * 3
        if how == "EOF":
            await asyncio.wait([asked])  # nobody is left to care
        else:
            with pytest.raises(Refused, match="was stopped"):
                await asked
        assert await asyncio.wait_for(client.process.wait(), 60) == 0
        await client.ended()
        told = [update.get("title") for update in client.updates()]
        assert told.count("acphold has stopped") == (0 if how == "EOF" else 2)


async def test_what_is_started_by_nohup_goes_on_ignoring_what_that_ignores(
    journal: Path,
) -> None:
    ignoring = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh", *lone_command(scripted_agent())]
    async with introduced(ignoring, journal=journal) as client:
        session = await client.new()
        turn = client.begin_prompt(session, {"say": "a"}, {"until": "cancel"})
        await client.until(lambda: client.text() == "a")
        for how in ("SIGINT", "SIGHUP"):
            end(client, how)
        assert await client.sessions() is not None
        assert not turn.done()
        end(client, "SIGTERM")
        assert await turn == CANCELLED
        assert await asyncio.wait_for(client.process.wait(), 60) == 0


def test_in_a_background_job_tests_start_programs_that_ctrl_c_ends() -> None:
    shows = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    runs = f"subprocess.run([sys.executable, '-c', {shows!r}])"
    starts = f"import sys, subprocess, tests.conftest; {runs}"
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", starts]
    shown = subprocess.run(ignoring, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert shown.stdout == "True\n"


async def test_what_was_asked_while_the_agent_starts_is_refused_with_a_reason(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = lone_command(scripted_agent(initialize="never", log=str(log)))
    async with editor(command, journal=journal) as client:
        starting = client.begin("initialize", {"protocolVersion": 1})
        await until(log.exists)
        end(client, "SIGTERM")
        with pytest.raises(Refused, match="was stopped"):
            await starting


class Neighbour(Talker):
    """A client of another program on the socket of acphold, which is no acphold itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer

    def send_line(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def read_line(self) -> bytes:
        return await self._reader.readline()


@asynccontextmanager
async def neighbour(journal: Path, session: str) -> AsyncIterator[Neighbour]:
    """One that has loaded this session, in the process that has it."""
    kept = open_journal(journal)
    whose = await kept.owner(session)
    await kept.aclose()
    assert isinstance(whose, At)
    path = urlsplit(whose.owner.addresses[0]).path
    client = Neighbour(*await asyncio.open_unix_connection(path))
    reading = asyncio.create_task(client.read())
    try:
        await client.initialize()
        await client.load(session)
        yield client
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        client._writer.close()


@pytest.mark.parametrize("how", HOW)
async def test_a_client_that_shares_a_session_is_answered_and_told_that_its_process_has_ended(
    journal: Path, how: str, client: Editor
) -> None:
    session = await client.talk({"say": "before "})
    async with neighbour(journal, session) as other:
        theirs = client.begin_prompt(session, {"say": "half "}, {"until": "cancel"})
        await other.until_text("half ")
        turn = other.begin_prompt(session, {"say": "never"})
        await other.call("session/list", {})  # behind it
        end(client, how)
        assert [await theirs, await turn] == [CANCELLED] * 2
        await other.until_text("stopped")
        assert other.text().startswith("before half \n\n[acphold] acphold has stopped")
