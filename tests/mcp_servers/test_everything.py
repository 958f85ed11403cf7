"""Servers of others, on each transport, behave the same for every user."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from acp_wire.schema import ImageContent, McpServerStdio, TextResourceContents
from acp_wire.surroundings import Surroundings
from acphold.mcp_servers.connections import McpConnection
from acphold.mcp_servers.offers import OurSide, Progress
from acphold.mcp_servers.servers import Server
from tests.mcp_servers.conftest import FILESYSTEM, SECRET, Connect, Told, on_stdio
from tests.watched_processes import until

pytestmark = pytest.mark.slow

JsonObject = dict[str, object]


@pytest.fixture(params=["stdio", "http", "sse"])
async def server(request: pytest.FixtureRequest, everything: dict[str, Server]) -> Server:
    """`everything` on one of the transports."""
    return everything[request.param]


@pytest.fixture
async def connection(server: Server, connect: Connect) -> McpConnection:
    return connect(server)


async def test_tools_are_listed_and_called(connection: McpConnection) -> None:
    tools = {tool.name: tool for tool in await connection.tools()}
    assert tools["echo"].server == "everything"
    assert tools["echo"].input_schema["type"] == "object"
    result = await connection.call("echo", {"message": "héllo"})
    assert (result.text, result.failed) == ("Echo: héllo", False)


async def test_results_are_structured_or_images_or_failures(connection: McpConnection) -> None:
    weather = await connection.call("get-structured-content", {"location": "New York"})
    assert weather.structured is not None
    assert "temperature" in weather.structured
    image = await connection.call("get-tiny-image")
    assert [block.mime_type for block in image.content if isinstance(block, ImageContent)] == [
        "image/png"
    ]
    assert (await connection.call("no-such-tool")).failed
    assert (await connection.call("get-sum", {"a": "x"})).failed


async def test_progress_comes_in_order_and_before_the_result(connection: McpConnection) -> None:
    heard: list[float] = []

    async def report(progress: Progress) -> None:
        assert progress.total == 4
        await asyncio.sleep(0)
        heard.append(progress.done)

    arguments = {"duration": 0.2, "steps": 4}
    await connection.call("trigger-long-running-operation", arguments, on_progress=report)
    assert heard == [1, 2, 3, 4]


async def test_a_cancelled_call_leaves_the_connection_as_it_was(connection: McpConnection) -> None:
    begun = asyncio.Event()

    async def report(progress: Progress) -> None:
        begun.set()

    arguments = {"duration": 60, "steps": 1200}
    call = asyncio.create_task(
        connection.call("trigger-long-running-operation", arguments, on_progress=report)
    )
    await begun.wait()
    state = connection.state
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await connection.call("echo", {"message": "still"})).text == "Echo: still"
    assert connection.state is state


async def test_resources_and_prompts_can_be_read(connection: McpConnection) -> None:
    resources = await connection.resources()
    text = next(one for one in resources if (one.mime_type or "").startswith("text/"))
    (contents,) = await connection.read_resource(text.uri)
    assert isinstance(contents, TextResourceContents)
    assert contents.text
    prompts = {prompt.name: prompt for prompt in await connection.prompts()}
    assert [argument.required for argument in prompts["args-prompt"].arguments] == [True, False]
    made = await connection.get_prompt("args-prompt", {"city": "Ulm"})
    assert made.messages[0].role == "user"
    assert "Ulm" in str(made.messages[0].content)


async def test_the_roots_of_the_session_are_answered(
    server: Server, connect: Connect, tmp_path: Path
) -> None:
    connection = connect(server, roots=(str(tmp_path), "/srv/a b"))
    await until_offered(connection, "get-roots-list")
    text = (await connection.call("get-roots-list")).text
    assert tmp_path.as_uri() in text
    assert "file:///srv/a%20b" in text


async def until_offered(connection: McpConnection, tool: str) -> None:
    """Wait for a tool that `everything` adds and announces once it knows our capabilities."""
    async with asyncio.timeout(10):
        while tool not in {one.name for one in await connection.tools()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_nobody_answers_is_not_offered_to_the_server(connection: McpConnection) -> None:
    await until_offered(connection, "get-roots-list")
    names = {tool.name for tool in await connection.tools()}
    assert not {name for name in names if "sampling" in name or "elicitation" in name}


async def test_what_a_server_asks_is_passed_on(server: Server, connect: Connect) -> None:
    asked: list[tuple[str, JsonObject]] = []

    async def elicit(name: str, params: JsonObject) -> JsonObject:
        asked.append((name, params))
        return {"action": "decline"}

    connection = connect(server, elicitation=elicit)
    await until_offered(connection, "trigger-elicitation-request")
    assert "decline" in (await connection.call("trigger-elicitation-request")).text.lower()
    ((name, params),) = asked
    assert name == "everything"
    assert "requestedSchema" in params


async def test_what_raises_in_answering_a_server_becomes_its_error(
    server: Server, connect: Connect
) -> None:
    async def elicit(name: str, params: JsonObject) -> JsonObject:
        raise ValueError("no person")

    connection = connect(server, elicitation=elicit)
    await until_offered(connection, "trigger-elicitation-request")
    assert (await connection.call("trigger-elicitation-request")).failed


async def test_a_burst_of_changes_of_the_lists_is_reported_once(
    server: Server, connect: Connect
) -> None:
    told = Told()
    connection = connect(server, listener=told)
    await connection.ready()
    await until(lambda: bool(told.changes))
    await until_offered(connection, "get-roots-list")
    assert told.changes.count("tools") in (1, 2)  # it says so five times


async def test_files_of_the_roots_are_served(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("found")
    connection = connect(on_stdio(FILESYSTEM, str(tmp_path)))
    assert len(await connection.tools()) >= 10
    result = await connection.call("read_text_file", {"path": str(tmp_path / "note.txt")})
    assert result.text == "found"
    outside = await connection.call("read_text_file", {"path": "/etc/hostname"})
    assert outside.failed


async def test_an_environment_variable_reaches_the_program(everything: dict[str, Server]) -> None:
    server = everything["stdio"]
    assert isinstance(server, McpServerStdio)
    connection = McpConnection(server, OurSide(cwd="/", surroundings=Surroundings.here()))
    env = msgspec.json.decode((await connection.call("get-env")).text, type=dict[str, str])
    assert env["TOKEN"] == SECRET
    await connection.aclose()
