"""A client's rights in a session that is live in another process: they travel with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from acp_wire.surroundings import Surroundings
from acp_wire.transports.streams import memory_pair
from acphold.journal.access import Scope, Share
from acphold.journal.stores import open_journal
from acphold.live.agents.wrapped import ProcessAgent
from acphold.live.server.directory import Directory
from acphold.live.server.principals import THIS_USER, Principal
from acphold.live.server.service import Service, attend, journal_at, open_desk
from acphold.serve_options import ServeOptions
from tests.editor import scripted_agent
from tests.served import Guest

DEADLINE = 30.0

SERVER = {"name": "x", "command": "/bin/true", "args": [], "env": []}
EVERYTHING: dict[str, Any] = {
    "mcpServers": [SERVER],
    "unknownMember": "mark",
    "_meta": {"vendor": "mark"},
}


class Process:
    """As a process of ours: a hub, and what its agent was told."""

    def __init__(
        self, desks: Directory, service: Service, log: Path, stack: AsyncExitStack
    ) -> None:
        self._desks = desks
        self._service = service
        self._log = log
        self._stack = stack

    async def client(self, principal: Principal) -> Guest:
        """A client, introduced."""
        near, far = memory_pair()
        serving = asyncio.create_task(
            attend(self._desks, self._service, far, principal=principal), name="attend"
        )
        client = Guest(near, serving)
        reading = asyncio.create_task(client.read())
        self._stack.push_async_callback(_end, client, reading)
        await client.initialize()
        return client

    def told(self, method: str = "") -> list[Any]:
        """The params of all that its agent got, or of one method."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        found = [json.loads(line) for line in lines]
        return [it.get("params") for it in found if method in ("", it.get("method"))]


async def _end(client: Guest, reading: asyncio.Task[None]) -> None:
    await client.leave()
    reading.cancel()
    await asyncio.wait([reading])


@asynccontextmanager
async def process(folder: Path, name: str) -> AsyncIterator[Process]:
    """One more process on the journal in this folder, with an agent of its own."""
    log = folder / f"{name}.log"
    store = str(folder / "store.json")
    command = scripted_agent(log=str(log), store=store, capabilities={"loadSession": True})
    service = Service(
        make_agent=lambda listener, _: ProcessAgent(command, listener, Surroundings.here()),
        options=ServeOptions(journal=folder / "journal.db"),
    )
    async with (
        open_desk(service, journal_at(service.journal)) as desks,
        AsyncExitStack() as stack,
    ):
        yield Process(desks, service, log, stack)


def person(name: str, *scopes: Scope) -> Principal:
    may = {"scopes": frozenset(scopes)} if scopes else {}
    return Principal(name=name, tenant=name, is_here=False, **may)  # type: ignore[arg-type]


async def share(folder: Path, session_id: str, user: str, *, prompts: bool) -> None:
    journal = open_journal(folder / "journal.db")
    await journal.access.keep_share(Share(session_id, user, prompts))
    await journal.aclose()


async def test_the_owner_of_a_session_takes_no_more_from_a_guest_than_its_own_process_would(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE), process(tmp_path, "one") as one:
        alice = await one.client(person("alice"))
        session = await alice.talk("hello", cwd=str(tmp_path), mcpServers=[SERVER])
        await share(tmp_path, session, "bert", prompts=True)
        before = len(one.told())
        async with process(tmp_path, "two") as two:
            bert = await two.client(person("bert"))
            await bert.load(session, tmp_path, **EVERYTHING)
            block = {"type": "text", "text": "go on", "_meta": {"vendor": "mark"}}
            prompt = {"sessionId": session, "prompt": [block], **EVERYTHING}
            await bert.call("session/prompt", prompt)
            assert "mark" not in json.dumps([one.told()[before:], two.told()])
            [_, prompted] = one.told("session/prompt")
            assert prompted["prompt"] == [{"type": "text", "text": "go on"}]
            assert not [it for it in one.told()[before:] if "mcpServers" in it]


async def test_a_watcher_starts_no_agent_when_the_process_that_owned_the_session_ends(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE), process(tmp_path, "two") as two:
        async with process(tmp_path, "one") as one:
            alice = await one.client(person("alice"))
            session = await alice.talk("hello", cwd=str(tmp_path), mcpServers=[SERVER])
            before = one.told()
            watcher = await two.client(person("alice", "watch"))
            await watcher.load(session, tmp_path, **EVERYTHING)
            assert "heard" in watcher.text()
            assert one.told() == before
        later = await two.client(person("alice", "watch"))
        await later.load(session, tmp_path)  # nobody owns it any more
        assert "heard" in later.text()
        assert two.told() == []
        me = await two.client(THIS_USER)
        await me.load(session, tmp_path)
        await me.prompt(session, "go on")
        assert len(two.told("session/prompt")) == 1
        await watcher.until(lambda: watcher.text().count("heard") == 2)


async def test_a_watcher_joins_another_in_its_process_and_neither_starts_an_agent(
    tmp_path: Path,
) -> None:
    async with process(tmp_path, "begun") as begun:
        session = await (await begun.client(person("alice"))).talk("hello", cwd=str(tmp_path))
    async with (
        asyncio.timeout(DEADLINE),
        process(tmp_path, "one") as one,
        process(tmp_path, "two") as two,
    ):
        for there in (one, two):
            watcher = await there.client(person("alice", "watch"))
            await watcher.load(session, tmp_path)
            assert "heard" in watcher.text()
        assert one.told() == two.told() == []
