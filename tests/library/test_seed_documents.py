"""The session pages of ACP, demand by demand, against an agent written with the library.

The pages: session setup, session list, session modes. The name of each test states one demand. The
client uses nobody's library. The agent is a separate program where its process matters.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from acp_wire.schema import McpServerStdio
from acp_wire.transports.streams import memory_pair
from tests.editor import Editor, Talker, editor, prompt_params
from tests.library.conftest import broken_server, mcp_server
from tests.library.everything_agent import agent
from tests.mcp_servers.http_faults import faulty_http
from tests.served import Guest

AGENT = Path(__file__).with_name("everything_agent.py")


@asynccontextmanager
async def talking(
    journal: Path, *, introduced: bool = True, **capabilities: Any
) -> AsyncIterator[Talker]:
    """A client of the agent, which is served in this process."""
    here, there = memory_pair()
    serving = asyncio.create_task(agent.serve(there, journal=journal))
    client = Guest(here, serving)
    reading = asyncio.create_task(client.read())
    try:
        if introduced:
            await client.initialize(**capabilities)
        yield client
    finally:
        await client.leave()
        await reading


@asynccontextmanager
async def as_program(journal: Path) -> AsyncIterator[Editor]:
    """A client of the agent as a program, which runs in `/`."""
    command = [sys.executable, "-m", "acphold", "agent", "run", str(AGENT)]
    async with editor(command, journal=journal, cwd="/") as client:
        await client.initialize()
        yield client


def servers(*given: McpServerStdio | dict[str, Any]) -> list[Any]:
    """MCP servers as a client writes them."""
    return [msgspec.to_builtins(server) for server in given]


async def said(client: Talker, session_id: str, text: str) -> str:
    """Prompt the agent and return its text."""
    before = len(client.text(session_id=session_id))
    await client.prompt(session_id, text)
    return client.text(session_id=session_id)[before:]


def shown(client: Talker, session_id: str) -> list[dict[str, Any]]:
    """The conversation as the client has seen it, chunks in a row of one message joined."""
    joined: list[dict[str, Any]] = []
    for update in client.updates(session_id):
        last = joined[-1] if joined else {}
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk") and last.get("messageId") == update.get("messageId") is not None:
            last["content"]["text"] += update["content"]["text"]
        else:
            joined.append(update)
    return joined


def conversation(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The agent's messages and tool calls, each call merged with its updates."""
    calls: dict[str, dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for update in updates:
        match update["sessionUpdate"]:
            case "tool_call_update":
                calls[update["toolCallId"]].update(update | {"sessionUpdate": "tool_call"})
            case "tool_call":
                calls[update["toolCallId"]] = update
                found.append(update)
            case "user_message_chunk" | "session_info_update":
                pass
            case _:
                found.append(update)
    return found


# -- session setup: before a session ------------------------------------------------------------


async def test_a_session_before_initialize_is_refused(journal: Path) -> None:
    async with talking(journal, introduced=False) as client:
        refused = await client.refused("session/new", {"cwd": "/", "mcpServers": []})
        assert (refused.code, "before initialize" in refused.message) == (-32600, True)


async def test_load_list_resume_close_and_delete_are_advertised(journal: Path) -> None:
    async with talking(journal, introduced=False) as client:
        can = (await client.initialize())["agentCapabilities"]
        assert can["loadSession"] is True
        assert can["sessionCapabilities"].keys() >= {"list", "resume", "close", "delete"}
        assert "additionalDirectories" in can["sessionCapabilities"]


# -- session setup: creating a session ----------------------------------------------------------


async def test_every_new_session_has_an_id_of_its_own(journal: Path) -> None:
    async with talking(journal) as client:
        ids = [await client.new() for _ in range(20)]
    async with talking(journal) as client:
        ids += [await client.new() for _ in range(20)]
    assert len(set(ids)) == 40


async def test_the_answer_to_new_carries_the_modes(journal: Path) -> None:
    async with talking(journal) as client:
        made = await client.call("session/new", {"cwd": "/", "mcpServers": []})
        assert made["modes"] == {
            "currentModeId": "ask",
            "availableModes": [
                {"id": "ask", "name": "Ask", "description": "Asks first"},
                {"id": "code", "name": "Code"},
            ],
        }


async def test_sessions_keep_a_context_and_a_state_each(journal: Path) -> None:
    async with talking(journal) as client:
        one, two = await client.new(), await client.new()
        await said(client, one, "set colour red")
        await said(client, two, "set colour blue")
        await client.call("session/set_mode", {"sessionId": one, "modeId": "code"})
        assert await said(client, one, "get colour") == "red code 1"
        assert await said(client, two, "get colour") == "blue ask 1"


# -- session setup: loading a session -----------------------------------------------------------


async def test_load_replays_the_entire_conversation(journal: Path) -> None:
    async with as_program(journal) as client:
        session_id = await client.new()
        for text in ("set colour red", "work", "get colour"):
            await client.prompt(session_id, text)
        first = shown(client, session_id)
    async with as_program(journal) as client:
        await client.load(session_id)
        replayed = shown(client, session_id)
    asked = [update for update in replayed if update["sessionUpdate"] == "user_message_chunk"]
    assert [update["content"]["text"] for update in asked] == [
        "set colour red",
        "work",
        "get colour",
    ]
    # The rest is the same; only where a title was told among it is not looked at.
    assert conversation(replayed) == conversation(first)
    kinds = {update["sessionUpdate"] for update in conversation(first)}
    assert kinds == {
        "agent_message_chunk",
        "agent_thought_chunk",
        "plan",
        "tool_call",
        "usage_update",
    }


async def test_load_is_answered_after_the_whole_replay(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("work")
    async with talking(journal) as client:
        await client.load(session_id)
        replayed = len(client.updates(session_id))
        place = client.place_of_answer(client.last_id)
        before = [m for m in client.messages[:place] if m.get("method") == "session/update"]
        assert len(before) == replayed > 5
        assert await said(client, session_id, "get colour") == "None ask 1"
        later = client.updates(session_id)[replayed:]
        assert {update["sessionUpdate"] for update in later} == {"agent_message_chunk"}


async def test_a_loaded_session_goes_on(journal: Path) -> None:
    async with as_program(journal) as client:
        session_id = await client.talk("set colour red")
        await client.kill()
    async with as_program(journal) as client:
        await client.load(session_id)
        assert await said(client, session_id, "get colour") == "red ask 1"


async def test_load_answers_with_the_modes_as_they_stand(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("work")
        await client.call("session/set_mode", {"sessionId": session_id, "modeId": "code"})
    async with talking(journal) as client:
        assert (await client.load(session_id))["modes"]["currentModeId"] == "code"


async def test_load_of_an_unknown_session_is_refused(journal: Path) -> None:
    async with talking(journal) as client:
        refused = await client.refused(
            "session/load", {"sessionId": "nobody", "cwd": "/", "mcpServers": []}
        )
        assert (refused.code, refused.data) == (-32002, {"sessionId": "nobody"})


async def test_resume_replays_nothing(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("set colour red")
    async with talking(journal) as client:
        await client.resume(session_id)
        assert await said(client, session_id, "get colour") == "red ask 1"
        kinds = {update["sessionUpdate"] for update in client.updates(session_id)}
        assert kinds == {"agent_message_chunk"}


async def test_close_ends_what_runs_and_load_opens_it_again(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.new()
        turn = client.begin_prompt(session_id, "hang")
        await client.until_text("hanging")
        await client.call("session/close", {"sessionId": session_id})
        assert (await turn)["stopReason"] == "cancelled"
        await client.load(session_id)
        assert await said(client, session_id, "get colour") == "None ask 1"


# -- session setup: working directory -----------------------------------------------------------


async def test_cwd_must_be_absolute(journal: Path) -> None:
    async with talking(journal) as client:
        for method in ("session/new", "session/load", "session/resume"):
            params = {"sessionId": "x", "cwd": "work", "mcpServers": []}
            refused = await client.refused(method, params)
            assert (refused.code, refused.data) == (-32602, {"field": "cwd"})


async def test_the_sessions_cwd_counts_wherever_the_process_was_started(
    journal: Path, work: Path
) -> None:
    (work / "a.txt").write_text("from the cwd")
    async with as_program(journal) as client:
        session_id = await client.new(work)
        assert await said(client, session_id, "read a.txt") == "from the cwd"
        assert await said(client, session_id, "run pwd") == f"{work}\n"


async def test_files_outside_of_the_roots_are_refused(journal: Path, work: Path) -> None:
    (work.parent / "secret.txt").write_text("secret")
    (work / "link").symlink_to(work.parent)
    async with talking(journal) as client:
        session_id = await client.new(work)
        for path in ("../secret.txt", f"{work.parent}/secret.txt", "link/secret.txt"):
            assert "outside the folders" in await said(client, session_id, f"read {path}")
            assert "outside the folders" in await said(client, session_id, f"write {path}")
    assert (work.parent / "secret.txt").read_text() == "secret"


async def test_additional_directories_widen_the_boundary(journal: Path, work: Path) -> None:
    other = work.parent / "other"
    other.mkdir()
    (other / "a.txt").write_text("beside it")
    async with talking(journal) as client:
        session_id = await client.new(work, additionalDirectories=[str(other)])
        assert await said(client, session_id, f"read {other}/a.txt") == "beside it"


# -- session setup: MCP servers -----------------------------------------------------------------


async def test_a_stdio_server_is_connected(journal: Path, work: Path) -> None:
    async with as_program(journal) as client:
        given = servers(mcp_server(TOKEN="given"))
        session_id = await client.new(work, mcpServers=given)
        assert await said(client, session_id, "mcp test echo") == "hello"
        assert "given" in await said(client, session_id, "mcp test facts")


async def test_an_http_server_is_connected(journal: Path) -> None:
    async with talking(journal) as client:
        async with faulty_http() as server:
            key = {"name": "X-Key", "value": "k3y"}
            given = {"type": "http", "name": "web", "url": server.url("ok"), "headers": [key]}
            session_id = await client.new(mcpServers=[given])
            assert await said(client, session_id, "mcp web t") == "called"
        assert {headers["x-key"] for _, _, headers in server.seen} == {"k3y"}


async def test_http_and_sse_are_advertised(journal: Path) -> None:
    async with talking(journal, introduced=False) as client:
        can = (await client.initialize())["agentCapabilities"]
        assert can["mcpCapabilities"] == {"http": True, "sse": True, "acp": True}
        refused = await client.refused(
            "session/new",
            {"cwd": "/", "mcpServers": [{"type": "pigeon", "name": "far", "url": "x"}]},
        )
        assert (refused.code, "'far'" in refused.message) == (-32602, True)


async def test_all_servers_are_connected_and_a_broken_one_is_reported(journal: Path) -> None:
    async with talking(journal, session={"notices": {}}) as client:
        given = servers(mcp_server("one"), broken_server(), mcp_server("two"))
        session_id = await client.new(mcpServers=given)
        assert await said(client, session_id, "tools") == "one two"
        [notice] = [
            update for update in client.updates(session_id) if update["sessionUpdate"] == "notice"
        ]
        assert notice["title"] == "MCP server 'broken' is not available"


async def test_load_takes_the_session_its_folder_and_its_servers(journal: Path, work: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk(
            "work", cwd=work, mcpServers=servers(mcp_server(TOKEN="first"))
        )
    async with talking(journal) as client:
        given = servers(mcp_server(TOKEN="second"))
        elsewhere = {"sessionId": session_id, "cwd": str(work.parent), "mcpServers": given}
        assert (await client.refused("session/load", elsewhere)).data == {"field": "cwd"}
        await client.load(session_id, work, mcpServers=given)
        facts = await said(client, session_id, "mcp test facts")
        assert facts == f'{{"cwd": "{work}", "token": "second"}}'


# -- session modes ------------------------------------------------------------------------------


async def test_a_client_sets_the_mode(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.new()
        await client.call("session/set_mode", {"sessionId": session_id, "modeId": "code"})
        assert await said(client, session_id, "get colour") == "None code 0"
        refused = await client.refused(
            "session/set_mode", {"sessionId": session_id, "modeId": "nothing"}
        )
        assert refused.code == -32602


async def test_an_agent_tells_when_it_changes_the_mode_itself(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("mode code")
        [update] = [
            update
            for update in client.updates(session_id)
            if update["sessionUpdate"] == "current_mode_update"
        ]
        assert update["currentModeId"] == "code"


# -- session list -------------------------------------------------------------------------------


async def test_no_sessions_is_an_empty_list(journal: Path) -> None:
    async with talking(journal) as client:
        assert await client.call("session/list", {}) == {"sessions": []}
        assert await client.call("session/list", {"cwd": "/nowhere"}) == {"sessions": []}


async def test_a_first_turn_gives_a_title(journal: Path, work: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("set colour red", cwd=work)
        [info] = await client.sessions()
        assert (info["sessionId"], info["cwd"], info["title"]) == (
            session_id,
            str(work),
            "set colour red",
        )
        assert info["updatedAt"].endswith("Z")


async def test_list_filters_by_cwd(journal: Path, work: Path) -> None:
    async with talking(journal) as client:
        here, _ = await client.new(work), await client.new("/")
        assert [info["sessionId"] for info in await client.sessions(cwd=str(work))] == [here]
        refused = await client.refused("session/list", {"cwd": "work"})
        assert refused.code == -32602


async def test_list_is_paged_by_a_cursor(journal: Path) -> None:
    async with talking(journal) as client:
        ids = {await client.new() for _ in range(60)}
        page = await client.call("session/list", {})
        assert len(page["sessions"]) < 60
        rest = await client.call("session/list", {"cursor": page["nextCursor"]})
        assert "nextCursor" not in rest
        found = [info["sessionId"] for info in (*page["sessions"], *rest["sessions"])]
        assert (len(found), set(found)) == (60, ids)


async def test_an_invalid_cursor_is_refused(journal: Path, work: Path) -> None:
    async with talking(journal) as client:
        for _ in range(60):
            await client.new()
        cursor = (await client.call("session/list", {}))["nextCursor"]
        for bad in ("x", cursor[:-2], f"{cursor}x"):
            assert (await client.refused("session/list", {"cursor": bad})).code == -32602
        of_another = {"cwd": str(work), "cursor": cursor}
        assert (await client.refused("session/list", of_another)).code == -32602


async def test_list_needs_no_params(journal: Path) -> None:
    async with talking(journal) as client:
        await client.new()
        client.send({"id": 99, "method": "session/list"})
        answer = await client.until(
            lambda: next((m for m in client.messages if m.get("id") == 99), None)
        )
        assert len(answer["result"]["sessions"]) == 1


async def test_a_title_is_told_and_listed_and_null_clears_it(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("title A better name")
        titles = [
            update["title"]
            for update in client.updates(session_id)
            if update["sessionUpdate"] == "session_info_update"
        ]
        assert titles == ["A better name"]
        assert (await client.sessions())[0]["title"] == "A better name"
        await client.prompt(session_id, "title")
        assert client.updates(session_id)[-1]["title"] is None
        assert (await client.sessions())[0].get("title") is None


async def test_listing_changes_nothing(journal: Path) -> None:
    async with as_program(journal) as client:
        session_id = await client.talk("work")
        before = await client.sessions()
    async with as_program(journal) as client:
        assert await client.sessions() == before
        refused = await client.refused("session/prompt", prompt_params(session_id, "work"))
        assert "session/load" in refused.message
        assert client.updates() == []


async def test_a_deleted_session_is_gone(journal: Path) -> None:
    async with talking(journal) as client:
        session_id = await client.talk("work")
        await client.call("session/delete", {"sessionId": session_id})
        assert await client.sessions() == []
