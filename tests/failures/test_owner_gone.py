"""Whatever is asked of an owner that hangs, or is killed in that moment, comes to an end: by then
the journal has said that its session is free, and the next owner does it, or the client is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from acphold.errors import ConnectionLostError
from acphold.journal.bounds import SILENT_SECONDS
from acphold.journal.journal import Journal
from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal
from acphold.live.agents.capabilities import QUEUE_METHOD
from acphold.live.reading import bounds as reading_bounds
from acphold.live.reading.one_question import ask_queue, telling_owners
from acphold.live.server import bounds
from tests.editor import DEADLINE, Refused
from tests.owners import make_silent, program
from tests.served import Guest, wrapped

LEFT_SECONDS = 2.0
"""What is left of the time of silence of the owner that hangs."""

MODES = {"currentModeId": "ask", "availableModes": [{"id": m, "name": m} for m in ("ask", "code")]}

Ask = Callable[[Guest, Journal, str], Awaitable[object]]


async def prompt(client: Guest, _: Journal, session: str) -> None:
    await client.prompt(session, {"say": "ONCE"})
    assert client.text(session_id=session).count("ONCE") == 1


async def cancel(client: Guest, _: Journal, session: str) -> None:
    turn = client.begin_prompt(session, {"say": "NEVER"}, {"until": "cancel"})
    client.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}


async def set_mode(client: Guest, _: Journal, session: str) -> None:
    assert await client.call("session/set_mode", {"sessionId": session, "modeId": "code"}) == {}


async def close(client: Guest, _: Journal, session: str) -> None:
    assert await client.call("session/close", {"sessionId": session}) == {}
    await client.load(session)


async def delete(client: Guest, _: Journal, session: str) -> None:
    assert await client.call("session/delete", {"sessionId": session}) == {}
    assert session not in [info["sessionId"] for info in await client.sessions()]


async def change_its_queue(client: Guest, _: Journal, session: str) -> None:
    change = {"do": "add", "prompt": [{"type": "text", "text": "later"}]}
    with pytest.raises(Refused, match="unknown if that was done"):
        await client.call(QUEUE_METHOD, {"sessionId": session, "change": change})


async def use_an_extension(client: Guest, _: Journal, session: str) -> None:
    with pytest.raises(Refused, match="unknown if that was done"):
        await client.call("_vendor/method", {"sessionId": session})


async def load_again(client: Guest, _: Journal, session: str) -> None:
    await client.load(session)


async def read_its_queue_from_outside(_: Guest, journal: Journal, session: str) -> None:
    with suppress(ConnectionLostError):  # or its session was free by then
        await ask_queue(journal, session)


async def tell_it_a_change(_: Guest, journal: Journal, session: str) -> None:
    async with telling_owners(journal, [session]):
        await journal.change(session, RowChange(given="Mine"))


async def load(client: Guest, _: Journal, session: str) -> None:
    await client.load(session)


async def resume(client: Guest, _: Journal, session: str) -> None:
    await client.resume(session)


OPEN: tuple[Ask, ...] = (
    *(prompt, cancel, set_mode, close, delete, change_its_queue, use_an_extension, load_again),
    *(read_its_queue_from_outside, tell_it_a_change),
)
"""What is asked about a session that the client has open."""

NOT_OPEN: tuple[Ask, ...] = (load, resume)


@pytest.mark.parametrize("how", ["hangs", "is killed"])
async def test_all_that_an_owner_owes_when_it_is_gone_is_answered(
    journal: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", 0.1)
    for name in ("OWNER_ANSWER_SECONDS", "CLIENT_ANSWER_SECONDS"):
        monkeypatch.setattr(reading_bounds, name, LEFT_SECONDS)
    async with (
        wrapped(journal, modes=MODES) as client,
        program(journal, modes=MODES) as owner,  # ends first: it may be on its way to us
        aclosing(open_journal(journal)) as beside,
    ):
        sessions = {ask: await owner.talk({"say": "hello "}) for ask in (*OPEN, *NOT_OPEN)}
        for ask in OPEN:
            await client.load(sessions[ask])
        os.kill(owner.process.pid, signal.SIGSTOP)
        try:
            make_silent(journal, owner.process.pid, SILENT_SECONDS - LEFT_SECONDS)
            async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as asking:
                for ask, session in sessions.items():
                    asking.create_task(asyncio.wait_for(ask(client, beside, session), DEADLINE))
                if how == "is killed":
                    await client.refused("no/such", {})  # all were read
                    await owner.kill()
        finally:
            with suppress(ProcessLookupError):
                os.kill(owner.process.pid, signal.SIGCONT)
        for ask in sessions.keys() - {delete, tell_it_a_change, read_its_queue_from_outside}:
            await client.prompt(sessions[ask], {"say": "again"})
            assert client.text(session_id=sessions[ask]).endswith("again")
        assert "NEVER" not in client.text(session_id=sessions[cancel])
