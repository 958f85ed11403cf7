"""A client whose session's owner ends at a bad moment.

The owners are played (tests/server/posed_owner.py), except in the last test: there the owner is the
client's own process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_wire.errors import RESOURCE_NOT_FOUND
from acp_wire.rpc import NotificationReceived
from acp_wire.transports import pipes
from acphold.errors import LeaseLostError
from acphold.journal.stores import open_journal
from acphold.live.agents.capabilities import POSITIONS
from acphold.live.hub import bounds as hub_bounds
from acphold.live.hub.attachment import Attachment
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.server import bounds, reconnection
from acphold.live.server.far_line import FarLine
from acphold.live.server.remote_sessions import OWNER
from tests.editor import DEADLINE, Refused, open_params, prompt_params, scripted_agent
from tests.served import Guest, guest
from tests.server.posed_owner import PosedOwner, posed_owner

AWAY, BACK = (title.format(OWNER) for title in (reconnection.AWAY, reconnection.BACK))

NOTICES: dict[str, Any] = {"session": {"notices": {}}}


@asynccontextmanager
async def kept(journal: Path) -> AsyncIterator[tuple[Guest, str]]:
    """A client, and a session in which `hello ` was said and that nobody has open."""
    command = scripted_agent()
    async with guest(command, journal) as one:
        await one.initialize()
        session = await one.new()
        await one.prompt(session, {"say": "hello "})
    async with guest(command, journal) as other:
        await other.initialize(**NOTICES)
        yield other, session


async def opened_at(owner: PosedOwner, client: Guest, session: str) -> None:
    """The client has loaded the session there, and has seen all of it."""
    loading = client.begin("session/load", open_params(session, "/"))
    request = await owner.next("session/load")
    owner.tell(request, 4, "hello ")
    owner.answer(request)
    await loading


@asynccontextmanager
async def opened_again(
    journal: Path, client: Guest, session: str
) -> AsyncIterator[tuple[PosedOwner, dict[str, Any]]]:
    """The next owner and its request to open the session again: the one that it was opened at has
    died."""
    async with posed_owner(journal, session) as first:
        await opened_at(first, client, session)
        async with posed_owner(journal, session) as second:
            first.die()
            yield second, await second.next("session/resume")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a line has heard something, for which its client may have no room."""
    event, hear = asyncio.Event(), FarLine.on_notifications

    def noted(self: FarLine, batch: list[NotificationReceived]) -> Awaitable[None] | None:
        event.set()
        return hear(self, batch)

    monkeypatch.setattr(FarLine, "on_notifications", noted)
    monkeypatch.setattr(
        pipes, "TURN_BYTES", 64 * hub_bounds.LAG_BYTES
    )  # else others run behind so much
    return event


async def dies_behind_its_answer(
    owner: PosedOwner, request: dict[str, Any], client: Guest, heard: asyncio.Event
) -> None:
    """The answer, and the end behind it, are read in one step: when the client reads on."""
    client.reads.clear()
    owner.tell(request, 3, "hello ")  # this it still reads
    await client.until_text("hello ")
    heard.clear()
    owner.tell(request, 4, "x" * 2 * hub_bounds.LAG_BYTES)
    await asyncio.wait_for(heard.wait(), DEADLINE)
    owner.answer(request)
    await owner.has_died()
    client.reads.set()


@pytest.mark.of_a_file
async def test_an_owner_that_dies_right_behind_its_answer_to_a_load_is_followed(
    journal: Path, heard: asyncio.Event
) -> None:
    async with kept(journal) as (other, session), posed_owner(journal, session) as owner:
        loading = other.begin("session/load", open_params(session, "/"))
        await dies_behind_its_answer(owner, await owner.next("session/load"), other, heard)
        await loading
        await other.prompt(session, {"say": "again"})
        assert other.text().endswith("xagain")


@pytest.mark.of_a_file
async def test_an_owner_that_dies_right_behind_its_answer_to_who_comes_back_is_followed(
    journal: Path, heard: asyncio.Event
) -> None:
    async with kept(journal) as (other, session):
        async with opened_again(journal, other, session) as (second, request):
            await dies_behind_its_answer(second, request, other, heard)
        await other.prompt(session, {"say": "again"})
        assert other.text().endswith("again")


