"""One connection to the sessions of all agents, each with its own."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.errors import INVALID_PARAMS
from acp_wire.rpc import NotificationReceived, Peer, Transport, connected
from acp_wire.rpc.requests import Request
from acp_wire.schema import ClientCapabilities
from acp_wire.transports import websocket
from acp_wire.transports.route import Route
from acphold.errors import OTHER_AGENT, RemoteError
from tests.editor import SCRIPTED, Editor, introduced, scripted_agent, wrap_command
from tests.owners import lone_command
from tests.web.conftest import AGENT, Served, serving

pytestmark = pytest.mark.slow


SETTINGS = """
[agents.one]
command = {one}

[agents.two]
command = {two}
name = "the second"

[agents.broken]
command = ["/bin/false"]
"""


def asks(session_id: str) -> str:
    """A prompt that has the agent ask for permission."""
    params = {
        "sessionId": session_id,
        "toolCall": {"toolCallId": "t"},
        "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
    }
    return json.dumps([{"ask": ["session/request_permission", params]}])


class Client:
    """A client far away that asks for all agents; it says yes, and remembers every update."""

    def __init__(self, transport: Transport) -> None:
        self.peer = Peer(transport, self)
        self.told: list[str] = []
        self.heard = asyncio.Event()
        self.asked = asyncio.Event()
        self.answers: asyncio.Event | None = None

    async def on_request(self, request: Request) -> bytes:
        self.asked.set()
        if self.answers is not None:
            await self.answers.wait()
        return b'{"outcome":{"outcome":"selected","optionId":"yes"}}'

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        self.told += [told.params.decode() for told in batch]
        self.heard.set()

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        raw = await self.peer.call_raw(method, json.dumps(params).encode(), seconds=60)
        answer: dict[str, Any] = json.loads(raw)
        return answer

    def heard_of(self, word: str) -> bool:
        """True if the second agent has reported that it heard this."""
        return any("heard: " in told and f'{word}\\"' in told for told in self.told)

    async def new(self, folder: Path, **meta: object) -> dict[str, Any]:
        named = {"_meta": meta} if meta else {}
        return await self.ask("session/new", cwd=str(folder), mcpServers=[], **named)

    async def say(self, session_id: str, text: str) -> dict[str, Any]:
        prompt = [{"type": "text", "text": text}]
        return await self.ask("session/prompt", sessionId=session_id, prompt=prompt)


@asynccontextmanager
async def client_of(
    served: Served, path: str = "", token: str | None = None
) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
    """A client, and the answer to its `initialize`."""
    token = token or served.token()
    route = Route(served.url + path, token=token, seconds=30, limit=1 << 20)
    transport = await websocket.connect(route)
    client = Client(transport)
    async with connected(client.peer):
        can = {"_meta": {"acphold/allAgents": True}}
        yield client, await client.ask("initialize", protocolVersion=1, clientCapabilities=can)


@contextmanager
def two_agents(tmp_path: Path) -> Iterator[Served]:
    """The demo agent, and one that does as it is told, with a name in the settings."""
    two = [sys.executable, str(SCRIPTED), json.dumps({"info": {"name": "raw", "version": "1"}})]
    settings = tmp_path / "settings.toml"
    agents = SETTINGS.format(one=json.dumps(AGENT), two=json.dumps(two))
    settings.write_text(f"[defaults]\nlinger = 0.2\n{agents}")
    variables = {"ACPHOLD_SETTINGS": str(settings)}
    with serving(tmp_path, agent=(), variables=variables) as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with two_agents(tmp_path) as found:
        yield found


async def test_sessions_of_all_agents_are_begun_listed_and_opened_each_with_its_own(
    served: Served,
) -> None:
    async with client_of(served) as (client, introduced):
        can = introduced["agentCapabilities"]
        assert can["_meta"]["acphold/allAgents"] == ["one", "two", "broken"]
        assert can["_meta"]["acphold/folder"] == os.getcwd()  # in which `serve` was started
        assert can["_meta"]["acphold/home"] == str(Path.home())
        assert can["loadSession"] is True
        assert introduced["agentInfo"]["name"] == "acphold"
        assert served.agents_running == []  # nobody has needed one yet
        first = await client.new(served.folder)
        second = await client.new(served.folder, **{"acphold/agent": "two"})
        assert first["_meta"]["acphold/agent"] == "one"
        assert second["_meta"]["acphold/agent"] == "two"
        info = second["_meta"]["acphold/introduction"]["agentInfo"]
        assert info["name"] == "raw"
        await client.say(first["sessionId"], "quick: hello")
        await client.say(second["sessionId"], "hello")
        assert client.heard_of("hello")
    async with client_of(served, token=served.token("--user", "ann")) as (_, introduced):
        assert not {"acphold/folder", "acphold/home"} & set(
            introduced["agentCapabilities"]["_meta"]
        )
    async with client_of(served, token=served.token("--scope", "watch")) as (_, introduced):
        assert "acphold/home" not in introduced["agentCapabilities"]["_meta"]
    async with client_of(served, "/acp/two") as (client, introduced):
        assert introduced["agentCapabilities"]["_meta"]["acphold/allAgents"] == [
            "two",
            "one",
            "broken",
        ]
        listed = (await client.ask("session/list"))["sessions"]
        agents = {row["sessionId"]: row["_meta"]["acphold/agent"] for row in listed}
        assert agents == {first["sessionId"]: "one", second["sessionId"]: "two"}
        for opened, name in agents.items():
            folder = str(served.folder)
            answer = await client.ask("session/load", sessionId=opened, cwd=folder, mcpServers=[])
            assert answer["_meta"]["acphold/agent"] == name
        await client.say(second["sessionId"], "again")
        assert client.heard_of("again")


async def test_a_copy_is_for_the_agent_that_is_named(served: Served) -> None:
    async with client_of(served) as (client, _):
        first = await client.new(served.folder)
        await client.say(first["sessionId"], "quick: hello")
        copied = await client.ask("_acphold/fork", sessionId=first["sessionId"], agent="two")
        listed = (await client.ask("session/list"))["sessions"]
        agents = {row["sessionId"]: row["_meta"]["acphold/agent"] for row in listed}
        assert agents == {first["sessionId"]: "one", copied["sessionId"]: "two"}
        with pytest.raises(RemoteError) as refused:
            await client.ask("_acphold/fork", sessionId=first["sessionId"], agent="three")
        assert refused.value.code == INVALID_PARAMS
        assert refused.value.message.startswith("agent: must be one of one, two")


async def test_what_an_agent_asks_is_answered_and_a_turn_is_cancelled(served: Served) -> None:
    async with client_of(served) as (client, _):
        second = await client.new(served.folder, **{"acphold/agent": "two"})
        await client.say(second["sessionId"], asks(second["sessionId"]))
        assert any('\\"yes\\"' in told for told in client.told)
        client.told.clear()
        waits = json.dumps([{"say": "waiting"}, {"until": "cancel"}, {"stop": "cancelled"}])
        turn = asyncio.create_task(client.say(second["sessionId"], waits))
        async with asyncio.timeout(30):
            while not any("waiting" in told for told in client.told):
                client.heard.clear()
                await client.heard.wait()
        client.peer.tell("session/cancel", json.dumps({"sessionId": second["sessionId"]}).encode())
        assert (await turn)["stopReason"] == "cancelled"


async def test_an_agent_ends_when_the_client_has_left_its_last_session(served: Served) -> None:
    async with client_of(served) as (client, _):
        opened = await client.new(served.folder)
        await client.say(opened["sessionId"], "quick: hello")
        (program,) = served.agents_running
        await client.ask("session/close", sessionId=opened["sessionId"])
        await asyncio.to_thread(program.wait, 30)
        folder = str(served.folder)
        again = {"sessionId": opened["sessionId"], "cwd": folder, "mcpServers": []}
        await client.ask("session/load", **again)
        await client.say(opened["sessionId"], "quick: more")
        assert any("more" in told for told in client.told)


async def test_what_cannot_be_is_refused_and_ends_nothing(served: Served) -> None:
    async with client_of(served) as (client, _):
        with pytest.raises(RemoteError, match="one, two, broken") as refused:
            await client.new(served.folder, **{"acphold/agent": "three"})
        assert refused.value.code == INVALID_PARAMS
        with pytest.raises(RemoteError, match="broken ended before"):
            await client.new(served.folder, **{"acphold/agent": "broken"})
        with pytest.raises(RemoteError):
            await client.ask("session/load", sessionId=7, cwd="/", mcpServers=[])
        with pytest.raises(RemoteError, match=r"not open|no session"):
            await client.say("nobody-has-this", "hello")
        opened = await client.new(served.folder)
        await client.say(opened["sessionId"], "quick: hello")
        with pytest.raises(RemoteError, match="initialize"):
            await client.ask("initialize", protocolVersion=1)
        only = served.token("--session", opened["sessionId"], "--scope", "watch")
        await client.new(served.folder, **{"acphold/agent": "two"})
    async with client_of(served, token=only) as (watcher, _):
        listed = (await watcher.ask("session/list"))["sessions"]
        assert [row["sessionId"] for row in listed] == [opened["sessionId"]]
        with pytest.raises(RemoteError, match="token"):
            await watcher.new(served.folder)


async def held_elsewhere(served: Served) -> str:
    """A session of an agent that is not served."""
    words = lone_command(scripted_agent(info={"name": "elsewhere", "version": "1"}))
    async with introduced(words, journal=served.env["ACPHOLD_JOURNAL"], env=served.env) as editor:
        session_id = await editor.talk({"say": "secret"}, cwd=served.folder)
        await editor.leave()
        return session_id


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
async def test_a_session_goes_to_another_agent_only_when_the_client_says_so(
    served: Served, method: str
) -> None:
    session_id = await held_elsewhere(served)
    opening = {"sessionId": session_id, "cwd": str(served.folder), "mcpServers": []}
    async with client_of(served) as (client, _):
        with pytest.raises(RemoteError, match=r"elsewhere.*one, two, broken") as refused:
            await client.ask(method, **opening)
        assert refused.value.code == OTHER_AGENT
        told = json.loads(refused.value.raw)["data"]
        assert told == {
            "acphold/agent": "elsewhere",
            "acphold/allAgents": ["one", "two", "broken"],
        }
        assert served.agents_running == []  # none was started for it
        with pytest.raises(RemoteError, match="not open"):
            await client.say(session_id, "hello")
        with pytest.raises(RemoteError, match="one, two, broken"):
            await client.ask(method, **opening, _meta={"acphold/agent": "three"})
        opened = await client.ask(method, **opening, _meta={"acphold/agent": "two"})
        assert opened["_meta"]["acphold/agent"] == "two"
        here = opened.get("sessionId", session_id)
        rows = {row["sessionId"]: row for row in (await client.ask("session/list"))["sessions"]}
        assert rows[here]["_meta"]["acphold/agent"] == "elsewhere"
        client.answers = asyncio.Event()
        turn = asyncio.create_task(client.say(here, asks(here)))
        async with asyncio.timeout(30):
            await client.asked.wait()
        # In its first turn the session is that agent's already: the list has its name.
        rows = {row["sessionId"]: row for row in (await client.ask("session/list"))["sessions"]}
        assert rows[here]["_meta"]["acphold/agent"] == "two"
        client.answers.set()
        await turn
    async with client_of(served) as (client, _):  # and nobody has to say so again
        opened = await client.ask("session/resume", **{**opening, "sessionId": here})
        assert opened["_meta"]["acphold/agent"] == "two"


async def test_two_loads_at_once_that_name_two_agents_open_the_session_once_at_the_first(
    served: Served,
) -> None:
    session_id = await held_elsewhere(served)
    opening = {"sessionId": session_id, "cwd": str(served.folder), "mcpServers": []}
    async with client_of(served) as (client, _):
        named = ({"acphold/agent": name} for name in ("two", "one"))
        loads = (client.ask("session/load", **opening, _meta=meta) for meta in named)
        opened = await asyncio.gather(*loads)
        assert [answer["_meta"]["acphold/agent"] for answer in opened] == ["two", "two"]
        await client.say(session_id, "said once")
        heard = [told for told in client.told if "heard: " in told and "said once" in told]
        assert len(heard) == 1


@pytest.mark.parametrize("user", ["alice", "bert"])
async def test_only_who_manages_a_session_takes_it_to_another_agent(
    served: Served, user: str
) -> None:
    session_id = await held_elsewhere(served)
    with closing(sqlite3.connect(served.env["ACPHOLD_JOURNAL"])) as journal, journal:
        journal.execute("UPDATE sessions SET tenant = 'alice'")
    served.run("access", "share", session_id, "--with", "bert", "--prompt")
    opening = {"sessionId": session_id, "cwd": str(served.folder), "mcpServers": []}
    async with client_of(served, token=served.token("--user", user)) as (client, _):
        asked = client.ask("session/load", **opening, _meta={"acphold/agent": "two"})
        if user == "alice":
            assert (await asked)["_meta"]["acphold/agent"] == "two"
            return
        with pytest.raises(RemoteError) as refused:
            await asked
        assert refused.value.code == OTHER_AGENT
        assert served.agents_running == []


async def joined(client: Client, session_id: str, folder: Path, editor: Editor) -> None:
    """The client opens the session of an editor, with that one's agent, and both hear it."""
    opening = {"sessionId": session_id, "cwd": str(folder), "mcpServers": []}
    opened = (await client.ask("session/resume", **opening))["_meta"]
    assert opened["acphold/agent"] == "elsewhere"
    assert opened["acphold/introduction"]["agentInfo"]["name"] == "elsewhere"
    await client.say(session_id, json.dumps([{"say": "from its own agent"}]))
    await editor.until_text("from its own agent")


