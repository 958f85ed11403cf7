"""The MCP servers of a session, as its turns use them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import acphold
from acphold.testing import connect
from tests.library.conftest import broken_server, mcp_server
from tests.library.test_turn import agent_that, one_turn, opened

pytestmark = pytest.mark.timeout(120)


async def call(turn: acphold.Turn) -> None:
    """`TOOL {arguments}`, shown as a tool call; says the text of the result."""
    tool, _, arguments = turn.text.partition(" ")
    result = await turn.mcp.call("test", tool, json.loads(arguments or "{}"))
    await turn.say(result.text)


async def test_a_call_is_shown_with_its_arguments_progress_and_result() -> None:
    async with opened(agent_that(call), mcp_servers=[mcp_server()]) as (_, session):
        result = await session.prompt('echo {"message": "hi", "path": "a.txt"}')
        assert result.text == "hi"
        [shown] = result.tool_calls
        assert (shown.title, shown.kind, shown.status) == ("Echo", "read", "completed")
        assert shown.raw_input == b'{"message":"hi","path":"a.txt"}'
        assert shown.fields["name"] == b'"echo"'
        assert b"structuredContent" in (shown.raw_output or b"")
        assert b'"text":"hi"' in shown.content[0]
        assert f"{session.cwd}/a.txt".encode() in shown.fields["locations"]

        result = await session.prompt("count")
        progress = [
            update["content"][0]["content"]["text"]
            for update in result.received.of("tool_call_update")
            if update.get("content")
        ]
        assert progress == ["so (1/2)", "so (2/2)", "counted"]
        assert result.tool_calls[0].title == "test: count"

        result = await session.prompt("image")
        assert b'"type":"image"' in result.tool_calls[0].content[0]
        assert b"".join(result.received.raws).count(b"aGk=") == 1, "an image is sent once"
        result = await session.prompt("fail")
        assert (result.text, result.stop_reason) == ("it cannot be done", "end_turn")
        assert [shown.status for shown in result.tool_calls] == ["failed"]


async def test_a_call_is_cancelled_with_its_turn() -> None:
    async with opened(agent_that(call), mcp_servers=[mcp_server()]) as (_, session):
        turn = session.prompt("hang")
        await session.until(lambda told: told.tool_calls)
        session.cancel()
        result = await turn
        assert result.stop_reason == "cancelled"
        assert [shown.status for shown in result.tool_calls] == ["failed"]
        assert (await session.prompt('echo {"message": "still here"}')).text == "still here"


async def test_new_waits_for_no_server_and_a_turn_only_for_those_it_asks(work: Path) -> None:
    async def use(turn: acphold.Turn) -> None:
        if turn.text == "quick":
            await turn.say((await turn.mcp["quick"].call("echo", {"message": "quick"})).text)
        else:
            tools = await turn.mcp.tools()
            await turn.say(" ".join(sorted({tool.server for tool in tools})))

    servers = [mcp_server("quick"), mcp_server("slow", "slow"), broken_server()]
    async with connect(agent_that(use)) as client:
        started = time.monotonic()
        session = await client.new_session(work, mcp_servers=servers)
        assert time.monotonic() - started < 0.9, "one of them takes a second"
        assert (await session.prompt("quick")).text == "quick"
        assert (await session.prompt("all")).text == "quick slow"


async def test_a_server_that_fails_is_reported_once_and_the_session_works_all_the_same() -> None:
    async def use(turn: acphold.Turn) -> None:
        await turn.mcp.tools()
        error = turn.mcp["broken"].error
        assert error is not None
        with pytest.raises(acphold.McpError, match="no config"):
            await turn.mcp.call("broken", "echo")
        await turn.say(error)

    async with opened(agent_that(use), mcp_servers=[broken_server(), mcp_server()]) as (_, session):
        result = await session.prompt("go")
        assert "MCP server 'broken'" in result.text
        assert "no config" in result.text
        [notice] = session.received.of("notice")
    assert notice["title"] == "MCP server 'broken' is not available"
    assert (notice["severity"], "no config" in notice["description"]) == ("warning", True)
    assert "broken" not in notice["description"], "a notice says a thing once"


async def test_a_session_without_servers_says_so() -> None:
    async def use(turn: acphold.Turn) -> None:
        assert (await turn.mcp.tools(), await turn.mcp.prompts()) == ((), ())
        assert (list(turn.mcp), len(turn.mcp), "test" in turn.mcp) == ([], 0, False)
        with pytest.raises(acphold.McpError, match="no MCP servers"):
            turn.mcp["test"]
        await turn.say("told")

    assert (await one_turn(use)).text == "told"


async def test_prompts_are_slash_commands_that_become_what_the_server_makes_of_them() -> None:
    async def answer(turn: acphold.Turn) -> None:
        await turn.say(f"{turn.command}: {turn.text}")

    agent = agent_that(answer)
    agent.command("plan", "Makes a plan")
    async with opened(agent, mcp_servers=[mcp_server(), broken_server()]) as (client, session):
        told = await session.until(lambda told: len(told.of("available_commands_update")) == 2)
        assert told.of("available_commands_update")[-1]["availableCommands"] == [
            {"name": "plan", "description": "Makes a plan"},
            {
                "name": "test:greet",
                "description": "Greets somebody",
                "input": {"hint": "who [how]"},
            },
        ]
        result = await session.prompt("/test:greet Ada warmly")
        assert result.text == "('test:greet', 'Ada warmly'): Greet Ada warmly"
        assert "needs: who" in (await session.prompt("/test:greet")).text
        assert (await session.prompt("/plan it")).text == "('plan', 'it'): /plan it"
        assert (await session.prompt("/other")).text == "None: /other"

        await client.restart()
        session = await client.load_session(session.id, mcp_servers=[mcp_server()])
        result = await session.prompt("/test:greet Ada")
        while "Greet Ada" not in result.text:  # it may not have told its prompts yet
            result = await session.prompt("/test:greet Ada")


async def test_a_servers_question_is_passed_on_to_the_person() -> None:
    asked: list[acphold.FormQuestion] = []

    def fill_in(question: acphold.FormQuestion) -> dict[str, Any]:
        asked.append(question)
        return {"name": "Ada"}

    async with opened(agent_that(call), mcp_servers=[mcp_server()], on_form=fill_in) as (
        _,
        session,
    ):
        result = await session.prompt("ask")
        assert json.loads(result.text) == {"action": "accept", "content": {"name": "Ada"}}
        assert asked[0].message == "test: Your name?"
    async with opened(agent_that(call), mcp_servers=[mcp_server()]) as (_, session):
        assert "code" in json.loads((await session.prompt("ask")).text), "refused: no forms here"


async def test_a_server_runs_in_the_cwd_and_knows_the_roots(work: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    async with connect(agent_that(call)) as client:
        session = await client.new_session(
            work, additional_directories=[other], mcp_servers=[mcp_server(TOKEN="t0ken")]
        )
        facts = json.loads((await session.prompt("facts")).text)
        assert facts == {"cwd": str(work), "token": "t0ken"}
        roots = json.loads((await session.prompt("roots")).text)["roots"]
        assert [root["uri"] for root in roots] == [f"file://{work}", f"file://{other}"]


async def test_closing_the_session_ends_its_servers_and_nothing_keeps_their_secrets(
    work: Path,
) -> None:
    me = psutil.Process()

    def is_server(process: psutil.Process) -> bool:
        try:
            return "mcp_server.py" in str(process.cmdline())
        except psutil.Error:  # it has ended meanwhile
            return False

    def servers() -> list[psutil.Process]:
        return [child for child in me.children(recursive=True) if is_server(child)]

    async with opened(agent_that(call), work, mcp_servers=[mcp_server(TOKEN="hunter2")]) as (
        client,
        session,
    ):
        await session.prompt('echo {"message": "hi"}')
        assert len(servers()) == 1
        await session.close()
        assert servers() == []
        session = await client.load_session(session.id, mcp_servers=[mcp_server(TOKEN="hunter2")])
        assert (await session.prompt('echo {"message": "again"}')).text == "again"
        written = b"".join(
            path.read_bytes()
            for path in client.journal.parent.glob("journal.db*")
            if path.is_file()
        )
        assert b"again" in written
        assert b"hunter2" not in written
    assert servers() == []


async def test_servers_are_checked_before_anything_is_started() -> None:
    twice = [mcp_server("same"), mcp_server("same")]
    async with connect(agent_that(call)) as client:
        with pytest.raises(acphold.RemoteError, match="'same': another server has the same name"):
            await client.new_session(mcp_servers=twice)
