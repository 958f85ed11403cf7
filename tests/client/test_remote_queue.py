"""The queued prompts in a session, from a client's side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import acphold
import acphold.sync
from acp_wire.schema import ImageContent, TextContent
from acphold import CapabilityError, RemoteError, RemoteSession
from acphold.client import RemoteAgent
from acphold.conversation.history.prompt_queue import PromptQueue
from acphold.conversation.history.timeline import Message
from tests.client.far_agent import FarAgent, in_session
from tests.editor import scripted_agent

DEADLINE = 30.0

IMAGES = {"promptCapabilities": {"image": True}}

LATER = datetime.fromtimestamp(4_000_000_000, UTC)


@asynccontextmanager
async def wrapped(
    journal: Path, changed: asyncio.Event | None = None, **agent: Any
) -> AsyncIterator[RemoteAgent]:
    """A client of the scripted agent, with a journal; `changed` is set when it is told of the
    queue."""

    def told(method: str, params: Any) -> None:
        if method == "_acphold/queue" and changed is not None:
            changed.set()

    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(
            *scripted_agent(**agent), durable=True, journal=journal, on_notification=told
        ) as there,
    ):
        yield there


async def until(
    session: RemoteSession, changed: asyncio.Event, holds: Callable[[PromptQueue], bool]
) -> PromptQueue:
    """Wait until that holds for the queue."""
    while not holds(session.queue.state):
        changed.clear()
        await changed.wait()
    return session.queue.state


def words(queue: PromptQueue) -> list[str]:
    return [prompt.words for prompt in queue.waiting]


def prompts(session: RemoteSession) -> list[str]:
    return [
        item.text
        for item in session.state.timeline
        if isinstance(item, Message) and item.role == "user"
    ]


def say(text: str) -> str:
    return json.dumps([{"say": text}])


async def test_what_is_added_while_a_turn_runs_begins_by_itself_in_its_order(
    journal: Path, tmp_path: Path
) -> None:
    changed, go = asyncio.Event(), tmp_path / "go"
    async with wrapped(journal, changed) as agent:
        session = await agent.new_session(tmp_path)
        assert session.queue.is_kept
        assert session.queue.state == PromptQueue()
        turn = session.prompt(json.dumps([{"until": str(go)}]))
        last = await session.queue.add(say("last"))
        first = await session.queue.add(say("first"), before=last)
        assert [prompt.id for prompt in session.queue.state.waiting] == [first, last]
        go.touch()
        await turn
        ended = await until(session, changed, lambda queue: len(queue.ended) == 2)
        assert [(prompt.id, prompt.status) for prompt in ended.ended] == [
            (first, "done"),
            (last, "done"),
        ]
        assert prompts(session)[1:] == [say("first"), say("last")]


async def test_a_prompt_that_waits_is_read_edited_moved_rescheduled_and_dropped(
    journal: Path, tmp_path: Path
) -> None:
    async with wrapped(journal, capabilities=IMAGES) as agent:
        session = await agent.new_session(tmp_path)
        queue = session.queue
        await queue.hold()
        assert queue.state.held == "person"
        one, two = await queue.add("one"), await queue.add("two", (b"\x89PNG", "image/png"))
        text, picture = await queue.content(two)
        assert text == TextContent(text="two")
        assert isinstance(picture, ImageContent)
        assert await queue.take(one) == (TextContent(text="one"),)
        assert queue.state.edited == (one,)
        await queue.edit(one)
        assert words(queue.state)[0] == "one"
        assert not queue.state.edited
        await queue.edit(one, "one, but better")
        await queue.move(one)
        assert words(queue.state) == ["two [image]", "one, but better"]
        await queue.move(one, before=two)
        await queue.reschedule(two, LATER)
        with pytest.raises(acphold.DeclarationError, match="zone"):
            await queue.reschedule(two, LATER.replace(tzinfo=None))
        assert [prompt.at for prompt in queue.state.waiting] == [None, LATER]
        await queue.reschedule(two, None)
        assert queue.state.waiting[1].at is None
        await queue.drop(one)
        assert words(queue.state) == ["two [image]"]
        with pytest.raises(RemoteError, match="was taken back"):
            await queue.drop(one)
        await queue.set(goes_on=True)
        await queue.set(restarts=True)
        assert (queue.state.goes_on, queue.state.restarts) == (True, True)


async def test_go_begins_what_was_held(journal: Path, tmp_path: Path) -> None:
    changed = asyncio.Event()
    async with wrapped(journal, changed) as agent:
        session = await agent.new_session(tmp_path)
        await session.queue.hold()
        await session.queue.add(say("at last"))
        assert prompts(session) == []
        await session.queue.go()
        await until(session, changed, lambda queue: len(queue.ended) == 1)
        assert prompts(session) == [say("at last")]


async def test_what_waits_is_there_for_the_next_process_and_known_once_the_session_is_open(
    journal: Path, tmp_path: Path
) -> None:
    async with wrapped(journal) as agent:
        session = await agent.new_session(tmp_path)
        await session.queue.hold()
        await session.queue.add("tomorrow")
    async with wrapped(journal) as agent:
        again = await agent.load_session(session.id, tmp_path)
        assert words(again.queue.state) == ["tomorrow"]
        assert again.queue.state.held


@pytest.mark.parametrize("attached", ["to the process", "with an agent of its own"])
async def test_two_clients_see_each_others_changes(
    journal: Path, tmp_path: Path, attached: str
) -> None:
    changed = asyncio.Event()
    async with wrapped(journal, changed) as agent:
        session = await agent.new_session(tmp_path)
        await session.queue.hold()
        there = acphold.connect(session=session.id, journal=journal)
        async with there if attached == "to the process" else wrapped(journal) as other:
            same = await other.load_session(session.id, tmp_path)
            assert same.queue.state.held == "person"
            added = await same.queue.add("from the other")
            queue = await until(session, changed, lambda queue: bool(queue.waiting))
            assert queue == same.queue.state
            await session.queue.drop(added)
            with pytest.raises(RemoteError, match="was taken back"):
                await same.queue.edit(added, "too late")


async def test_an_agent_without_acphold_keeps_no_queue_and_that_is_said() -> None:
    async with in_session(FarAgent()) as session:
        assert not session.queue.is_kept
        assert session.queue.state == PromptQueue()
        with pytest.raises(CapabilityError, match=r"keep a queue of prompts.*acphold wrap"):
            await session.queue.add("later")


async def test_a_notification_that_an_answer_has_overtaken_changes_nothing() -> None:
    far, changed = FarAgent(), asyncio.Event()

    async with in_session(far, on_notification=lambda *_: changed.set()) as session:

        def tell(held: str, seq: int) -> None:
            changed.clear()
            queue = {"held": held, "goesOn": True}
            far.send(
                method="_acphold/queue",
                params={"sessionId": "s1", "queue": queue, "seq": seq},
            )

        tell("failed", 3)
        await until(session, changed, lambda queue: queue.held == "failed")
        tell("older", 2)
        await asyncio.wait_for(changed.wait(), DEADLINE)
        tell("moved", 4)
        await until(session, changed, lambda queue: queue.held != "failed")
        assert session.queue.state == PromptQueue(held="moved", goes_on=True)


def test_the_queue_in_plain_calls(journal: Path, tmp_path: Path) -> None:
    command = scripted_agent(capabilities=IMAGES)
    with acphold.sync.connect(*command, durable=True, journal=journal, cwd=tmp_path) as agent:
        queue = agent.new_session().queue
        assert queue.is_kept
        queue.hold()
        one, two = queue.add("one"), queue.add("two", at=LATER)
        queue.edit(one, "uno")
        queue.move(one)
        queue.reschedule(two, None)
        queue.set(goes_on=True)
        assert queue.content(one) == (TextContent(text="uno"),)
        assert words(queue.state) == ["two", "uno"]
        queue.drop(two)
        queue.drop(one)
        queue.go()
        assert queue.state.waiting == ()
