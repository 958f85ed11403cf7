"""Requests to an owner that is stopped, and answers nothing, are answered all the same."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.rpc import Peer
from acphold.journal.stores import open_journal
from acphold.live.server import bounds, remote_sessions
from acphold.live.server.far_line import FarLine
from acphold.live.server.remote_sessions import SessionLine
from tests.editor import DEADLINE, Editor
from tests.owners import program, silent
from tests.served import Guest, wrapped
from tests.server.posed_owner import posed_owner
from tests.server.test_owner_ends import kept, opened_at

pytestmark = pytest.mark.slow

MODES = {"currentModeId": "ask", "availableModes": [{"id": m, "name": m} for m in ("ask", "code")]}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent owner is found out at once."""
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(bounds, "UNTOLD_SECONDS", 0.3)


@asynccontextmanager
async def sharing(journal: Path) -> AsyncIterator[tuple[Editor, Guest, str]]:
    """An owner of a session, and a client of another process that has it open, too."""
    async with program(journal, modes=MODES) as owner, wrapped(journal, modes=MODES) as client:
        session = await owner.talk({"say": "hello "})
        await client.load(session)
        yield owner, client, session


async def test_a_prompt_that_is_cancelled_at_a_stopped_owner_is_answered(
    journal: Path, tmp_path: Path
) -> None:
    async with sharing(journal) as (owner, client, session):
        turn = client.begin_prompt(session, {"say": "on it"}, {"until": str(tmp_path / "never")})
        await client.until_text("on it")
        with silent(journal, owner):
            client.tell("session/cancel", {"sessionId": session})
            assert await turn == {"stopReason": "cancelled"}
        await client.prompt(session, {"say": "again"})


async def test_a_prompt_that_its_owner_refuses_because_it_has_lost_the_session_runs_at_the_next(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", 2 * DEADLINE)
    async with sharing(journal) as (owner, client, session):
        with silent(journal, owner):
            turn = client.begin_prompt(session, {"say": "you"})
            other = open_journal(journal)
            await other.release(await other.acquire(session))
            await other.aclose()
        assert await turn == {"stopReason": "end_turn"}
        assert client.text().endswith("you")


async def test_a_prompt_that_an_owner_begins_as_it_goes_on_is_not_taken_from_it(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owes, go_on = SessionLine._owes_a_beginning, FarLine._go_on
    looked, has_begun, is_back = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def look(line: SessionLine) -> bool:
        owed = await owes(line)
        looked.set()
        await has_begun.wait()
        return owed

    def note(line: FarLine, server: Peer) -> None:
        is_back.set()
        go_on(line, server)

    monkeypatch.setattr(SessionLine, "_owes_a_beginning", look)
    async with sharing(journal) as (owner, client, session):
        monkeypatch.setattr(FarLine, "_go_on", note)
        with silent(journal, owner):
            turn = client.begin_prompt(session, {"say": "once "}, {"until": str(tmp_path / "go")})
            async with asyncio.timeout(DEADLINE):
                await looked.wait()
        await owner.until_text("once ")
        has_begun.set()
        async with asyncio.timeout(DEADLINE):
            await is_back.wait()
        (tmp_path / "go").touch()
        assert await turn == {"stopReason": "end_turn"}
        assert client.text().count("once ") == owner.text().count("once ") == 1


@pytest.mark.of_a_file
async def test_an_owner_that_takes_its_time_and_reports_that_it_is_there_keeps_the_session(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: asyncio.Queue[None] = asyncio.Queue()
    check = SessionLine.check

    async def noted(line: SessionLine) -> None:
        await check(line)
        looks.put_nowait(None)

    monkeypatch.setattr(SessionLine, "check", noted)
    async with kept(journal) as (client, session), posed_owner(journal, session) as owner:
        await opened_at(owner, client, session)
        late = client.begin("session/set_mode", {"sessionId": session, "modeId": "code"})
        asked = await owner.next("session/set_mode")
        for _ in range(3):
            await asyncio.wait_for(looks.get(), DEADLINE)
        owner.answer(asked, {"late": True})
        assert await late == {"late": True}


async def test_who_waits_for_a_stopped_owner_is_told_so_and_when_it_goes_on(
    journal: Path,
) -> None:
    async with sharing(journal) as (owner, client, session):
        os.kill(owner.process.pid, signal.SIGSTOP)
        try:
            turn = client.begin_prompt(session, {"say": "at last"}, {"until": "cancel"})
            await client.until_text(remote_sessions.MUTE)
        finally:
            os.kill(owner.process.pid, signal.SIGCONT)
        await client.until_text(remote_sessions.RESPONDING)
        await client.until_text("at last")
        client.tell("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}
