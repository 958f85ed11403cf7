"""Clients that have a session open while a command takes it over or changes it.

Each test is a row of the table in docs/operate.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Defaults
from tests.editor import DEADLINE, Editor, Refused, introduced, scripted_agent, wrap_command
from tests.imports.claude_home import SESSION, Transcript

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
    """Run a command of acphold, which must succeed, and return its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acphold", "--journal", str(journal), *arguments),
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


async def all_go_on(clients: Sequence[Editor], session: str) -> None:
    """Each of them says something in the session, and all see it."""
    for number, client in enumerate(clients):
        said = f"on {number} {len(client.messages)} "
        await client.prompt(session, {"say": said})
        for other in clients:
            await other.until_text(said)


async def test_delete_tells_all_at_once_and_ends_a_running_turn_with_an_error(
    journal: Path,
) -> None:
    async with open_to_three(journal) as (clients, session):
        running = clients[1].begin_prompt(session, {"say": "half"}, {"until": "cancel"})
        for client in clients:
            await client.until_text("half")
        await run(journal, "session", "delete", "--yes", session)
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


async def test_renaming_tells_all_the_title_and_disturbs_nothing_whoever_does_it(
    journal: Path, defaults: Defaults
) -> None:
    defaults(unstable=True)
    async with open_to_three(journal) as (clients, session):
        running = clients[1].begin_prompt(session, {"say": "half "}, {"until": "cancel"})
        for client in clients:
            await client.until_text("half")
        await run(journal, "session", "rename", session, "My", "own")
        for client in clients:
            await until_titled(client, "My own")
        async with introduced(wrap_command(scripted_agent()), journal=journal) as other:
            await other.call("session/set_title", {"sessionId": session, "title": "Anybody's"})
        for client in clients:
            await until_titled(client, "Anybody's")
        clients[1].tell("session/cancel", {"sessionId": session})
        assert (await running)["stopReason"] == "cancelled"
        await all_go_on(clients, session)


async def test_an_archived_session_stays_open_and_is_listed_again_with_the_next_prompt(
    journal: Path,
) -> None:
    async with open_to_three(journal) as (clients, session):
        running = clients[1].begin_prompt(session, {"say": "half "}, {"until": "cancel"})
        for client in clients:
            await client.until_text("half")
        before = list(map(titles, clients))
        await run(journal, "session", "archive", session)
        assert await clients[0].sessions() == []
        clients[1].tell("session/cancel", {"sessionId": session})
        assert (await running)["stopReason"] == "cancelled"
        assert await clients[0].sessions() == []
        await all_go_on(clients, session)
        assert [info["sessionId"] for info in await clients[0].sessions()] == [session]
        assert list(map(titles, clients)) == before
        await run(journal, "session", "archive", session)
        await run(journal, "session", "archive", "--undo", session)
        assert [info["sessionId"] for info in await clients[0].sessions()] == [session]
        await all_go_on(clients, session)


async def test_a_client_that_archives_leaves_the_session_to_the_others(
    journal: Path, defaults: Defaults
) -> None:
    defaults(unstable=True)
    unstable = wrap_command(scripted_agent())
    async with open_to_three(journal) as (clients, session):
        async with introduced(unstable, journal=journal) as other:
            await other.load(session)
            await other.call("session/archive", {"sessionId": session})
            with pytest.raises(Refused):
                await other.prompt(session, {"say": "on"})
            assert await clients[0].sessions() == []
        await all_go_on(clients, session)
        assert [info["sessionId"] for info in await clients[0].sessions()] == [session]


async def test_pruning_passes_over_a_session_that_is_open(journal: Path) -> None:
    async with open_to_three(journal) as (clients, session):
        closed = await clients[0].talk({"say": "old"})
        await clients[0].call("session/close", {"sessionId": closed})
        before = list(map(titles, clients))
        assert "Deleted 1 session." in await run(
            journal, "session", "prune", "--older-than", "0h", "--yes"
        )
        assert [info["sessionId"] for info in await clients[0].sessions()] == [session]
        await all_go_on(clients, session)
        assert list(map(titles, clients)) == before


async def test_an_import_leaves_a_session_until_nobody_has_it_open(
    journal: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    transcript = Transcript("First question")
    transcript.assistant("First answer")
    transcript.write(home)
    imports = ("import", "--json", "--from", str(home), "--agent", "claude", "--name", "scripted")
    assert json.loads(await run(journal, *imports))["new"] == 1
    command = wrap_command(scripted_agent())
    async with (
        introduced(command, journal=journal) as one,
        introduced(command, journal=journal) as two,
    ):
        for client in (one, two):
            await client.load(SESSION)
        transcript.user("Second question")
        transcript.assistant("Second answer")
        transcript.write(home)
        counts = json.loads(await run(journal, *imports))
        assert (counts["busy"], counts["grown"]) == (1, 0)
        for client in (one, two):
            assert "Second answer" not in str(client.messages)
            await client.call("session/close", {"sessionId": SESSION})
        counts = json.loads(await run(journal, *imports))
        assert (counts["busy"], counts["grown"]) == (0, 1)
        await one.load(SESSION)
        assert "Second answer" in one.text()


@pytest.mark.parametrize("copying", ["the same agent", "another one"])
async def test_what_makes_a_copy_takes_the_turns_that_are_over_and_disturbs_nothing(
    journal: Path, copying: str
) -> None:
    other = ("--", *scripted_agent(info={"name": "other", "version": "1"}))
    options = ("--from", "last") if copying == "the same agent" else other
    async with open_to_three(journal) as (clients, session):
        running = clients[1].begin_prompt(session, {"say": "half "}, {"until": "cancel"})
        for client in clients:
            await client.until_text("half")
        before = list(map(titles, clients))
        made = (await run(journal, "continue", session, *options)).split()[0]
        shown = await run(journal, "show", made)
        assert "before" in shown
        assert "half" not in shown
        clients[1].tell("session/cancel", {"sessionId": session})
        assert (await running)["stopReason"] == "cancelled"
        await all_go_on(clients, session)
        assert list(map(titles, clients)) == before
        assert "half" not in await run(journal, "show", made)


async def test_another_agent_does_not_take_an_open_session_but_joins_it(journal: Path) -> None:
    other = wrap_command(scripted_agent(info={"name": "other", "version": "1"}), "--all-agents")
    async with open_to_three(journal) as (clients, session):
        async with introduced(other, journal=journal) as client:
            await client.load(session)
            await all_go_on([*clients, client], session)
            [info] = [
                json.loads(line) for line in (await run(journal, "list", "--json")).splitlines()
            ]
            assert (info["agent"], info["origins"]) == ("scripted", [])
        await all_go_on(clients, session)


async def test_what_only_the_agent_has_is_adopted_once_and_shared_by_all_who_open_it(
    journal: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    told = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "theirs"}}
    store.write_text(json.dumps({"own": {"cwd": "/", "updates": [told]}}))
    can = {"loadSession": True, "sessionCapabilities": {"list": {}}}
    command = wrap_command(scripted_agent(store=str(store), capabilities=can))
    async with (
        introduced(command, journal=journal) as one,
        introduced(command, journal=journal) as two,
        introduced(command, journal=journal) as three,
    ):
        clients = [one, two, three]
        await asyncio.gather(*(client.load("own") for client in clients))
        for client in clients:
            assert client.text("user_message_chunk").count("theirs") == 1
        await all_go_on(clients, "own")
        assert len(await one.sessions()) == 1