@pytest.mark.of_a_file
async def test_owners_that_die_one_after_the_other_while_they_open_a_session_are_all_followed(
    journal: Path,
) -> None:
    async with kept(journal) as (other, session), AsyncExitStack() as stack:
        owner = await stack.enter_async_context(posed_owner(journal, session))
        await opened_at(owner, other, session)
        for _ in range(3):
            taker = await stack.enter_async_context(posed_owner(journal, session))
            owner.die()
            await taker.next("session/resume")
            owner = taker
        owner.die()
        await other.prompt(session, {"say": "again"})
        assert other.text() == "hello again"


@pytest.mark.of_a_file
async def test_who_waits_for_a_session_that_is_opened_again_is_told_so_and_when_it_is_there(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "UNTOLD_SECONDS", 0.0)
    async with (
        kept(journal) as (other, session),
        opened_again(journal, other, session) as (second, request),
    ):
        await other.until(lambda: AWAY in str(other.updates(session)))
        second.answer(request)
        await other.until(lambda: BACK in str(other.updates(session)))


@pytest.mark.of_a_file
@pytest.mark.parametrize("silent", ["while it is loaded", "while it is opened again"])
async def test_an_owner_that_is_stopped_while_it_opens_a_session_is_not_waited_for(
    journal: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setattr(bounds, "OWNER_CHECK_SECONDS", 0.1)
    async with kept(journal) as (other, session), AsyncExitStack() as stack:
        owner = await stack.enter_async_context(posed_owner(journal, session))
        if silent == "while it is loaded":
            loading = other.begin("session/load", open_params(session, "/"))
            await owner.next("session/load")
        else:
            await opened_at(owner, other, session)
            second = await stack.enter_async_context(posed_owner(journal, session))
            owner.die()
            await second.next("session/resume")
            owner = second
            loading = other.begin("session/set_mode", {"sessionId": session, "modeId": "x"})
        owner.answers = False
        owner.has_reported(60)
        await loading
        await other.prompt(session, {"say": "again"})
        assert other.text() == "hello again"


@pytest.mark.of_a_file
async def test_a_client_that_closes_a_session_while_it_is_opened_for_it_again_hears_no_more_of_it(
    journal: Path,
) -> None:
    async with (
        kept(journal) as (other, session),
        opened_again(journal, other, session) as (second, request),
    ):
        await other.call("session/close", {"sessionId": session})
        second.answer(request)  # too late to know
        second.tell(request, 5, "nobody is here")
        mode = other.begin("session/set_mode", {"sessionId": session, "modeId": "x"})
        await asyncio.wait([mode])
        assert mode.exception()
        assert "nobody" not in other.text()
        assert "$/cancel_request" in [message["method"] for message in second.told]


@pytest.mark.of_a_file
async def test_a_prompt_that_is_cancelled_while_its_session_is_opened_again_is_not_sent_again(
    journal: Path,
) -> None:
    async with kept(journal) as (other, session), AsyncExitStack() as stack:
        first = await stack.enter_async_context(posed_owner(journal, session))
        await opened_at(first, other, session)
        turn = other.begin("session/prompt", prompt_params(session, {"say": "never"}))
        await first.next("session/prompt")
        second = await stack.enter_async_context(posed_owner(journal, session))
        first.die()
        request = await second.next("session/resume")
        other.tell("session/cancel", {"sessionId": session})
        await other.refused("no/such", {})  # it has been read
        second.answer(request)
        assert await turn == {"stopReason": "cancelled"}
        assert second.asked.empty()


@pytest.mark.of_a_file
async def test_a_load_that_its_client_cancels_leaves_the_owner(journal: Path) -> None:
    async with kept(journal) as (other, session), posed_owner(journal, session) as owner:
        loading = other.begin("session/load", open_params(session, "/"))
        request = await owner.next("session/load")
        other.tell("$/cancel_request", {"requestId": other.last_id})
        with pytest.raises(Refused, match="-32800"):
            await loading
        owner.refuse(request)
        await asyncio.wait_for(owner.left.wait(), DEADLINE)


@pytest.mark.of_a_file
async def test_a_client_that_leaves_has_left_the_owners_of_its_sessions(journal: Path) -> None:
    async with kept(journal) as (other, session), posed_owner(journal, session) as owner:
        await opened_at(owner, other, session)
        await other.leave()
        await asyncio.wait_for(owner.left.wait(), DEADLINE)


@pytest.mark.of_a_file
async def test_a_cancel_without_a_connection_does_not_hit_the_prompt_behind_it(
    journal: Path,
) -> None:
    async with (
        kept(journal) as (other, session),
        opened_again(journal, other, session) as (second, request),
    ):
        other.tell("session/cancel", {"sessionId": session})
        turn = other.begin("session/prompt", prompt_params(session, {"say": "again"}))
        mode = other.begin("session/set_mode", {"sessionId": session, "modeId": "x"})
        await other.refused("no/such", {})  # they have been read
        second.answer(request)
        second.answer(await second.next("session/prompt"), {"stopReason": "end_turn"})
        second.answer(await second.next("session/set_mode"))
        await mode
        assert await turn == {"stopReason": "end_turn"}
        assert "session/cancel" not in [message["method"] for message in second.told]


@pytest.mark.of_a_file
async def test_a_prompt_for_which_its_session_is_not_open_there_any_more_is_sent_again_once(
    journal: Path,
) -> None:
    async with kept(journal) as (other, session), posed_owner(journal, session) as owner:
        owner.can = {"_meta": {POSITIONS: True}}
        await opened_at(owner, other, session)
        turn = other.begin("session/prompt", prompt_params(session, {"say": "one"}))
        owner.refuse(await owner.next("session/prompt"), RESOURCE_NOT_FOUND, "not open here")
        owner.answer(await owner.next("session/resume"))
        owner.answer(await owner.next("session/prompt"), {"stopReason": "end_turn"})
        assert await turn == {"stopReason": "end_turn"}
        turn = other.begin("session/prompt", prompt_params(session, {"say": "two"}))
        owner.refuse(await owner.next("session/prompt"), RESOURCE_NOT_FOUND, "not open here")
        owner.answer(await owner.next("session/resume"))
        owner.refuse(await owner.next("session/prompt"), RESOURCE_NOT_FOUND, "no such thing")
        with pytest.raises(Refused, match="no such thing"):
            await turn


@pytest.mark.of_a_file
async def test_a_client_is_told_when_its_session_was_deleted_as_its_owner_ended(
    journal: Path,
) -> None:
    async with kept(journal) as (other, session), posed_owner(journal, session) as owner:
        await opened_at(owner, other, session)
        writer = open_journal(journal)
        await writer.delete(session)
        await writer.aclose()
        owner.die()
        await other.until(lambda: "notice" in [u["sessionUpdate"] for u in other.updates()])
        [notice] = [u for u in other.updates() if u["sessionUpdate"] == "notice"]
        assert "was deleted" in notice["title"]


@pytest.mark.of_a_file
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_that_another_process_takes_while_it_is_opened_here_is_opened_there(
    journal: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async with kept(journal) as (other, session), AsyncExitStack() as stack:
        takers: asyncio.Queue[PosedOwner] = asyncio.Queue()
        conversations: list[Conversation] = []
        restoring, wait = Desk._restoring, Desk._wait_for

        def noted(
            self: Desk, conversation: Conversation, attachment: Attachment
        ) -> AbstractAsyncContextManager[asyncio.Task[None]]:
            conversations.append(conversation)
            return restoring(self, conversation, attachment)

        async def lost(self: Desk, restoring: asyncio.Task[None]) -> None:
            await wait(self, restoring)
            taker = await stack.enter_async_context(posed_owner(journal, session))
            with pytest.raises(LeaseLostError):
                await conversations[0].session.verify()
            takers.put_nowait(taker)

        monkeypatch.setattr(Desk, "_restoring", noted)
        monkeypatch.setattr(Desk, "_wait_for", lost)
        opening = other.begin(method, open_params(session, "/"))
        if method == "session/load":  # it has been shown all of it
            with pytest.raises(Refused, match="load it again"):
                await opening
        else:
            taker = await asyncio.wait_for(takers.get(), DEADLINE)
            taker.answer(await taker.next(method))
            await opening


@pytest.mark.parametrize(("end", "why"), [("it ends", "was stopped"), ("deleted", "no session")])
async def test_a_load_during_which_the_session_is_closed_is_told_why(
    journal: Path, monkeypatch: pytest.MonkeyPatch, end: str, why: str
) -> None:
    async with kept(journal) as (other, session):
        wait = Desk._wait_for

        async def closed(self: Desk, restoring: asyncio.Task[None]) -> None:
            await wait(self, restoring)
            if end == "deleted":
                await self.delete(session)
            else:
                await self.hub.close_conversations(self.conversations)

        monkeypatch.setattr(Desk, "_wait_for", closed)
        with pytest.raises(Refused, match=why):
            await other.load(session)