async def test_a_session_that_is_live_for_an_editor_is_joined_with_its_own_agent(
    served: Served,
) -> None:
    words = wrap_command(scripted_agent(info={"name": "elsewhere", "version": "1"}))
    async with introduced(words, journal=served.env["ACPHOLD_JOURNAL"], env=served.env) as editor:
        session_id = await editor.talk({"say": "hello"}, cwd=served.folder)
        async with client_of(served) as (client, _):
            await joined(client, session_id, served.folder, editor)


async def test_a_session_that_is_live_in_another_process_is_joined_there_with_its_own_agent(
    served: Served,
) -> None:
    words = lone_command(scripted_agent(info={"name": "elsewhere", "version": "1"}))
    async with introduced(words, journal=served.env["ACPHOLD_JOURNAL"], env=served.env) as editor:
        session_id = await editor.talk({"say": "hello"}, cwd=served.folder)
        async with client_of(served) as (client, _):
            await joined(client, session_id, served.folder, editor)
            await editor.leave()  # it is nobody's now, and goes to no other agent by itself
            async with asyncio.timeout(30):
                while not any("is not open any more" in told for told in client.told):
                    client.heard.clear()
                    await client.heard.wait()
            with pytest.raises(RemoteError):
                await client.say(session_id, "hello")


