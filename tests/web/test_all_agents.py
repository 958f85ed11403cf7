"""One connection to the sessions of all agents, each with its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest

import acphold
from acp_wire.errors import INVALID_PARAMS
from acp_wire.schema import ClientCapabilities
from acphold.errors import OTHER_AGENT, RemoteError
from tests.editor import SCRIPTED, introduced, scripted_agent, wrap_command
from tests.owners import lone_command
from tests.web.conftest import AGENT, Served, serving
from tests.web.far_client import ALL_AGENTS, YES, FarClient, asks, far_client

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


def client_of(
    served: Served, path: str = "", token: str | None = None
) -> AbstractAsyncContextManager[FarClient]:
    return far_client(served.url + path, token or served.token(), ALL_AGENTS, says_yes=True)


def heard_of(client: FarClient, word: str) -> bool:
    """True if the second agent has reported that it heard this."""
    return any("heard: " in told and f'{word}\\"' in told for told in client.told)


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
    async with client_of(served) as client:
        can = client.introduced["agentCapabilities"]
        assert can["_meta"]["acphold/allAgents"] == ["one", "two", "broken"]
        assert can["_meta"]["acphold/folder"] == os.getcwd()  # in which `serve` was started
        assert can["_meta"]["acphold/home"] == str(Path.home())
        assert can["loadSession"] is True
        assert client.introduced["agentInfo"]["name"] == "acphold"
        assert served.agents_running == []  # nobody has needed one yet
        first = await client.new(served.folder)
        second = await client.new(served.folder, **{"acphold/agent": "two"})
        assert first["_meta"]["acphold/agent"] == "one"
        assert second["_meta"]["acphold/agent"] == "two"
        info = second["_meta"]["acphold/introduction"]["agentInfo"]
        assert info["name"] == "raw"
        await client.say(first["sessionId"], "quick: hello")
        await client.say(second["sessionId"], "hello")
        assert heard_of(client, "hello")
    async with client_of(served, token=served.token("--user", "ann")) as client:
        can = client.introduced["agentCapabilities"]
        assert not {"acphold/folder", "acphold/home"} & set(can["_meta"])
    async with client_of(served, token=served.token("--scope", "watch")) as client:
        assert "acphold/home" not in client.introduced["agentCapabilities"]["_meta"]
    async with client_of(served, "/acp/two") as client:
        can = client.introduced["agentCapabilities"]
        assert can["_meta"]["acphold/allAgents"] == ["two", "one", "broken"]
        listed = (await client.ask("session/list"))["sessions"]
        agents = {row["sessionId"]: row["_meta"]["acphold/agent"] for row in listed}
        assert agents == {first["sessionId"]: "one", second["sessionId"]: "two"}
        for opened, name in agents.items():
            folder = str(served.folder)
            answer = await client.ask("session/load", sessionId=opened, cwd=folder, mcpServers=[])
            assert answer["_meta"]["acphold/agent"] == name
        await client.say(second["sessionId"], "again")
        assert heard_of(client, "again")


async def test_a_copy_is_for_the_agent_that_is_named(served: Served) -> None:
    async with client_of(served) as client:
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
    async with client_of(served) as client:
        second = await client.new(served.folder, **{"acphold/agent": "two"})
        await client.say(second["sessionId"], asks(second["sessionId"])[0]["text"])
        assert any('\\"yes\\"' in told for told in client.told)
        client.told.clear()
        waits = json.dumps([{"say": "waiting"}, {"until": "cancel"}, {"stop": "cancelled"}])
        turn = asyncio.create_task(client.say(second["sessionId"], waits))
        await client.until("waiting")
        client.peer.tell("session/cancel", json.dumps({"sessionId": second["sessionId"]}).encode())
        assert (await turn)["stopReason"] == "cancelled"


async def test_an_agent_ends_when_the_client_has_left_its_last_session(served: Served) -> None:
    async with client_of(served) as client:
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
    async with client_of(served) as client:
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
    async with client_of(served, token=only) as watcher:
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
    async with client_of(served) as client:
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
        client.says_yes = False
        turn = asyncio.create_task(client.say(here, asks(here)[0]["text"]))
        async with asyncio.timeout(30):
            _, answer = await client.asked.get()
        # In its first turn the session is that agent's already: the list has its name.
        rows = {row["sessionId"]: row for row in (await client.ask("session/list"))["sessions"]}
        assert rows[here]["_meta"]["acphold/agent"] == "two"
        answer.set_result(json.dumps(YES).encode())
        await turn
    async with client_of(served) as client:  # and nobody has to say so again
        opened = await client.ask("session/resume", **{**opening, "sessionId": here})
        assert opened["_meta"]["acphold/agent"] == "two"


async def test_two_loads_at_once_that_name_two_agents_open_the_session_once_at_the_first(
    served: Served,
) -> None:
    session_id = await held_elsewhere(served)
    opening = {"sessionId": session_id, "cwd": str(served.folder), "mcpServers": []}
    async with client_of(served) as client:
        named = ({"acphold/agent": name} for name in ("two", "one"))
        loads = (client.ask("session/load", **opening, _meta=meta) for meta in named)
        opened = await asyncio.gather(*loads)
        assert [answer["_meta"]["acphold/agent"] for answer in opened] == ["two", "two"]
        await client.say(session_id, "said once")
        heard = [told for told in client.told if "heard: " in told and "said once" in told]
        assert len(heard) == 1


@pytest.mark.parametrize("command", [wrap_command, lone_command])
async def test_a_session_that_is_live_for_an_editor_is_joined_with_its_own_agent(
    served: Served, command: Callable[[list[str]], list[str]]
) -> None:
    words = command(scripted_agent(info={"name": "elsewhere", "version": "1"}))
    async with introduced(words, journal=served.env["ACPHOLD_JOURNAL"], env=served.env) as editor:
        session_id = await editor.talk({"say": "hello"}, cwd=served.folder)
        async with client_of(served) as client:
            opening = {"sessionId": session_id, "cwd": str(served.folder), "mcpServers": []}
            opened = (await client.ask("session/resume", **opening))["_meta"]
            assert opened["acphold/agent"] == "elsewhere"
            assert opened["acphold/introduction"]["agentInfo"]["name"] == "elsewhere"
            await client.say(session_id, json.dumps([{"say": "from its own agent"}]))
            await editor.until_text("from its own agent")
            if command is lone_command:
                await editor.leave()  # it is nobody's now, and goes to no other agent by itself
                await client.until("is not open any more")
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


async def test_whoever_stops_the_agents_is_told_that_the_server_goes_on(
    served: Served, tmp_path: Path
) -> None:
    async with client_of(served) as client:
        opened = await client.new(tmp_path)
        status = served.run("agent", "status")
        assert f"{opened['sessionId'][:6]}  idle   1 client" in status
        assert opened["sessionId"] not in status
        told = await asyncio.to_thread(served.run_as_process, "agent", "stop")
    assert f"or `kill {served.process.pid}`, ends it." in told
    assert served.process.poll() is None
