"""Agents whose conversations are kept in a journal, and sessions that live in another process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

import acphold
from acp_wire.schema import AgentMessageChunk, ClientCapabilities, ImageContent, TextContent
from acp_wire.schema.updates import UserMessageChunk
from acphold.conversation.history.timeline import Message
from acphold.errors import AgentExitedError, ConnectionLostError, UnknownSessionError
from acphold.journal.rows import NewSession
from acphold.journal.stores import open_journal
from acphold.live.agents.capabilities import WATCHES
from acphold.live.reading import bounds
from acphold.live.reading.processes import has_other_clients
from tests.editor import scripted_agent, wrap_command
from tests.owners import owning, program

DEADLINE = 30.0


async def test_a_durable_agent_has_its_conversations_in_the_next_process(
    journal: Path, tmp_path: Path
) -> None:
    command = scripted_agent()
    async with acphold.connect(*command, durable=True, journal=journal, cwd=tmp_path) as agent:
        assert agent.capabilities.load_session
        session = await agent.new_session()
        assert (await session.prompt('[{"say": "hello"}]')).text == "hello"
    async with acphold.connect(*command, durable=True, journal=journal, cwd=tmp_path) as agent:
        [info] = [info async for info in agent.sessions(cwd=tmp_path)]
        again = await agent.load_session(info.session_id)
        assert [type(update) for update in again.replay] == [
            UserMessageChunk,
            AgentMessageChunk,
            *[type(update) for update in again.replay[2:]],
        ]
        said = [item.text for item in again.state.timeline if isinstance(item, Message)]
        assert said == ['[{"say": "hello"}]', "hello"]
        assert (await again.prompt('[{"say": "on"}]')).text == "on"


async def test_an_agent_that_dies_behind_the_hub_is_reported_like_any_other(journal: Path) -> None:
    command = scripted_agent()
    async with acphold.connect(*command, durable=True, journal=journal) as agent:
        session = await agent.new_session()
        with pytest.raises(AgentExitedError, match="exit status 3") as caught:
            await session.prompt('[{"stderr": "no memory"}, {"exit": 3}]')
        assert caught.value.status == "exit status 3"
        assert caught.value.stderr.endswith("no memory")
        assert (await session.prompt('[{"say": "back"}]')).text == "back"


async def test_a_session_that_is_live_elsewhere_is_attached_to(
    journal: Path, tmp_path: Path
) -> None:
    command, go = scripted_agent(), tmp_path / "go"
    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(*command, durable=True, journal=journal, cwd=tmp_path) as owner,
    ):
        session = await owner.new_session()
        turn = session.prompt(f'[{{"say": "half "}}, {{"until": "{go}"}}, {{"say": "whole"}}]')
        await anext(turn)
        async with acphold.connect(session=session.id, journal=journal) as guest:
            same = await guest.load_session(session.id)
            assert same.cwd == str(tmp_path)
            live = same.updates()
            assert isinstance(same.replay[-1], AgentMessageChunk)
            go.touch()
            update = await anext(live)
            assert isinstance(update, AgentMessageChunk)
            assert update.content == TextContent(text="whole")
            await turn
            assert (await same.prompt('[{"say": "from the guest"}]')).text == "from the guest"
        assert (await session.prompt('[{"say": "still there"}]')).text == "still there"


async def test_an_owner_that_cannot_be_reached_is_a_lost_connection_with_its_process(
    journal: Path,
) -> None:
    kept = open_journal(journal)
    await kept.release(await kept.create(NewSession("s1", "a", "/")))
    async with owning(journal, "s1", "unix:/nowhere/gone.sock") as process:
        with pytest.raises(ConnectionLostError, match=f"process {process.pid} .* cannot be reach"):
            async with acphold.connect(session="s1", journal=journal):
                pass
    await kept.aclose()


@pytest.mark.slow
async def test_an_owner_that_was_stopped_is_found_out_and_not_waited_for(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "OWNER_ANSWER_SECONDS", 0.2)
    async with program(journal) as owner:
        session = await owner.new()
        os.kill(owner.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLostError, match="it does not answer"):
                async with acphold.connect(session=session, journal=journal):
                    pass
        finally:
            os.kill(owner.process.pid, signal.SIGCONT)


async def test_a_client_that_joins_a_session_of_the_daemon_knows_its_agent(
    journal: Path, tmp_path: Path
) -> None:
    images = {"promptCapabilities": {"image": True}}
    agent = scripted_agent(capabilities=images, meta={"steering": {"supported": True}})
    command = wrap_command(agent, f"--journal={journal}")
    async with asyncio.timeout(DEADLINE), acphold.connect(*command) as owner:
        session = await owner.new_session(tmp_path)
        async with acphold.connect(session=session.id, journal=journal) as guest:
            same = await guest.load_session(session.id)
            assert same.agent_name == session.agent_name
            assert same.has_steering
            picture = ImageContent(data="AAAA", mime_type="image/png")
            assert (await same.prompt('[{"say": "seen"}]', picture)).text == "seen"


async def test_a_turn_has_its_own_updates_and_not_those_of_another_client(
    journal: Path, tmp_path: Path
) -> None:
    command, go = scripted_agent(), tmp_path / "go"
    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(*command, durable=True, journal=journal, cwd=tmp_path) as owner,
    ):
        session = await owner.new_session()
        theirs = session.prompt(f'[{{"say": "half "}}, {{"until": "{go}"}}, {{"say": "whole"}}]')
        await anext(theirs)
        async with acphold.connect(session=session.id, journal=journal) as guest:
            same = await guest.load_session(session.id)
            live = same.updates()
            ours = same.prompt('[{"say": "from the guest"}]')
            assert [info.session_id async for info in guest.sessions()]  # behind the prompt
            go.touch()
            said = [update async for update in ours]
            assert said == [AgentMessageChunk(content=TextContent(text="from the guest"))]
            assert ours.text == "from the guest"
            seen = []
            while said[0] not in seen:
                seen.append(await anext(live))
            assert AgentMessageChunk(content=TextContent(text="whole")) in seen
            assert (await theirs).text == "half whole"


OPTIONS = [
    {"optionId": "go", "name": "Go on", "kind": "allow_once"},
    {"optionId": "stop", "name": "Stop it", "kind": "reject_once"},
]
ASKING = json.dumps(
    [
        {
            "ask": [
                "session/request_permission",
                {"toolCall": {"toolCallId": "t1", "title": "Run it"}, "options": OPTIONS},
            ]
        }
    ]
)


@pytest.mark.parametrize("has_agent", [False, True], ids=["attached", "with an agent of its own"])
async def test_a_client_that_attaches_without_a_policy_leaves_the_questions_of_others_to_them(
    journal: Path, tmp_path: Path, has_agent: bool
) -> None:
    asked, may, command = asyncio.Event(), asyncio.Event(), scripted_agent()

    async def decide(_: object) -> bool:
        asked.set()
        await may.wait()
        return True

    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(
            *command, durable=True, journal=journal, cwd=tmp_path, on_permission=decide
        ) as owner,
    ):
        session = await owner.new_session()
        await session.prompt('[{"say": "x"}]')
        joined = (
            acphold.connect(*command, durable=True, journal=journal, cwd=tmp_path)
            if has_agent
            else acphold.connect(session=session.id, journal=journal)
        )
        async with joined as guest:
            same = await guest.load_session(session.id)
            theirs = session.prompt(ASKING)
            await anext(same.updates())  # their prompt
            await asked.wait()
            await same.set_mode("plan")  # behind the question
            may.set()
            assert '"go"' in (await theirs).text
            may.clear()
            assert '"stop"' in (await same.prompt(ASKING)).text


async def test_nothing_is_left_to_whoever_only_watches(journal: Path) -> None:
    watching = ClientCapabilities(meta={WATCHES: True})
    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(*scripted_agent(), durable=True, journal=journal) as owner,
    ):
        session = await owner.new_session()
        await session.prompt('[{"say": "x"}]')
        join = partial(acphold.connect, session=session.id, journal=journal)
        async with join(capabilities=watching) as watcher:
            await watcher.load_session(session.id)
            assert not await has_other_clients(session.id)
            async with join() as guest:
                await guest.load_session(session.id)
                assert await has_other_clients(session.id)


async def test_what_is_left_to_a_client_that_leaves_is_rejected(
    journal: Path, tmp_path: Path
) -> None:
    async def decide(_: object) -> bool:
        asked.set()
        await asyncio.get_running_loop().create_future()
        return True

    asked = asyncio.Event()
    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(*scripted_agent(), durable=True, journal=journal, cwd=tmp_path) as owner,
    ):
        session = await owner.new_session()
        await session.prompt('[{"say": "x"}]')
        seen = session.updates()
        async with acphold.connect(
            session=session.id, journal=journal, on_permission=decide
        ) as guest:
            (await guest.load_session(session.id)).prompt(ASKING)
            await asked.wait()
        async for update in seen:
            if isinstance(update, AgentMessageChunk) and "stop" in str(update.content):
                break


async def test_a_prompt_that_is_cancelled_behind_the_turn_of_another_has_no_updates(
    journal: Path, tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(DEADLINE),
        acphold.connect(*scripted_agent(), durable=True, journal=journal, cwd=tmp_path) as owner,
    ):
        session = await owner.new_session()
        theirs = session.prompt('[{"say": "theirs"}, {"until": "cancel"}]')
        await anext(theirs)
        async with acphold.connect(session=session.id, journal=journal) as guest:
            same = await guest.load_session(session.id)
            before = same.state.timeline
            ours = same.prompt('[{"say": "never said"}]')
            same.cancel()
            assert [update async for update in ours] == []
            assert (ours.stop_reason, ours.text, len(ours.items)) == ("cancelled", "", 2)
            assert same.state.timeline[: len(before)] == before
            assert (await theirs).text == "theirs"


async def test_a_session_that_is_live_nowhere_is_told_apart_from_one_that_is_not_known(
    journal: Path,
) -> None:
    async with acphold.connect(*scripted_agent(), durable=True, journal=journal) as agent:
        session = await agent.new_session()
        await session.prompt('[{"say": "x"}]')
    with pytest.raises(ConnectionLostError, match="is not live in any process"):
        async with acphold.connect(session=session.id, journal=journal):
            pass
    with pytest.raises(UnknownSessionError):
        async with acphold.connect(session="no-such-session", journal=journal):
            pass


async def test_connect_wants_a_command_or_a_session() -> None:
    for wrong in ({}, {"session": "s"}):
        with pytest.raises(acphold.DeclarationError, match="command of an agent"):
            async with acphold.connect(*["x"] * len(wrong), **wrong):  # type: ignore[arg-type]
                pass


async def test_the_words_of_a_command_in_a_list_are_refused_in_words() -> None:
    with pytest.raises(acphold.DeclarationError, match=r"one by one.*not list"):
        async with acphold.connect(["gemini", "--acp"]):  # type: ignore[arg-type]
            pass
