"""MCP servers of others, used by a model in a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai.messages import BinaryContent, ToolReturnPart

from holdfast.schema import McpServer, McpServerHttp, McpServerSse, McpServerStdio
from holdfast.testing import connect
from tests.agents.model.scripted import Script, call
from tests.mcp.conftest import EVERYTHING, FILESYSTEM, listening, on_stdio


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for programs that do not end at the end of their stdin, as `everything` does."""
    monkeypatch.setattr("holdfast.mcp.program.GRACE", 0.4)


@pytest.fixture(params=["stdio", "http", "sse"])
def everything(request: pytest.FixtureRequest) -> Iterator[McpServer]:
    """The server `everything` on one of the transports."""
    if request.param == "stdio":
        yield on_stdio(EVERYTHING, "stdio")
    elif request.param == "http":
        with listening("streamableHttp") as port:
            yield McpServerHttp(name="everything", url=f"http://127.0.0.1:{port}/mcp", headers=())
    else:
        with listening("sse") as port:
            yield McpServerSse(name="everything", url=f"http://127.0.0.1:{port}/sse", headers=())


async def test_a_model_uses_the_tools_of_a_server(everything: McpServer) -> None:
    script = Script(
        [
            call("everything__get-sum", a=2, b=3),
            call("everything__get-tiny-image"),
            call("everything__trigger-long-running-operation", duration=0.2, steps=2),
            call("everything__get-sum", a="x"),
        ],
        "Five.",
    )
    async with connect(script.agent()) as client:
        session = await client.new_session(mcp_servers=[everything])
        result = await session.prompt("add")
        assert not client.permissions
    assert {"everything__echo", "read"} <= script.tools
    added, image, long, wrong = result.tool_calls
    assert [made.status for made in result.tool_calls] == ["completed"] * 3 + ["failed"]
    assert added.title == "everything: Get Sum Tool"
    assert added.raw_input == b'{"a":2,"b":3}'
    assert any(b'"type":"image"' in block for block in image.content)
    assert any("1" in str(update) for update in result.of("tool_call_update"))
    sent = [part for part in script.requests[-1][-1].parts if isinstance(part, ToolReturnPart)]
    assert "The sum of 2 and 3 is 5." in str(sent[0].content)
    assert any(isinstance(file, BinaryContent) for file in sent[1].files)
    assert "Long running operation completed" in str(sent[2].content)
    assert sent[3].outcome == "failed"
    assert long.raw_output is not None
    assert wrong.content


async def test_what_a_server_changes_is_asked_about(tmp_path: Path) -> None:
    server = on_stdio(FILESYSTEM, str(tmp_path))
    path = tmp_path / "a.txt"
    script = Script(
        [
            call("filesystem__write_file", path=str(path), content="one"),
            call("filesystem__read_text_file", path=str(path)),
        ],
        "ok",
        "planned",
    )
    async with connect(script.agent(), permission="allow_always") as client:
        session = await client.new_session(tmp_path, mcp_servers=[server])
        await session.prompt("write")
        assert [asked.tool_call.title for asked in client.permissions] == ["filesystem: Write File"]
        assert path.read_text() == "one"
        assert script.given()[-1].startswith("tool: one")
        await session.set_mode("plan")
        await session.prompt("plan")
    assert "filesystem__read_text_file" in script.tools
    assert "filesystem__write_file" not in script.tools


async def test_a_server_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    broken = McpServerStdio(name="broken", command="/no/such/program", args=(), env=())
    script = Script("without it")
    async with connect(script.agent()) as client:
        session = await client.new_session(tmp_path, mcp_servers=[broken])
        assert (await session.prompt("hi")).text == "without it"
    assert not any("broken" in name for name in script.tools)