async def test_the_prompts_that_wait_are_told_of_over_the_connection_of_all_agents(
    served: Served,
) -> None:
    can = ClientCapabilities(meta={"acphold/allAgents": True})
    token = served.token()
    async with acphold.connect(served.url, token=token, capabilities=can) as agent:
        session = await agent.new_session(served.folder)
        await session.queue.hold()
        await session.queue.add("later")
        async with acphold.connect(served.url, token=token, capabilities=can) as other:
            same = await other.load_session(session.id, served.folder)
            assert [prompt.words for prompt in same.queue.state.waiting] == ["later"]
            assert same.queue.state.held == "person"


def scripted_in(served: Served) -> int:
    """The number of scripted agents that run for a server."""
    children = [it for daemon in served.daemons() for it in daemon.children(recursive=True)]
    return sum(str(SCRIPTED) in child.cmdline() for child in children)


async def test_a_session_that_is_opened_only_to_read_it_starts_no_agent_until_it_is_opened_to_act(
    tmp_path: Path,
) -> None:
    with two_agents(tmp_path) as before:
        async with client_of(before) as (editor, _):
            begun = await editor.new(tmp_path, **{"acphold/agent": "two"})
            id_ = begun["sessionId"]
            await editor.say(id_, "first words")
    with two_agents(tmp_path) as served:
        async with client_of(served) as (client, _):
            where: dict[str, Any] = {"sessionId": id_, "cwd": str(tmp_path), "mcpServers": []}
            reads = {"_meta": {"acphold/reads": True}}
            await client.ask("session/load", **where, **reads)
            assert client.heard_of("words")
            assert scripted_in(served) == 0
            await client.ask("session/set_title", sessionId=id_, title="Named by a reader")
            assert scripted_in(served) == 0
            with pytest.raises(RemoteError, match="scope 'prompt'"):
                await client.say(id_, "too early")
            await client.ask("session/resume", **where)
            assert scripted_in(served) == 1
            await client.say(id_, "second")
            assert client.heard_of("second")
            assert sum("second" in told for told in client.told) == 1
            await client.ask("session/resume", **where, **reads)  # it stays as it is
            await client.say(id_, "third")
            assert client.heard_of("third")


async def test_whoever_stops_the_agents_is_told_that_the_server_goes_on(
    served: Served, tmp_path: Path
) -> None:
    async with client_of(served) as (client, _):
        opened = await client.new(tmp_path)
        status = served.run("agent", "status")
        assert f"{opened['sessionId'][:6]}  idle   1 client" in status
        assert opened["sessionId"] not in status
        told = await asyncio.to_thread(served.run_as_process, "agent", "stop")
    assert f"or `kill {served.process.pid}`, ends it." in told
    assert served.process.poll() is None
