"""An agent and its sessions, and the capabilities it must have advertised for them."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from acp_wire.schema import AgentMessageChunk, McpServerHttp, McpServerSse, McpServerStdio
from acphold.client import RemoteAgent, RemoteSession, bounds
from acphold.client.bounds import LIST_WALKS
from acphold.conversation.history.timeline import Message
from acphold.errors import (
    AgentTimeoutError,
    CapabilityError,
    ConnectionLostError,
    InvalidParamsError,
    RemoteError,
)
from tests.client.far_agent import ALL, FarAgent, Refusal, in_session, talking


async def test_initialize_comes_first_and_says_who_we_are_and_what_we_can() -> None:
    far = FarAgent(agentInfo={"name": "far", "version": "2", "title": "Far Agent"})
    async with talking(far) as agent:
        assert agent.info is not None
        assert (agent.info.name, agent.info.version, agent.name) == ("far", "2", "Far Agent")
        assert not agent.capabilities.load_session
        await agent.new_session("/tmp")
    assert far.methods() == ["initialize", "session/new"]
    params = far.params("initialize")
    assert params["protocolVersion"] == 1
    assert params["clientInfo"]["name"] == "acphold"
    assert params["clientCapabilities"]["fs"] == {}
    assert "terminal" not in params["clientCapabilities"]
    assert "elicitation" not in params["clientCapabilities"]


NOT_ADVERTISED: dict[str, Callable[[RemoteAgent, RemoteSession], Awaitable[object]]] = {
    "loadSession": lambda agent, _: agent.load_session("s"),
    "sessionCapabilities.resume": lambda agent, _: agent.resume_session("s"),
    "sessionCapabilities.list": lambda agent, _: anext(agent.sessions()),
    "sessionCapabilities.delete": lambda agent, _: agent.delete_session("s"),
    "sessionCapabilities.close": lambda _, session: session.close(),
    "auth.logout": lambda agent, _: agent.logout(),
    "mcpCapabilities.http": lambda agent, _: agent.new_session(
        mcp_servers=[McpServerHttp(name="m", url="http://x", headers=())]
    ),
    "mcpCapabilities.sse": lambda agent, _: agent.new_session(
        mcp_servers=[McpServerSse(name="m", url="http://x", headers=())]
    ),
    "mcpCapabilities.http`": lambda agent, _: agent.new_session(
        mcp_servers=cast("Any", [{"type": "http", "name": "m", "url": "http://x", "headers": []}])
    ),
    "mcpCapabilities.sse`": lambda agent, _: agent.new_session(
        mcp_servers=cast("Any", [{"type": "sse", "name": "m", "url": "http://x", "headers": []}])
    ),
    "sessionCapabilities.additionalDirectories": lambda agent, _: agent.new_session(
        additional_directories=["/tmp"]
    ),
}


@pytest.mark.parametrize("capability", NOT_ADVERTISED)
async def test_what_was_not_advertised_is_refused_before_anything_is_sent(capability: str) -> None:
    far = FarAgent()
    async with talking(far) as agent:
        session = await agent.new_session("/tmp")
        before = len(far.got)
        with pytest.raises(CapabilityError, match=capability):
            await NOT_ADVERTISED[capability](agent, session)
        await session.prompt("the connection is as it was")
    assert [message["method"] for message in far.got[before:]] == ["session/prompt"]


@pytest.mark.parametrize("capability", NOT_ADVERTISED)
async def test_what_was_advertised_is_sent(capability: str) -> None:
    far = FarAgent(ALL)

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessions": [{"sessionId": "s", "cwd": "/"}]}

    async with talking(far) as agent:
        session = await agent.new_session("/tmp")
        before = len(far.got)
        await NOT_ADVERTISED[capability](agent, session)
    assert len(far.got) == before + 1


async def test_a_server_that_is_a_plain_dict_is_checked_as_its_type() -> None:
    far = FarAgent(ALL)
    whole = {"name": "m", "command": "sh", "args": [], "env": [], "_meta": {"x": 1}}
    async with talking(far) as agent:
        await agent.new_session("/tmp", mcp_servers=cast("Any", [whole]))
        broken = {"type": "http", "name": "m", "headers": []}
        with pytest.raises(InvalidParamsError, match=r"mcpServers\[1\]\.url"):
            await agent.new_session("/tmp", mcp_servers=cast("Any", [whole, broken]))
    (sent,) = far.params("session/new")["mcpServers"]
    assert sent == {**whole, "command": shutil.which("sh")}


async def test_paths_are_made_absolute_from_the_folder_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    far = FarAgent(ALL)

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessions": []}

    servers = [
        McpServerStdio(name="one", command="./serve", args=(), env=()),
        McpServerStdio(name="two", command="sh", args=(), env=()),
        McpServerStdio(name="three", command="no-such-program", args=(), env=()),
    ]
    async with talking(far) as agent:
        session = await agent.new_session(
            "work", mcp_servers=servers, additional_directories=["../other", Path("more")]
        )
        assert session.cwd == str(tmp_path / "work")
        assert [info async for info in agent.sessions(cwd=".")] == []
        here = await agent.new_session()
        assert here.cwd == str(tmp_path)
    asked = [message["params"] for message in far.got if message.get("method") == "session/new"]
    params = asked[0]
    assert params["cwd"] == str(tmp_path / "work")
    assert params["additionalDirectories"] == [str(tmp_path.parent / "other"), f"{tmp_path}/more"]
    commands = [server["command"] for server in params["mcpServers"]]
    assert commands == [f"{tmp_path}/serve", shutil.which("sh"), "no-such-program"]
    assert far.params("session/list")["cwd"] == str(tmp_path)


async def test_a_replay_is_apart_from_what_comes_live() -> None:
    far = FarAgent(ALL)

    @far.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("old", "said before", kind="user_message_chunk")
        agent.say("old", "answered before")
        agent.send(id=agent.got[-1]["id"], result={})
        agent.say("old", "live already")
        await asyncio.Event().wait()

    async with talking(far) as agent:
        session = await agent.load_session("old", "/tmp")
        assert len(session.replay) == 2
        assert [type(update).__name__ for update in session.replay] == [
            "UserMessageChunk",
            "AgentMessageChunk",
        ]
        first = session.replay[1]
        assert isinstance(first, AgentMessageChunk)
        live = await anext(session.updates())
        assert isinstance(live, AgentMessageChunk)
        assert live.content == type(live.content)(text="live already")  # type: ignore[call-arg]
        texts = [item.text for item in session.state.timeline if isinstance(item, Message)]
        assert texts == ["said before", "answered beforelive already"]


async def test_what_comes_between_a_load_and_the_first_reader_is_kept_for_it() -> None:
    far = FarAgent(ALL)
    async with talking(far) as agent:
        session = await agent.load_session("old", "/tmp")
        far.say("old", "one ")
        await agent.resume_session("other", "/tmp")  # by its answer the one before has come
        stream = session.updates()
        far.say("old", "two")
        updates = [await anext(stream), await anext(stream)]
        said = [update.content for update in updates if isinstance(update, AgentMessageChunk)]
        assert [getattr(content, "text", "") for content in said] == ["one ", "two"]


async def test_updates_before_the_answer_to_new_belong_to_the_new_session() -> None:
    far = FarAgent()

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.update(
            "fresh",
            "available_commands_update",
            availableCommands=[{"name": "help", "description": "Helps"}],
        )
        agent.say("somebody else's", "not for us")
        return {"sessionId": "fresh"}

    async with in_session(far) as session:
        assert [command.name for command in session.commands] == ["help"]
        assert session.state.timeline == ()


async def test_of_very_many_updates_before_the_answer_to_new_the_first_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "EARLY_BYTES", 1000)
    far = FarAgent()

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        for number in range(1000):
            agent.say("fresh", f"{number} ")
        return {"sessionId": "fresh"}

    async with in_session(far) as session:
        [message] = session.state.timeline
        assert isinstance(message, Message)
        assert message.text.startswith("0 1 2 ")
        assert "999" not in message.text


async def test_all_pages_are_listed_and_a_cursor_is_given_back_as_it_came() -> None:
    far, cursors = FarAgent(ALL), list[Any]()
    pages: dict[Any, Any] = {None: " ?=&\u00e9\n", " ?=&\u00e9\n": "", "": None}

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        cursor = params.get("cursor")
        cursors.append(cursor)
        info = {"sessionId": f"s{[*pages].index(cursor) + 1}", "cwd": "/tmp", "title": "T"}
        following = pages[cursor]
        return {"sessions": [info], **({} if following is None else {"nextCursor": following})}

    async with talking(far) as agent:
        found = [info.session_id async for info in agent.sessions(cwd="/tmp")]
    assert found == ["s1", "s2", "s3"]
    assert cursors == [*pages, None]
    assert far.params("session/list")["cwd"] == "/tmp"


@pytest.mark.parametrize(("leads", "asked"), [({}, 3), ({"a": "b"}, 4)])
async def test_cursors_that_lead_to_themselves_or_round_and_round_end_the_list(
    leads: dict[str, str], asked: int
) -> None:
    far = FarAgent(ALL)

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessions": [], "nextCursor": leads.get(params.get("cursor", ""), "a")}

    async with talking(far) as agent:
        assert [info async for info in agent.sessions()] == []
    assert far.methods().count("session/list") == asked


async def test_a_session_that_moves_up_while_the_pages_are_read_is_listed_once() -> None:
    far = FarAgent(ALL)
    order = ["new", "middle", "old"]

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        at = int(params.get("cursor", 0))
        page = {"sessions": [{"sessionId": order[at], "cwd": "/tmp"}]}
        if at == 1 and order[-1] == "old":
            order.insert(0, order.pop())  # a prompt in it: "middle" now stands where it stood
        return page if at == 2 else {**page, "nextCursor": str(at + 1)}

    async with talking(far) as agent:
        found = [info.session_id async for info in agent.sessions()]
    assert found == ["new", "middle", "old"]


async def test_an_agent_with_other_sessions_each_time_is_not_asked_for_ever() -> None:
    far, ids = FarAgent(ALL), itertools.count()

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        page = {"sessions": [{"sessionId": f"s{next(ids)}", "cwd": "/tmp"}]}
        return page if "cursor" in params else {**page, "nextCursor": "b"}

    async with talking(far) as agent:
        found = [info.session_id async for info in agent.sessions()]
    assert len(found) == 2 * LIST_WALKS


async def test_what_an_agent_lists_is_taken_as_it_is_each_time() -> None:
    far = FarAgent(ALL)
    listed: list[dict[str, Any]] = [{"additionalDirectories": ["/a"], "title": "One"}, {}]

    @far.on("session/list")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        return {"sessions": [{"sessionId": "s", "cwd": "/tmp", **listed.pop(0)}]}

    async with talking(far) as agent:
        [first] = [info async for info in agent.sessions()]
        [second] = [info async for info in agent.sessions()]
        assert (first.additional_directories, first.title) == (("/a",), "One")
        assert (second.additional_directories, second.title) == ((), None)
        loaded = await agent.load_session("s", "/tmp")
        assert loaded.additional_directories == ()
    assert "additionalDirectories" not in far.params("session/load")


async def test_a_load_that_fails_leaves_the_open_session_as_it_is() -> None:
    far = FarAgent(ALL)

    @far.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.say("s1", "half a replay")
        raise Refusal(-32002, "Session not found")

    async with talking(far) as agent:
        session = await agent.new_session("/tmp")
        with pytest.raises(RemoteError, match="not found"):
            await agent.load_session("s1", "/tmp")
        assert (await session.prompt("still here")).text == "heard still here"


async def test_opening_a_session_again_ends_what_was_open_of_it() -> None:
    async with talking(FarAgent(ALL)) as agent:
        first = await agent.new_session("/tmp")
        second = await agent.load_session(first.id, "/tmp")
        with pytest.raises(ConnectionLostError, match="opened again"):
            await first.prompt("hello")
        assert (await second.prompt("hello")).text == "heard hello"


async def test_signing_in_takes_an_offered_method_that_is_not_for_a_terminal() -> None:
    methods = [
        {"id": "oauth", "name": "Sign in"},
        {"id": "tty", "name": "In a terminal", "type": "terminal", "args": ["--login"]},
    ]
    far = FarAgent(ALL, authMethods=methods)
    async with talking(far) as agent:
        assert [method.id for method in agent.auth_methods] == ["oauth", "tty"]
        await agent.authenticate("oauth")
        with pytest.raises(CapabilityError, match=r"needs a terminal: run .* --login"):
            await agent.authenticate("tty")
        with pytest.raises(CapabilityError, match="only 'oauth', 'tty'"):
            await agent.authenticate("password")
        await agent.logout()
    assert far.methods() == ["initialize", "authenticate", "logout"]
    assert "auth" not in far.params("initialize")["clientCapabilities"]


async def test_extensions_are_asked_and_told_and_heard() -> None:
    far, heard = FarAgent(), list[tuple[str, Any]]()

    @far.on("_far/sum")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        agent.send(method="_far/added", params={"so far": 3})
        return sum(params["numbers"])

    async def double(params: dict[str, Any]) -> object:
        return {"twice": params["number"] * 2}

    async with talking(
        far,
        on_notification=lambda method, params: heard.append((method, params)),
        handlers={"_us/double": double},
    ) as agent:
        assert await agent.call("_far/sum", {"numbers": [1, 2]}) == 3
        assert heard == [("_far/added", {"so far": 3})]
        agent.notify("_far/hint", {"x": 1})
        await far.until("_far/hint")
        assert (await far.ask("_us/double", number=4))["result"] == {"twice": 8}
        assert (await far.ask("_us/unknown"))["error"]["code"] == -32601


async def test_an_agent_that_says_nothing_at_all_is_given_up() -> None:
    far = FarAgent()

    @far.on("session/new")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        await asyncio.Event().wait()

    async with talking(far, silence=0.2) as agent:
        with pytest.raises(AgentTimeoutError, match=r"session/new within 0\.2 s"):
            await agent.new_session("/tmp")
        await far.until("$/cancel_request")


async def test_an_agent_that_says_something_is_waited_for() -> None:
    far = FarAgent(ALL)
    until = asyncio.get_running_loop().time() + 0.5

    @far.on("session/load")
    async def _(agent: FarAgent, params: dict[str, Any]) -> Any:
        while asyncio.get_running_loop().time() < until:
            agent.say("long", "replayed ")
            await asyncio.sleep(0)
            await agent.drain()
        return None

    async with talking(far, silence=0.2) as agent:
        session = await agent.load_session("long", os.curdir)
        assert len(session.replay) > 1
