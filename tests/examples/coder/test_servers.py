"""MCP servers of a session, used by the model of the coding agent."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic_ai.messages import BinaryContent, ToolReturnPart

from acphold.testing import connect
from tests.examples.coder.scripted import Script, call
from tests.library.conftest import broken_server, mcp_server


async def test_the_model_uses_the_tools_of_a_server(tmp_path: Path) -> None:
    script = Script([call("test__echo", message="hi")], "It says hi.")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path, mcp_servers=[mcp_server()])
        result = await session.prompt("echo")
        assert not client.permissions, "its server says that it only reads"
    assert {"test__echo", "read"} <= script.tools
    [made] = result.tool_calls
    assert (made.status, made.raw_input) == ("completed", b'{"message":"hi"}')
    assert made.title == "test: Echo"
    assert script.given()[-1] == "tool: hi"


async def test_what_a_server_may_change_is_asked_about_with_all_arguments(tmp_path: Path) -> None:
    long = "x" * 5000
    calls = [call("test__count", upto=long), call("test__count", upto="2"), call("test__fail")]
    script = Script(calls, "ok", call("test__count"), "planned")
    answers = ["allow_always", "allow_once"]
    async with connect(script.agent(), on_permission=answers) as client:
        session = await client.new_session(tmp_path, mcp_servers=[mcp_server()])
        result = await session.prompt("count")
        asked = [params for method, params in client.requests if "permission" in method]
        assert [it["toolCall"]["title"] for it in asked] == ["test: count", "test: fail"]
        assert asked[0]["toolCall"]["rawInput"] == {"upto": long}
        assert [made.status for made in result.tool_calls] == ["completed", "completed", "failed"]
        assert script.given()[-1] == "tool: it cannot be done"
        await session.set_mode("plan")
        result = await session.prompt("count")
        assert [made.status for made in result.tool_calls] == ["failed"]


async def test_a_picture_of_a_server_reaches_the_model(tmp_path: Path) -> None:
    script = Script(call("test__image"), "I see.")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path, mcp_servers=[mcp_server()])
        result = await session.prompt("show")
    assert b'"image"' in result.tool_calls[0].content[0]
    [sent] = script.requests[-1][-1].parts
    assert isinstance(sent, ToolReturnPart)
    assert [file.data for file in sent.files if isinstance(file, BinaryContent)] == [b"hi"]


async def test_a_server_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    script = Script("without it")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path, mcp_servers=[broken_server()])
        assert (await session.prompt("hi")).text == "without it"
    assert not any("broken" in name for name in script.tools)


async def test_tools_have_names_that_vendors_take_and_that_differ(tmp_path: Path) -> None:
    script = Script("ok")
    servers = [mcp_server("my server"), mcp_server("my.server"), mcp_server("s" * 100)]
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path, mcp_servers=servers)
        await session.prompt("hi")
    names = [tool.name for tool in script.infos[-1].function_tools]
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert {"my_server__echo", "my_server__echo_9"} <= set(names)
    assert len(set(names)) == len(names) == 4 + 3 * 9
