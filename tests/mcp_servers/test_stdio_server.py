"""MCP servers that are programs: their faults, and their remains."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from acp_wire.schema import ImageContent, McpServerStdio, TextContent, UnknownContent
from acp_wire.surroundings import Surroundings
from acphold.mcp_servers import transports
from acphold.mcp_servers.connections import Connecting, Failed, Lost, McpConnection, Ready
from acphold.mcp_servers.errors import McpAnswerError, McpConnectError, McpLostError
from acphold.mcp_servers.faults import FaultError
from acphold.mcp_servers.offers import OurSide, Progress
from acphold.mcp_servers.transports import INHERITED, StdioServer
from tests.mcp_servers.conftest import SECRET, Connect, Faulty, Told
from tests.watched_processes import lives, until

KEYS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"),
    *("SSH_AUTH_SOCK", "ACPHOLD_JOURNAL", "ACPHOLD_MCP_HEADERS", "ACPHOLD_MCP_URL", "ANYTHING"),
)


def started(pids: Path) -> list[int]:
    """The processes that faulty servers wrote down."""
    return [int(word) for word in pids.read_text().split()]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("exit", ("it ended with exit status 1", "boom: bad config for ***")),
        ("node", ("it ended with exit status 1", "Error: Cannot find module")),
        ("only_noise", ("it did not answer for 1 s", "3 lines to stdout", "'loading...'")),
        ("silent", ("it did not answer for 1 s",)),
        ("old", ("its answer to `initialize` cannot be used", "1999-01-01")),
        ("shapeless", ("its answer to `initialize` is not MCP",)),
        ("rejecting", ("it refused `initialize`: bad key *** (-32000)",)),
    ],
)
async def test_a_server_that_cannot_be_used_is_reported_with_the_reason(
    faulty: Faulty, connect: Connect, mode: str, words: tuple[str, ...]
) -> None:
    told = Told()
    connection = connect(faulty(mode), deadline=1.0, listener=told)
    assert not await connection.first_attempt()
    assert isinstance(connection.state, Failed)
    reason = told.reasons[mode]
    assert told.failures == 1
    assert connection.error == f"MCP server {mode!r}: {reason}"
    assert all(word in reason for word in words), reason
    assert SECRET not in reason


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/no/such/server",), "the file does not exist"),
        (("/etc/passwd",), "is not executable"),
        (("/tmp",), "it is a folder"),
        (("/bin/sh", "a\0b"), "NUL"),
    ],
)
async def test_a_program_that_does_not_start_is_reported(
    connect: Connect, command: tuple[str, ...], words: str
) -> None:
    program, *args = command
    connection = connect(McpServerStdio(name="x", command=program, args=tuple(args), env=()))
    with pytest.raises(McpConnectError, match=words):
        await connection.ready()


async def test_a_folder_that_is_gone_is_reported(
    connect: Connect, faulty: Faulty, tmp_path: Path
) -> None:
    connection = connect(faulty("ok"))
    shutil.rmtree(tmp_path)
    with pytest.raises(McpConnectError, match="there is no such folder"):
        await connection.ready()


async def test_a_server_that_writes_a_line_without_end_is_given_up(
    faulty: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "MAX_MESSAGE", 1_000_000)
    program = StdioServer(faulty("endless_line"), str(tmp_path), Surroundings.here())
    program.start()
    async with asyncio.timeout(10):
        with pytest.raises(FaultError, match="it wrote a line of more than 976 KiB to stdout"):
            async for _ in program.lines():
                pass
    await program.aclose()


@pytest.mark.parametrize("mode", ["ok", "chatter", "flood_stderr"])
async def test_noise_beside_the_messages_does_no_harm(
    faulty: Faulty, connect: Connect, mode: str
) -> None:
    connection = connect(faulty(mode))
    assert (await connection.call("ok", {"a": 1})).text == 'ok {"a": 1}'
    assert connection.error is None


async def test_the_server_runs_in_the_folder_of_the_session_with_its_own_environment(
    faulty: Faulty, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "hidden")
    result = await connect(faulty("ok", MODE="quick")).call("surroundings")
    facts = result.structured
    assert facts is not None
    assert facts["cwd"] == str(tmp_path)
    env = msgspec.convert(facts["env"], dict[str, str])
    assert (env["MODE"], env["TOKEN"], env["PATH"]) == ("quick", SECRET, os.environ["PATH"])
    assert not {name for name, value in env.items() if value == "hidden"}
    ours = set(INHERITED) | {"MODE", "TOKEN", "PIDS", "LC_CTYPE"}  # Python may set the last
    assert set(env) <= ours


async def test_the_kinds_of_what_a_tool_returns_are_told_apart(
    faulty: Faulty, connect: Connect
) -> None:
    connection = connect(faulty("ok"))
    image = await connection.call("image")
    assert image.content == (ImageContent(data="aGk=", mime_type="image/png"),)
    unknown = await connection.call("hologram")
    assert unknown.content == (UnknownContent("hologram", b'{"type":"hologram","depth":3}'),)
    refused = await connection.call("refuse")
    assert refused.failed
    assert refused.content == (TextContent(text="no such thing"),)
    with pytest.raises(McpAnswerError, match="'ok': its answer is not MCP"):
        await connection.call("scalar")
    assert (await connection.call("ok")).text == "ok {}"


async def test_a_death_in_a_call_fails_the_calls_and_the_next_one_starts_it_again(
    faulty: Faulty, connect: Connect
) -> None:
    connection = connect(faulty("ok"))
    first = await connection.call("surroundings")
    waiting = asyncio.create_task(connection.call("hang"))
    await asyncio.sleep(0)
    with pytest.raises(McpLostError, match=r"'ok': it ended with exit status 9; .*'dying'"):
        await connection.call("die")
    with pytest.raises(McpLostError, match="'ok': it ended with exit status 9"):
        await waiting
    assert isinstance(connection.state, Lost)
    assert "exit status 9" in str(connection.error)
    second = await connection.call("surroundings")
    assert first.structured is not None
    assert second.structured is not None
    assert first.structured["pid"] != second.structured["pid"]
    assert connection.error is None


async def test_a_server_that_closes_its_stdout_is_lost(faulty: Faulty, connect: Connect) -> None:
    connection = connect(faulty("ok"))
    with pytest.raises(McpLostError, match="it closed its stdout"):
        await connection.call("halfclose")
    assert (await connection.call("ok")).text == "ok {}"


async def test_cancelling_a_call_tells_the_server_and_leaves_the_connection(
    faulty: Faulty, connect: Connect, pids: Path
) -> None:
    connection = connect(faulty("ok"))
    await connection.ready()
    state = connection.state
    call = asyncio.create_task(connection.call("hang"))
    assert (await connection.call("ok")).text == "ok {}"  # the one before has been sent
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: pids.read_text() == "cancelled\n")
    assert (await connection.call("ok")).text == "ok {}"
    assert connection.state is state


async def test_a_call_that_reports_no_progress_succeeds_all_the_same(
    faulty: Faulty, connect: Connect
) -> None:
    async def report(progress: Progress) -> None:
        raise AssertionError("nothing was reported")

    assert not (await connect(faulty("ok")).call("ok", on_progress=report)).failed


@pytest.mark.parametrize("mode", ["ok", "pages", "same_cursor", "one_bad_tool"])
async def test_all_pages_of_tools_are_listed_once(
    faulty: Faulty, connect: Connect, mode: str
) -> None:
    tools = await connect(faulty(mode)).tools()
    assert [tool.name for tool in tools][:3] == ["ok", "die", "hang"]
    assert len({tool.name for tool in tools}) == len(tools) == 9
    assert {tool.server for tool in tools} == {mode}


async def test_endless_pages_end(faulty: Faulty, connect: Connect) -> None:
    (tool,) = await connect(faulty("endless_pages")).tools()
    assert tool.name == "ok"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("mute_list", "it did not list its tools within 1 s"),
        ("no_list", "its answer to `tools/list` is not MCP"),
    ],
)
async def test_a_server_that_lists_nothing_can_still_be_called(
    faulty: Faulty, connect: Connect, mode: str, words: str
) -> None:
    connection = connect(faulty(mode), deadline=1.0)
    with pytest.raises(McpAnswerError, match=words):
        await connection.tools()
    assert (await connection.call("ok")).text == "ok {}"


async def test_what_a_server_does_not_offer_is_not_asked_for(
    faulty: Faulty, connect: Connect
) -> None:
    connection = connect(faulty("ok"))
    assert await connection.resources() == ()
    assert await connection.prompts() == ()


async def test_a_failed_server_is_tried_again_at_each_use_and_told_once(
    connect: Connect, faulty: Faulty, tmp_path: Path
) -> None:
    script = tmp_path / "server"
    told = Told()
    connection = connect(
        McpServerStdio(name="later", command=str(script), args=(), env=()),
        listener=told,
    )
    for _ in range(3):
        with pytest.raises(McpConnectError, match="the file does not exist"):
            await connection.call("ok")
    working = faulty("ok")
    script.write_text(f"#!/bin/sh\nexec {working.command} {' '.join(working.args)}\n")
    script.chmod(0o755)
    assert (await connection.call("ok")).text == "ok {}"
    assert isinstance(connection.state, Ready)
    assert told.failures == 1


@pytest.mark.parametrize("mode", ["child", "child_apart", "stubborn_child", "stubborn"])
async def test_closing_leaves_nothing_behind(
    faulty: Faulty, connect: Connect, pids: Path, mode: str
) -> None:
    connection = connect(faulty(mode))
    facts = (await connection.call("surroundings")).structured
    assert facts is not None
    processes = [*started(pids), msgspec.convert(facts["pid"], int)]
    assert all(map(lives, processes))
    await connection.aclose()
    assert not any(map(lives, processes))


async def test_closing_while_connecting_leaves_nothing_behind(
    faulty: Faulty, connect: Connect, pids: Path
) -> None:
    connection = connect(faulty("silent_child"))
    connection.start()
    waiting = asyncio.create_task(connection.ready())
    await until(lambda: bool(started(pids)))
    await connection.aclose()
    with pytest.raises(McpConnectError, match="it was closed"):
        await waiting
    with pytest.raises(McpConnectError, match="it was closed"):
        await connection.call("ok")
    assert not any(map(lives, started(pids)))


async def test_cancelling_whoever_waits_does_not_end_the_attempt(
    faulty: Faulty, connect: Connect
) -> None:
    connection = connect(faulty("slow", SLOW="0.3"))
    waiting = asyncio.create_task(connection.ready())
    await until(lambda: isinstance(connection.state, Connecting))
    waiting.cancel()
    assert (await connection.call("ok")).text == "ok {}"


def test_a_loop_that_ends_with_a_connection_open_leaves_nothing_behind(
    faulty: Faulty, pids: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        connection = McpConnection(
            faulty("child"), OurSide(cwd=str(tmp_path), surroundings=Surroundings.here())
        )
        await connection.ready()
        assert all(map(lives, started(pids)))

    asyncio.run(main())
    assert len(started(pids)) == 2
    assert not any(map(lives, started(pids)))


@pytest.mark.parametrize("mode", ["ok", "silent"])
async def test_a_task_that_is_cancelled_again_and_again_ends(
    faulty: Faulty, connect: Connect, pids: Path, mode: str
) -> None:
    connection = connect(faulty(mode))
    connection.start()
    if mode == "ok":
        await connection.ready()
    (owner,) = [task for task in asyncio.all_tasks() if task.get_name() == f"mcp {mode}"]
    async with asyncio.timeout(10):
        while not owner.done():
            owner.cancel()
            await asyncio.sleep(0)
    told = f"MCP server {mode!r}: the connection was cancelled"
    await until(lambda: connection.error == told)


OWNER = """
import asyncio, json, sys
from acphold.mcp_servers.connections import McpConnection
from acphold.mcp_servers.offers import OurSide
from acp_wire.schema import EnvVariable, McpServerStdio
from acp_wire.surroundings import Surroundings

async def main():
    env = tuple(EnvVariable(name=n, value=v) for n, v in json.loads(sys.argv[2]).items())
    server = McpServerStdio(name="x", command=sys.executable, args=tuple(sys.argv[3:]), env=env)
    connection = McpConnection(server, OurSide(cwd=sys.argv[1], surroundings=Surroundings.here()))
    await connection.ready()
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")
async def test_sigkill_leaves_nothing_behind(faulty: Faulty, pids: Path, tmp_path: Path) -> None:
    server = faulty("child_apart")
    env = json.dumps({variable.name: variable.value for variable in server.env})
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER,
        str(tmp_path),
        env,
        *server.args,
        stdout=asyncio.subprocess.PIPE,
    )
    assert owner.stdout is not None
    async with asyncio.timeout(20):
        assert await owner.stdout.readline() == b"ready\n"
    processes = started(pids)
    assert len(processes) == 2
    assert all(map(lives, processes))
    owner.kill()
    await owner.wait()
    await until(lambda: not any(map(lives, processes)))
